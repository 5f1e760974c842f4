"""Looking inside a layer while it runs."""

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
    """What every unit did at every step.

    Runs on the loop engine, in the layer's present mode, with gradients unless torch's are off.

    Args:
        layer: any recurrent layer of this package, or a torch LSTM or GRU.
        x: input as the layer takes it.
        state: state to start from, as the layer takes it.
        dt: time between steps, as the layer takes it.
        lengths: steps of every sequence of a padded batch, as the layer takes them.

    Returns:
        A mapping from names to `(T, B, H)`, time first whatever `batch_first` says: `hidden`, `cell`, `forget`,
        `input`, `output` (the gate), `candidate`, and the gate's and cell's own: `reset` and `age` (power_law),
        `refine` (refine and ur), `candidate_reset` (GRU), `opening` (PhasedLSTM). GRU and JANET have `cell` equal to
        `hidden` and an output gate of one. NRU has `hidden`, `memory`, `added` and `erased`. Past the end of a
        sequence everything is zero. With several layers or directions, a list of mappings in the order l0,
        l0_reverse, l1, ...
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
