"""Where units run, and what has them done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .folder import Sweep


@dataclass(frozen=True)
class Places:
    """Where units run."""

    devices: list[str] = field(default_factory=lambda: ["cpu"])
    workers: int = 1
    """Units at a time on each of the devices, or of the cluster's."""
    options: dict[str, str] = field(default_factory=dict)
    """What a launcher has to know beyond that: an address, a partition."""


Look = Callable[[], None]
"""What is called about once a second while units are done."""


@dataclass(frozen=True)
class Launcher:
    """A way to have units done."""

    expect: Callable[[Places], None]
    """Says what is missing, if something is, before anything is written."""
    launch: Callable[[Sweep, Places, Look], None]
    """Has everything done that is not; returns when nothing is left, or nothing more can be done."""

    def __call__(self, sweep: Sweep, places: Places, look: Look) -> None:
        """Both."""
        self.expect(places)
        self.launch(sweep, places, look)


def expect_options(places: Places, *known: str) -> None:
    """Refuse options that a launcher does not have."""
    for name in places.options:
        if name not in known:
            have = f"options {', '.join(known)}" if known else "no options"
            raise ValueError(f"expected {have} for this launcher, got {name!r}")
