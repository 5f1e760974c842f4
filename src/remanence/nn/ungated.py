"""Layers without a forget gate."""

from __future__ import annotations

from typing import Any

from .recurrent import Recurrent
from .weighted import NoForgetGateError


class Ungated(Recurrent):
    """A layer that says so in one sentence where it is asked for its gate."""

    def __getattr__(self, name: str) -> Any:
        if name == "gate":  # torch's `__getattr__` has the last word, and would not say what was expected
            raise NoForgetGateError(self)
        return super().__getattr__(name)
