"""Lookup of registered objects by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

Thing = TypeVar("Thing")


def lookup(kind: str, name: str, known: Mapping[str, Thing], also: Iterable[str] = ()) -> Thing:
    """Return `known[name]`, or raise a ValueError that lists the known names and suggests the closest."""
    if isinstance(name, str) and name in known:
        return known[name]
    names = [*known, *also]
    nearest = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    suggestion = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"expected {kind} to be one of {', '.join(names)}, got {name!r}{suggestion}")
