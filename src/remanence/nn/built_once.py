"""Layers with an orthogonal or unitary matrix, for use after training."""

from __future__ import annotations

import torch

from ..cells import BuiltCell, BuiltOnceCell
from .recurrent import Recurrent


@torch.no_grad()
def built_once(layer: Recurrent) -> Recurrent:
    """A layer that gives what this one gives in evaluation, with its matrices built now instead of in every call.

    For single steps, which would spend most of their time on it, and for ONNX, which has no exponential of matrices. It
    has weights of its own, which do not follow those of the layer. A layer that builds none is returned as it is.
    """
    cell = layer.cell
    if not isinstance(cell, BuiltCell) or isinstance(cell, BuiltOnceCell):
        return layer
    weight = next(layer.parameters())
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    built = Recurrent(
        BuiltOnceCell(cell),
        *(getattr(layer, name) for name in names),
        engine=layer.engine,
        recompute=layer.recompute,
        device=weight.device,
        dtype=weight.dtype,
    ).train(layer.training)
    for place in layer.places:
        weights = layer._weights(place, weight.dtype)
        for name in built._names:
            found = weights[name] if name in weights else layer._start(place)
            assert found is not None
            getattr(built, name + place.suffix).copy_(found)
    return built
