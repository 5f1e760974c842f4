"""A gate that a user names on the command line."""

from __future__ import annotations

import importlib
import sys

from ..gates import Gate, gate_named


def gate_of(text: str) -> Gate:
    """The gate of that name, or `module:Name`: a gate, or a class of gates that needs no arguments, in a module.

    The module is looked for in the present folder, too.
    """
    module_name, colon, name = text.partition(":")
    if not colon:
        return gate_named(text)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises
        reason = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"expected --gate {text!r} to name a module that can be imported, got {reason}") from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Gate):
        try:
            found = found()
        except TypeError as error:
            raise ValueError(f"expected {text!r} to need no arguments, got {error}") from error
    if not isinstance(found, Gate):
        got = "nothing of that name" if found is None else type(found).__name__
        raise ValueError(f"expected {text!r} to be a gate or a class of gates, got {got}")
    return gate_named(found)
