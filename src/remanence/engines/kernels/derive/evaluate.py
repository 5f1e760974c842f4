"""Evaluation of formulas on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .expression import Expression, ordered
from .operations import KNOWN


def evaluated(outputs: Sequence[Expression], given: Mapping[str, Tensor]) -> list[Tensor]:
    """Values of formulas for these tensors, which have one dtype and broadcast."""
    like = next(iter(given.values()))
    values: dict[Expression, Tensor] = {}
    for node in ordered(outputs):
        if node.operation == "constant":
            values[node] = torch.tensor(node.number, dtype=like.dtype, device=like.device)
        elif node.operation == "variable":
            values[node] = given[str(node.value)]
        else:
            values[node] = KNOWN[node.operation].torch(*(values[part] for part in node.inputs))
    return [values[node] for node in outputs]
