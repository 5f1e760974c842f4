"""The keyword arguments that all layers share, defined once.

The constructor of a layer lists torch's arguments and its own. It takes the others as
`**shared: Unpack[GatedKeywords]`, so that type checkers and editors know each of them. `@completed` adds them to
`inspect.signature` and `help`, and refuses misspelled keywords.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar, cast, get_args, get_type_hints

import torch

from ..timescales import Timescales
from .biases import ForgetBias
from .recurrent import Recurrent

Constructor = TypeVar("Constructor", bound=Callable[..., None])


class Keywords(TypedDict, total=False):
    """Keywords of every layer, see `Recurrent`."""

    weight_drop: float
    recompute: int
    engine: str
    device: torch.device | str | None
    dtype: torch.dtype | None


class GatedKeywords(Keywords, total=False):
    """Keywords of every layer with a forget gate, see `Recurrent`."""

    forget_bias: ForgetBias
    timescales: Timescales | Sequence[Timescales | None] | None


class StepKeywords(TypedDict, total=False):
    """Keywords of every single-step cell, see `Recurrent`."""

    forget_bias: ForgetBias
    timescales: Timescales | Sequence[Timescales | None] | None
    engine: str
    device: torch.device | str | None
    dtype: torch.dtype | None


def completed(init: Constructor) -> Constructor:
    """Give a constructor that takes `**shared` a signature with all shared keywords and the defaults of `Recurrent`."""
    own = inspect.signature(init)
    (keywords,) = get_args(get_type_hints(init)["shared"])
    shared = inspect.signature(Recurrent).parameters.values()
    known = {name: parameter for name, parameter in own.parameters.items() if name != "shared"}
    known |= {parameter.name: parameter for parameter in shared if parameter.name in keywords.__optional_keys__}

    @functools.wraps(init)
    def constructor(self: Any, *given: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise TypeError(f"{init.__qualname__}() got an unexpected keyword argument {name!r}")
        init(self, *given, **named)

    constructor.__signature__ = own.replace(parameters=list(known.values()))  # type: ignore[attr-defined]
    return cast(Constructor, constructor)
