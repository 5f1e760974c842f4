"""Launchers run the units of a sweep: local processes, Ray, SLURM."""

from __future__ import annotations

from ...names import lookup
from ..places import Launcher


def launcher_named(name: str) -> Launcher:
    """The launcher with this name, imported on demand because its packages are optional."""

    def local() -> Launcher:
        from . import local

        return Launcher(local.expect, local.launch)

    def ray() -> Launcher:
        from . import ray

        return Launcher(ray.expect, ray.launch)

    def slurm() -> Launcher:
        from . import slurm

        return Launcher(slurm.expect, slurm.launch)

    return lookup("launcher", name, {"local": local, "ray": ray, "slurm": slurm})()
