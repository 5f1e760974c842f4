"""Reset times of units in sequences with different delays (pLSTM figure A.1, panel C)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch

from ..models import SequenceModel
from ..tasks.base import Batch, Task
from .ages import reference_times, reset_steps, signal_steps, steps_shown
from .arrays import Integers, Numbers
from .plain import Result
from .sequences import home_of, sequences_of


@dataclass(frozen=True, eq=False)
class ResetMap(Result):
    """Reset times in one sequence. Steps are counted from one."""

    delay: int
    """Steps between the last symbol and the signal."""
    signal: int
    """Step of the signal."""
    k: Numbers
    """Reference time k_t of every unit, `(T, H)` for T steps of this sequence, rounded to a hundredth of a step."""
    reset_step: Integers
    """Step at which every unit resets, `(H,)`: see `reset_steps`."""


@dataclass(frozen=True, eq=False)
class ResetMaps(Result):
    """Maps of sequences from the shortest delay to the longest."""

    order: Integers
    """Units sorted by the fraction of a sequence after which they reset, earliest first: the same for all maps."""
    maps: list[ResetMap]
    """One map per sequence."""


def reset_maps(
    model: SequenceModel,
    task: Task,
    *,
    maps: int = 2,
    among: int = 100,
    seed: int = 0,
    share: float = 0.5,
    shown: int | None = None,
    channel: int = -1,
) -> ResetMaps:
    """Reference times of all units over sequences with delays as different as possible.

    Args:
        model: a model with one layer with a power_law gate.
        task: a copy task, usually one with a variable delay.
        maps: number of sequences to show: the ones with the shortest and the longest delay, and others evenly between.
        among: number of sequences to choose from.
        seed: seed of the sequences.
        share: as in `ages_and_resets`.
        shown: number of initial steps that show symbols; None for the task's `length`.
        channel: index of the input that is one at the signal.
    """
    if not 1 <= maps <= among:
        raise ValueError(f"expected to show between 1 and {among} sequences, got {maps}")
    shown = steps_shown(task, shown)
    (batch,) = sequences_of(task, among, seed=seed, device=home_of(model)[0], at_once=among)
    signals = signal_steps(batch, channel)
    if int(signals.min()) - 1 <= shown:
        raise ValueError(f"expected signals after {shown} steps with symbols and a delay, got one at step {shown}")
    by_delay = torch.argsort(signals, stable=True)
    wanted = by_delay[torch.linspace(0, len(by_delay) - 1, maps).round().long().to(by_delay.device)]
    lengths = batch.lengths if batch.lengths is not None else torch.full_like(signals, len(batch.inputs))
    chosen = Batch(
        batch.inputs[:, wanted],
        batch.targets[:, wanted],
        None if batch.dt is None else batch.dt[:, wanted],
        lengths[wanted],
    )
    k = reference_times(model, chosen)  # (T, maps, H)
    now = numpy.arange(1, len(k) + 1)[:, None, None]
    if chosen.dt is not None:
        now = chosen.dt.double().cumsum(0).unsqueeze(-1).cpu().numpy()
    ends, signs = lengths[wanted].cpu(), signals[wanted].cpu()
    resets = reset_steps(torch.from_numpy(now - k), signs, shown, share, ends)  # (maps, H)
    order = torch.argsort((resets / ends.unsqueeze(1)).mean(0), stable=True)
    found = [
        ResetMap(
            delay=int(signs[number]) - 1 - shown,
            signal=int(signs[number]),
            k=k[: int(ends[number]), number].round(2),
            reset_step=resets[number].numpy(),
        )
        for number in range(maps)
    ]
    return ResetMaps(order=order.numpy(), maps=found)
