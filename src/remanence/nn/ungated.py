"""Layers without a forget gate."""

from __future__ import annotations

from typing import Any

from .recurrent import Recurrent
from .weighted import NoForgetGateError


class Ungated(Recurrent):
    """A layer whose `gate` attribute raises an error that says it has no forget gate."""

    def __getattr__(self, name: str) -> Any:
        if name == "gate":  # else torch's `__getattr__` would raise its own error, without the reason
            raise NoForgetGateError(self)
        return super().__getattr__(name)
