"""What goes into the recurrent layer of a model: values that are missing, their mask, the time between steps.

Che et al. 2018, "Recurrent neural networks for multivariate time series with missing values" (GRU-D), names the simple
forms: GRU-Mean fills a missing value with the mean of its feature, which is zero where inputs are standardised;
GRU-Forward with the last value that was seen; GRU-Simple gives the mask and the time to the layer as inputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Missing = Literal["zero", "forward"]
FILLS = ("zero", "forward")


def filled(inputs: Tensor, mask: Tensor | None, how: Missing | None) -> Tensor:
    """Inputs with something in the place of what is missing, which is not read: it may be NaN.

    Args:
        inputs: `(..., T, B, I)`.
        mask: booleans of the same shape, true where a value was seen; None where all were.
        how: "zero", or "forward" for the last value that was seen of the same feature, zero before the first.
    """
    if mask is None:
        return inputs
    if how is None:
        raise ValueError("expected a model with missing='zero' or missing='forward' for a mask, got one without")
    if mask.shape != inputs.shape:
        raise ValueError(f"expected a mask of the shape of the inputs, {tuple(inputs.shape)}, got {tuple(mask.shape)}")
    seen = mask.bool()
    known = torch.where(seen, inputs, 0)
    if how == "zero":
        return known
    # Values that were seen, one after the other, behind a zero; each step has as many of them as it has seen.
    count = seen.long().cumsum(-3)
    steps, *rest = inputs.shape[-3:]
    one_after_the_other = known.new_zeros(*inputs.shape[:-3], steps + 1, *rest)
    return one_after_the_other.scatter(-3, torch.where(seen, count, 0), known).gather(-3, count)
