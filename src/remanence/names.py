"""Objects by name: registered ones, and those that a user names as `module:Name`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

Thing = TypeVar("Thing")


def lookup(kind: str, name: str, known: Mapping[str, Thing], also: Iterable[str] = ()) -> Thing:
    """Return `known[name]`, or raise a ValueError that lists the known names and suggests the closest."""
    if isinstance(name, str) and name in known:
        return known[name]
    names = [*known, *also]
    nearest = get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    suggestion = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"expected {kind} to be one of {', '.join(names)}, got {name!r}{suggestion}")


def imported(kind: str, name: str) -> Any:
    """Import `module:Name`, or raise a ValueError that says why not; None if the module has nothing of that name."""
    module_name, _, inside = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        reason = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"expected {kind} {name!r} to name a module that can be imported, got {reason}") from error
    return getattr(module, inside, None)
