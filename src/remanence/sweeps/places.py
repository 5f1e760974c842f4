"""Devices to run units on, and the interface of launchers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .folder import Sweep


@dataclass(frozen=True)
class Places:
    """Devices to run units on."""

    devices: list[str] = field(default_factory=lambda: ["cpu"])
    workers: int = 1
    """Units at a time on each device, or on each device of the cluster."""
    options: dict[str, str] = field(default_factory=dict)
    """Further options of a launcher: an address, a partition."""


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
