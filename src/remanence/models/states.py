"""What is carried from one chunk of a stream to the next: a tensor, or tuples of such, `(layers, B, H)` at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def each(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """The state with every tensor changed."""
    return change(state) if isinstance(state, Tensor) else tuple(each(change, part) for part in state)


def narrowed(state: Any, width: int) -> Any:
    """The state of the first sequences."""
    return each(lambda part: part[:, :width], state)


def width(state: Any) -> int:
    """How many sequences a state is of."""
    return int(state.shape[1]) if isinstance(state, Tensor) else width(state[0])


# For checkpoints: tensors by name, "state" for one alone, "state/0", "state/1/0" and so on for those in tuples.


def named(state: Any, name: str = "state") -> dict[str, Tensor]:
    """Every tensor by where it is; nothing where there is no state."""
    if state is None:
        return {}
    if isinstance(state, Tensor):
        return {name: state}
    return {path: part for number, inner in enumerate(state) for path, part in named(inner, f"{name}/{number}").items()}


def unnamed(parts: Mapping[str, Tensor], name: str = "state") -> Any:
    """The state whose tensors have these names; others are left out."""
    if name in parts:
        return parts[name]
    own = [path.removeprefix(f"{name}/") for path in parts if path.startswith(f"{name}/")]
    count = 1 + max((int(path.split("/")[0]) for path in own), default=-1)
    return tuple(unnamed(parts, f"{name}/{number}") for number in range(count)) or None
