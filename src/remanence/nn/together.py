"""Several layers of the same kind in one launch."""

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
    """Run several layers that differ only in their weights, such as the seeds of an experiment, in one launch.

    The result equals `[layer(input, state, dt) for ...]`. A single small layer leaves most of a GPU idle: the fused
    engine runs all layers in one launch, in little more time than one. Other engines run them one after the other.

    Args:
        layers: Layers with the same arguments.
        inputs: One input per layer, all of the same shape, or one input for all layers.
        states: One initial state per layer, or None for zeros.
        dts: One dt per layer, one tensor for all layers, or None.
        lengths: Lengths of padded sequences, `(B,)`: one tensor per layer, one for all layers, or None.

    Returns:
        A list with the pair `(output, state)` of every layer.

    Raises:
        ValueError: There is no layer, the layers have different arguments, or the inputs have different shapes.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layers = [rm.LSTM(8, 32, gate="fast") for _ in range(3)]
        >>> results = rm.together(layers, torch.randn(100, 4, 8))
        >>> [output.shape for output, state in results]
        [torch.Size([100, 4, 32]), torch.Size([100, 4, 32]), torch.Size([100, 4, 32])]
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
