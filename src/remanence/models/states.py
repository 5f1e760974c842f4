"""Carried states: a tensor `(layers, B, H)`, or nested tuples of such tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def each(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Apply `change` to every tensor of the state."""
    return change(state) if isinstance(state, Tensor) else tuple(each(change, part) for part in state)


def narrowed(state: Any, width: int) -> Any:
    """The state of the first `width` sequences."""
    return each(lambda part: part[:, :width], state)


def detached(state: Any) -> Any:
    """The state with all tensors detached."""
    return each(Tensor.detach, state)


def width(state: Any) -> int:
    """The number of sequences of a state."""
    return int(state.shape[1]) if isinstance(state, Tensor) else width(state[0])


# For checkpoints: tensors by name, "state" for a single tensor, "state/0", "state/1/0" and so on in tuples.


def named(state: Any, name: str = "state") -> dict[str, Tensor]:
    """The tensors of a state by name; empty for None."""
    if state is None:
        return {}
    if isinstance(state, Tensor):
        return {name: state}
    return {path: part for number, inner in enumerate(state) for path, part in named(inner, f"{name}/{number}").items()}


def unnamed(parts: Mapping[str, Tensor], name: str = "state") -> Any:
    """The state from named tensors; tensors with other names are ignored."""
    if name in parts:
        return parts[name]
    own = [path.removeprefix(f"{name}/") for path in parts if path.startswith(f"{name}/")]
    count = 1 + max((int(path.split("/")[0]) for path in own), default=-1)
    return tuple(unnamed(parts, f"{name}/{number}") for number in range(count)) or None
