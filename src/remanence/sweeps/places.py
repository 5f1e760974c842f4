"""Where units run, and what has them done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .folder import Sweep


@dataclass(frozen=True)
class Places:
    """Where units run."""

    devices: list[str] = field(default_factory=lambda: ["cpu"])
    workers: int = 1
    """Units at a time on each of the devices, or of the cluster's."""
    options: dict[str, str] = field(default_factory=dict)
    """What a launcher has to know beyond that: an address, a partition."""


class Launcher(Protocol):
    """A way to have units done."""

    def __call__(self, sweep: Sweep, places: Places, look: Callable[[], None]) -> None:
        """Have everything done that is not; returns when nothing is left, or nothing more can be done.

        Args:
            sweep: what.
            places: where.
            look: called about once a second.
        """
