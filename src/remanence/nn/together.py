"""Several layers of one kind side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .recurrent import Recurrent, State, run
from .sequence import Inputs


def together(
    layers: Sequence[Recurrent],
    inputs: Inputs | Sequence[Inputs],
    states: Sequence[State | None] | None = None,
    dts: Tensor | Sequence[Any] | None = None,
    lengths: Tensor | Sequence[Any] | None = None,
) -> list[tuple[Any, State]]:
    """Run layers that differ in their weights alone, such as several seeds of one experiment.

    The result is that of `[layer(input, state, dt) for ...]`. A small layer leaves most of a GPU idle: the fused engine
    runs all of them in one launch, in little more time than one. Other engines run one after the other.

    Args:
        layers: layers with the same arguments.
        inputs: one input per layer, all of the same shape, or one for all.
        states: one state per layer, or None to start at zero.
        dts: one dt per layer, one tensor for all, or None.
        lengths: lengths of padded sequences, `(B,)`: one tensor per layer, one for all, or None.

    Returns:
        Output and state of every layer.
    """
    layers = list(layers)
    if not layers:
        raise ValueError("expected at least one layer, got none")
    for layer in layers[1:]:
        if layer.extra_repr() != layers[0].extra_repr() or layer.cell != layers[0].cell:
            raise ValueError(f"expected layers with the same arguments, got {layers[0]} and {layer}")
    every_input = _per_layer("inputs", inputs, len(layers))
    every_state = _per_layer("states", states, len(layers))
    every_dt = _per_layer("dts", dts, len(layers))
    every_length = _per_layer("lengths", lengths, len(layers))
    shapes = {tuple((x.data if isinstance(x, PackedSequence) else x).shape) for x in every_input}
    if len(shapes) > 1:
        raise ValueError(f"expected inputs of one shape, got {' and '.join(map(str, sorted(shapes)))}")
    return [(output, state) for output, state, _ in run(layers, every_input, every_state, every_dt, every_length)]


def _per_layer(name: str, values: Any, count: int) -> list[Any]:
    if not isinstance(values, list | tuple) or isinstance(values, PackedSequence):
        return [values] * count
    if len(values) != count:
        raise ValueError(f"expected {name} for {count} layers, got {len(values)}")
    return list(values)
