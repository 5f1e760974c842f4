"""Conversion of torch's layers."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def from_torch(cls: type[Layer], kind: type[nn.RNNBase], layer: nn.RNNBase, **keywords: Any) -> Layer:
    """A `cls` with the arguments, weights, device, dtype and training mode of a torch layer of this kind."""
    if not isinstance(layer, kind):
        raise TypeError(f"expected a torch.nn.{kind.__name__}, got {type(layer).__name__}")
    if isinstance(layer, nn.LSTM):
        keywords = {"proj_size": layer.proj_size} | keywords
    weight = next(layer.parameters())
    with torch.random.fork_rng([weight.device] if weight.is_cuda else []):
        new = cls(
            layer.input_size,
            layer.hidden_size,
            layer.num_layers,
            layer.bias,
            layer.batch_first,
            layer.dropout,
            layer.bidirectional,
            **{"device": weight.device, "dtype": weight.dtype} | keywords,
        )
    new.load_state_dict(layer.state_dict())
    for name, parameter in layer.named_parameters():
        new.get_parameter(name).requires_grad_(parameter.requires_grad)
    return new.train(layer.training)
