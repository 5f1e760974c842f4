"""Ways to have the units of a sweep done: processes of this machine, Ray, SLURM."""

from __future__ import annotations

from ...names import lookup
from ..places import Launcher


def launcher_named(name: str) -> Launcher:
    """The launcher of that name, loaded now: not everybody has what it needs."""

    def local() -> Launcher:
        from .local import launch

        return launch

    def ray() -> Launcher:
        from .ray import launch

        return launch

    def slurm() -> Launcher:
        from .slurm import launch

        return launch

    return lookup("launcher", name, {"local": local, "ray": ray, "slurm": slurm})()
