"""Units padded to whole vectors, and derivatives without the padding."""

from __future__ import annotations

import torch
from torch import Tensor

from .blocks import padded
from .launch import ALIGNMENT, Given, Kind, Slopes


def with_padding(blocks: int, given: Given, alignment: int = ALIGNMENT) -> Given:
    """All of it as the kernels take it: units padded to a multiple of the alignment, contiguous."""
    more = -given.weight_hh.shape[-1] % alignment
    if more:

        def wider(value: Tensor | None, *amounts: int, by_block: bool = False) -> Tensor | None:
            return None if value is None else padded(value, amounts, blocks if by_block else 0)

        given = given._replace(
            weight_ih=padded(given.weight_ih, (0, 0, 0, more), blocks),
            weight_hh=padded(given.weight_hh, (0, more, 0, more), blocks),
            bias_ih=wider(given.bias_ih, 0, more, by_block=True),
            bias_hh=wider(given.bias_hh, 0, more, by_block=True),
            p_hat=wider(given.p_hat, 0, more),
            hidden=wider(given.hidden, 0, more),
            cell=wider(given.cell, 0, more),
            age=wider(given.age, 0, more),
        )
    given = Given(*(None if value is None else value.contiguous() for value in given))  # type: ignore[arg-type]
    return given if given.lengths is None else given._replace(lengths=given.lengths.to(torch.int32))


def without_padding(kind: Kind, slopes: Slopes, units: int) -> list[Tensor | None]:
    """Derivatives by the fields of `Given`. Those by matrices come without padding."""
    width = slopes.bias_ih.shape[-1] // kind.blocks

    def cut(slope: Tensor | None) -> Tensor | None:
        return slope if slope is None or width == units else slope[..., :units]

    def cut_blocks(slope: Tensor) -> Tensor:
        if width == units:
            return slope
        return slope.view(*slope.shape[:-1], kind.blocks, width)[..., :units].flatten(-2)

    bias_hh = slopes.bias_hh
    if bias_hh is slopes.bias_ih and bias_hh.dim() > 1:
        # torch copies what it gets twice, but does not see that pieces of it, one per task, are the same memory.
        bias_hh = bias_hh.clone()
    return [
        slopes.inputs,
        slopes.weight_ih,
        slopes.weight_hh,
        cut_blocks(slopes.bias_ih),
        cut_blocks(bias_hh),
        cut(slopes.p_hat),
        slopes.dt,
        None,  # lengths
        cut(slopes.hidden),
        cut(slopes.cell),
        cut(slopes.age),
    ]
