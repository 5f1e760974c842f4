"""Keeps `torch.compile` from tracing a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def untraced(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Like `torch.compiler.disable`, but without the two seconds to import the compiler unless one is running."""

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        if torch.compiler.is_compiling():
            value: Value = _disabled(function)(*args, **kwargs)
            return value
        return function(*args, **kwargs)

    return call


_made: dict[Callable[..., Any], Callable[..., Any]] = {}


def _disabled(function: Callable[..., Any]) -> Callable[..., Any]:
    if function not in _made:
        _made[function] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return _made[function]
