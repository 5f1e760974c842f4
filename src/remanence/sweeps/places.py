"""Devices to run units on, and the interface of launchers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ..engines.machine import device_named
from .folder import Sweep


@dataclass(frozen=True)
class Places:
    """Devices to run units on."""

    devices: list[str] = field(default_factory=lambda: ["cpu"])
    workers: int = 1
    """Units at a time on each device, or on each device of the cluster."""
    options: dict[str, str] = field(default_factory=dict)
    """Further options of a launcher: an address, a partition."""


def places_for(launcher: str, names: Sequence[str], workers: int | None, options: Iterable[str] = ()) -> Places:
    """The devices, workers and launcher options that units run with, from the words of a command line.

    Args:
        launcher: Name of the launcher.
        names: Names of devices; if empty, every GPU of this machine, else the CPU.
        workers: Units at a time on each device; by default one, or on the CPU one per core.
        options: Options of the launcher, each as NAME=VALUE.
    """
    if launcher == "local":
        if not names or names == ["cuda"]:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if names and not count:
                raise ValueError("expected a CUDA device of this machine, got 'cuda', and torch sees no CUDA device")
            names = [f"cuda:{number}" for number in range(count)] or ["cpu"]
        names = [str(device_named(name)) for name in names]
    elif names and names not in (["cpu"], ["cuda"]):
        raise ValueError(f"expected --devices cpu or cuda with --launcher {launcher}, got {','.join(names)!r}")
    known = {}
    for word in options:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected --option NAME=VALUE, got {word!r}")
        known[name.strip()] = value.strip()
    names = names or ["cpu"]
    usual = (os.cpu_count() or 1) if names == ["cpu"] else 1
    return Places(list(names), workers or usual, known)


Look = Callable[[], None]
"""A callback that runs about once a second while units run."""


@dataclass(frozen=True)
class Launcher:
    """Runs the units of a sweep."""

    expect: Callable[[Places], None]
    """Raises a `ValueError` if something is missing, before anything is written."""
    launch: Callable[[Sweep, Places, Look], None]
    """Runs all units that are left; returns when no units are left, or no more can run."""

    def __call__(self, sweep: Sweep, places: Places, look: Look) -> None:
        """Check, then launch."""
        self.expect(places)
        self.launch(sweep, places, look)


def expect_options(places: Places, *known: str) -> None:
    """Refuse options that a launcher does not have."""
    for name in places.options:
        if name not in known:
            have = f"options {', '.join(known)}" if known else "no options"
            raise ValueError(f"expected {have} for this launcher, got {name!r}")
