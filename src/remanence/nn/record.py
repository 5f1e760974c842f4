"""Recording the gates of a layer while it runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .gru import GRU
from .lstm import LSTM
from .recurrent import Recurrent, State
from .sequence import Inputs

Record = dict[str, Tensor]


def record(
    layer: Recurrent | nn.LSTM | nn.GRU, x: Inputs, state: State | None = None, dt: Any = None, lengths: Any = None
) -> Record | list[Record]:
    """Record states and gate activations of every unit at every step.

    Runs on the loop engine, in the current mode of the layer (training or evaluation). Gradients are recorded unless
    they are disabled in torch.

    Args:
        layer: Any recurrent layer of this package, or a `torch.nn.LSTM` or `torch.nn.GRU`.
        x: Input, as in the layer's `forward`.
        state: Initial state, as in the layer's `forward`.
        dt: Time between steps, as in the layer's `forward`.
        lengths: Lengths of padded sequences, as in the layer's `forward`.

    Returns:
        A mapping from names to `(T, B, H)` tensors, time first regardless of `batch_first`: `hidden`, `cell`, `forget`,
        `input`, `output` (the gate), `candidate`, and the values of the gate and cell: `reset` and `age` (power_law),
        `refine` (refine and ur), `candidate_reset` (GRU), `opening` (PhasedLSTM). For GRU and JANET `cell` equals
        `hidden` and the output gate is one. NRU has `hidden`, `memory`, `added` and `erased`. All values are zero past
        the end of a sequence. With several layers or directions, a list of mappings in the order l0, l0_reverse, l1,
        ...

    Raises:
        TypeError: `layer` is not a recurrent layer.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.PowerLawLSTM(3, 16)
        >>> record = rm.record(layer, torch.randn(20, 4, 3))
        >>> sorted(record)
        ['age', 'candidate', 'cell', 'forget', 'hidden', 'input', 'output', 'reset']
        >>> record["forget"].shape
        torch.Size([20, 4, 16])
    """
    if type(layer) is nn.LSTM:
        layer = LSTM.from_torch(layer)
    elif type(layer) is nn.GRU:
        layer = GRU.from_torch(layer)
    elif not isinstance(layer, Recurrent):
        raise TypeError(f"expected a recurrent layer, got {type(layer).__name__}")
    records, _, _ = layer.watch(x, state, dt, lengths)
    public = [{name: value for name, value in values.items() if name != "complement"} for values in records]
    return public[0] if len(public) == 1 else public
