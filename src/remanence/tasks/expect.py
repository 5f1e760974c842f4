"""Validation of task arguments. Each check raises one sentence that names the argument."""

from __future__ import annotations

from collections.abc import Iterable

from ..names import lookup
from ..nn.expect import expect_size


def expect_whole(name: str, value: int, least: int = 0) -> None:
    """Check for an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"expected {name} to be a whole number of at least {least}, got {value!r}")


def expect_size_or_none(name: str, value: int | None) -> None:
    """Check for a positive integer or None."""
    if value is not None:
        expect_size(name, value)


def expect_flag(name: str, value: bool) -> None:
    """Check for True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"expected {name} to be true or false, got {value!r}")


def expect_one_of(name: str, value: str, options: Iterable[str]) -> None:
    """Check for one of a few names."""
    lookup(name, value, dict.fromkeys(options))
