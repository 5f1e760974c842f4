"""Tasks as tensors with the tasks first, units padded; and derivatives on the way back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from .launch import Given, Kind, Slopes

ALIGNMENT = 16
"""Units are padded to a multiple of this: rows of whole vectors are read and written several times as fast."""


def put_together(blocks: int, tasks: Sequence[Given]) -> Given:
    """All tasks in one. A single one with no need for padding is passed on as it is."""
    units = tasks[0].weight_hh.shape[-1]
    more = -units % ALIGNMENT
    if len(tasks) == 1 and not more:
        task = Given(*(None if value is None else value.contiguous() for value in tasks[0]))  # type: ignore[arg-type]
        return task if task.lengths is None else task._replace(lengths=task.lengths.to(torch.int32))

    def joined(name: str, *amounts: int, by_block: bool = False) -> Tensor | None:
        values = [getattr(task, name) for task in tasks]
        if values[0] is None:
            return None
        whole = values[0] if len(values) == 1 else torch.stack(values)
        if more and amounts:
            trailing = len(amounts) // 2
            shape = whole.shape
            if by_block:
                lead = shape[: len(shape) - trailing]
                whole = whole.reshape(*lead, blocks, units, *shape[len(lead) + 1 :])
            whole = pad(whole, amounts)
            if by_block:
                whole = whole.flatten(len(lead), len(lead) + 1)
        return whole.contiguous()

    lengths = joined("lengths")
    return Given(
        inputs=joined("inputs"),  # type: ignore[arg-type]
        weight_ih=joined("weight_ih", 0, 0, 0, more, by_block=True),  # type: ignore[arg-type]
        weight_hh=joined("weight_hh", 0, more, 0, more, by_block=True),  # type: ignore[arg-type]
        bias_ih=joined("bias_ih", 0, more, by_block=True),
        bias_hh=joined("bias_hh", 0, more, by_block=True),
        p_hat=joined("p_hat", 0, more),
        dt=joined("dt"),
        lengths=None if lengths is None else lengths.to(torch.int32),
        hidden=joined("hidden", 0, more),
        cell=joined("cell", 0, more),
        age=joined("age", 0, more),
    )


def taken_apart(kind: Kind, slopes: Slopes, count: int, units: int) -> list[Tensor | None]:
    """Derivatives by the fields of all tasks, one task after the other. Those by matrices come without padding."""
    padded = slopes.bias_ih.shape[-1] // kind.blocks

    def cut(slope: Tensor | None) -> Tensor | None:
        return slope if slope is None or padded == units else slope[..., :units]

    def cut_blocks(slope: Tensor) -> Tensor:
        if padded == units:
            return slope
        return slope.view(*slope.shape[:-1], kind.blocks, padded)[..., :units].flatten(-2)

    whole = (
        slopes.inputs,
        slopes.weight_ih,
        slopes.weight_hh,
        cut_blocks(slopes.bias_ih),
        cut_blocks(slopes.bias_hh),
        cut(slopes.p_hat),
        slopes.dt,
        None,  # lengths
        cut(slopes.hidden),
        cut(slopes.cell),
        cut(slopes.age),
    )
    if count == 1:
        return list(whole)
    if whole[4] is whole[3]:  # torch copies what it gets twice, but does not see that pieces of it are the same memory
        whole = (*whole[:4], slopes.bias_hh.clone(), *whole[5:])
    each = [[None] * count if slope is None else slope.unbind() for slope in whole]
    return [slope for task in zip(*each, strict=True) for slope in task]
