"""Precomputed orthogonal and unitary matrices, for inference."""

from __future__ import annotations

import torch

from ..cells import BuiltCell, BuiltOnceCell
from .recurrent import Recurrent


@torch.no_grad()
def built_once(layer: Recurrent) -> Recurrent:
    """A copy of a layer for inference, with its orthogonal or unitary matrices computed once instead of in every call.

    Use it for single steps, which would spend most of their time on the matrices, and for ONNX, which has no matrix
    exponential. The copy has its own weights, which do not follow those of the layer.

    Args:
        layer: Any recurrent layer.

    Returns:
        A layer with the outputs of `layer` in evaluation mode. A layer that does not build its matrix is returned
        unchanged.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.ExpRNN(8, 32).eval()
        >>> fast = rm.nn.built_once(layer)
        >>> x = torch.randn(20, 4, 8)
        >>> torch.allclose(fast(x)[0], layer(x)[0], atol=1e-5)
        True
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
