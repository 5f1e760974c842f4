"""The refine gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Forgetting, Gate


@dataclass(frozen=True)
class Refine(Gate):
    """g = r (1 - (1 - f)^2) + (1 - r) f^2 with f = sigmoid(z_f), r = sigmoid(z_r); g takes the place of f.

    Gu et al., "Improving the gating mechanism of recurrent neural networks" (ICML 2020). The auxiliary gate r pulls f
    towards one or zero, so 1 - g can fall as exp(-2z). r = 1/2 gives g = f: with zero bias it starts as a sigmoid gate.
    It needs one more block of weights than a sigmoid gate. With a coupled input gate the total is that of the LSTM,
    since r replaces the input gate.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 32, gate="refine")
        >>> layer.weight_hh_l0.shape  # five blocks instead of four
        torch.Size([160, 32])
    """

    name: ClassVar[str] = "refine"
    rows: ClassVar[tuple[str, ...]] = ("forget", "refine")
    matched: ClassVar[bool] = True

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        z, z_refine = pre
        forget, lost = torch.sigmoid(z), torch.sigmoid(-z)
        refine = torch.sigmoid(z_refine)
        # The complement is the same formula with forget and lost, and refine and 1 - refine, swapped. There 1 - refine
        # must be accurate: its term is the largest one where lost is small.
        return Forgetting(
            refine * (forget * (1 + lost)) + (1 - refine) * forget.square(),
            refine * lost.square() + torch.sigmoid(-z_refine) * (lost * (1 + forget)),
            seen={"refine": refine},
        )

    def slopes(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Mapping[str, Tensor]:
        """dg/dz_f = 2 f l (r l + (1 - r) f), dg/dz_r = 2 f l r (1 - r) with l = 1 - f: sums without cancellation.

        The derived code selects between two longer formulas, one from the forget value and one from the complement.
        This saves 10 % of a training step.
        """
        z, z_refine = pre
        forget, lost = torch.sigmoid(z), torch.sigmoid(-z)
        refine, unrefine = torch.sigmoid(z_refine), torch.sigmoid(-z_refine)
        turn = 2 * forget * lost
        return {"forget": turn * (refine * lost + unrefine * forget), "refine": turn * refine * unrefine}

    def logit(self, *biases: Tensor) -> Tensor:
        z, z_refine = biases
        forget, lost = torch.sigmoid(z), torch.sigmoid(-z)
        refine, unrefine = torch.sigmoid(z_refine), torch.sigmoid(-z_refine)
        # g = f (r (1 + l) + (1 - r) f) and 1 - g = l (r l + (1 - r) (1 + f)): log f - log l is z, and cannot underflow.
        return (
            z + torch.log(refine * (1 + lost) + unrefine * forget) - torch.log(refine * lost + unrefine * (1 + forget))
        )

    def bias(self, logit: Tensor) -> Tensor:
        return logit
