"""Missing values in the inputs of a model.

Che et al. 2018, "Recurrent neural networks for multivariate time series with missing values" (GRU-D), names the simple
baselines: GRU-Mean fills a missing value with the mean of its feature, which is zero if inputs are standardised;
GRU-Forward fills it with the last observed value; GRU-Simple passes the mask and the time to the layer as inputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Missing = Literal["zero", "forward"]
FILLS = ("zero", "forward")


def filled(inputs: Tensor, mask: Tensor | None, how: Missing | None) -> Tensor:
    """Inputs with missing values filled in. Missing values are ignored, so they may be NaN.

    Args:
        inputs: `(..., T, B, I)`.
        mask: Booleans of the same shape, true where a value was observed; None if all were.
        how: "zero", or "forward" for the last observed value of the same feature, zero before the first.
    """
    if mask is None:
        return inputs
    if how is None:
        raise ValueError("expected a model with missing='zero' or missing='forward' for a mask, got missing=None")
    if mask.shape != inputs.shape:
        raise ValueError(f"expected a mask of the shape of the inputs, {tuple(inputs.shape)}, got {tuple(mask.shape)}")
    seen = mask.bool()
    known = torch.where(seen, inputs, 0)
    if how == "zero":
        return known
    # Scatter the observed values of every feature to consecutive rows after a zero row, then gather the latest one.
    count = seen.long().cumsum(-3)
    steps, *rest = inputs.shape[-3:]
    observed = known.new_zeros(*inputs.shape[:-3], steps + 1, *rest)
    return observed.scatter(-3, torch.where(seen, count, 0), known).gather(-3, count)
