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
        return padded(whole, amounts, blocks if by_block else 0).contiguous()

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


def with_padding(blocks: int, given: Given) -> Given:
    """With a matrix of the inputs that has the padding of the recurrent one."""
    more = given.weight_hh.shape[-1] - given.weight_ih.shape[-2] // blocks
    return given._replace(weight_ih=padded(given.weight_ih, (0, 0, 0, more), blocks))


def padded(whole: Tensor, amounts: Sequence[int], blocks: int = 0) -> Tensor:
    """With zeros after the last entries of its last dimensions.

    Args:
        whole: any tensor.
        amounts: how many, as `torch.nn.functional.pad` takes them.
        blocks: if any, the first of these dimensions is so many blocks, each padded on its own.
    """
    if not any(amounts):
        return whole
    if not blocks:
        return pad(whole, tuple(amounts))
    first = whole.dim() - len(amounts) // 2
    shape = whole.shape
    apart = whole.reshape(*shape[:first], blocks, -1, *shape[first + 1 :])
    return pad(apart, tuple(amounts)).flatten(first, first + 1)


def taken_apart(kind: Kind, slopes: Slopes, count: int, units: int) -> list[Tensor | None]:
    """Derivatives by the fields of all tasks, one task after the other. Those by matrices come without padding."""
    width = slopes.bias_ih.shape[-1] // kind.blocks

    def cut(slope: Tensor | None) -> Tensor | None:
        return slope if slope is None or width == units else slope[..., :units]

    def cut_blocks(slope: Tensor) -> Tensor:
        if width == units:
            return slope
        return slope.view(*slope.shape[:-1], kind.blocks, width)[..., :units].flatten(-2)

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
