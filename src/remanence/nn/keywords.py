"""The keywords that all layers share, named once.

The constructor of a layer names torch's arguments and those of its own, and takes the others as
`**shared: Unpack[GatedKeywords]`, by which type checkers and editors know them one by one. `@completed` does the same
for `inspect.signature` and `help`, and for whoever misspells one.
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
    """Keywords of every single step, see `Recurrent`."""

    forget_bias: ForgetBias
    timescales: Timescales | Sequence[Timescales | None] | None
    engine: str
    device: torch.device | str | None
    dtype: torch.dtype | None


def completed(init: Constructor) -> Constructor:
    """A constructor that ends in `**shared` as if it had all shared keywords, with the defaults of `Recurrent`."""
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
