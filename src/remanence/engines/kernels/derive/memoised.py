"""Memoised derivations, by the class of a gate or cell and all of its settings."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ....cells.base import NOTED
from ....gates import Gate

Found = TypeVar("Found")

_found: dict[Hashable, Any] = {}
MOST = 512
"""Maximum number of entries; beyond it the cache is cleared."""


def memoised(thing: Any, settings: tuple[Hashable, ...], make: Callable[[], Found]) -> Found:
    """The result of `make` for a gate or cell and these settings, computed once. Exceptions are not cached."""
    key = identity(thing)
    if key is None and not hasattr(thing, "__dict__"):
        return make()
    if key is None:  # not hashable: cached on the object itself
        places: dict[Hashable, Any] = vars(thing).get("_formulas", {})
        object.__setattr__(thing, "_formulas", places)
        key = ()
    else:
        places = _found
        if len(places) > MOST:
            places.clear()
    full = (key, settings)
    if full not in places:
        places[full] = make()
    found: Found = places[full]
    return found


def identity(thing: Any) -> Hashable | None:
    """A key that is equal for objects of one class with equal settings; None if the settings are not hashable.

    Not `==`: a subclass of a dataclass inherits it, and it then ignores the attributes that the subclass adds.
    """
    own = {name: value for name, value in sorted(_settings(thing).items()) if name not in NOTED}
    parts = [(name, identity(value) if isinstance(value, Gate) else value) for name, value in own.items()]
    if any(value is None and isinstance(own[name], Gate) for name, value in parts):
        return None
    key = (type(thing), tuple((name, type(value), value) for name, value in parts))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _settings(thing: Any) -> dict[str, Any]:
    slots = [name for kind in type(thing).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    found = {name: getattr(thing, name) for name in slots if name != "__dict__" and hasattr(thing, name)}
    return found | (dict(vars(thing)) if hasattr(thing, "__dict__") else {})


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
