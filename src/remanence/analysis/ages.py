"""Which units of a power-law LSTM hold their memory through a delay, and their exponents (pLSTM figure A.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..gates import PowerLaw
from ..models import SequenceModel
from ..nn import record
from ..nn.sequence import within
from ..tasks.base import Batch, Task
from .arrays import Numbers, numbers
from .opened import exponents_of
from .plain import Result
from .sequences import home_of, layer_input_of, layer_of, measuring, sequences_of


@dataclass(frozen=True, eq=False)
class UnitAges(Result):
    """Ages and resets of H units between the symbols and the signal. Steps are counted from one."""

    sequences: int
    """Number of sequences averaged over."""
    p: Numbers
    """Exponent of every unit, `(H,)`."""
    age_at_signal: Numbers
    """Mean age at the last step before the signal, `(H,)`."""
    share_held: Numbers
    """The same as a fraction of the delay, `(H,)`."""
    reset_step: Numbers
    """Mean step at which a unit resets, `(H,)`: see `reset_steps`."""
    later: NDArray[numpy.int64]
    """The later-reset units: those whose `share_held` is large enough, oldest first."""
    p_mean: float
    """Mean exponent of all units."""
    p_later_mean: float | None
    """Mean exponent of the later-reset units; None if there are none."""
    p_below_half: int
    """Number of units with p < 0.5."""
    example_k: Numbers
    """Reference time k_t of every unit over the first sequence, `(T, H)`, rounded to a hundredth of a step."""
    example_order: NDArray[numpy.int64]
    """Units sorted by the step at which they reset in that sequence, earliest first."""
    example_signal: int
    """Step of the signal in that sequence."""


def ages_and_resets(
    model: SequenceModel,
    task: Task,
    *,
    sequences: int = 100,
    seed: int = 0,
    share: float = 0.5,
    shown: int | None = None,
    channel: int = -1,
    at_once: int = 50,
) -> UnitAges:
    """Record the ages of all units over test sequences of a copy task.

    A sequence shows symbols, then a delay, then a signal. A unit is later-reset if its age at the last step before the
    signal is at least `share` of the delay, on average over sequences.

    Args:
        model: a model with one layer with a power_law gate.
        task: the copy task.
        sequences: number of sequences.
        seed: seed of the sequences.
        share: fraction of the delay for which a later-reset unit has held its memory.
        shown: number of initial steps that show symbols; None for the task's `length`.
        channel: index of the input that is one at the signal.
        at_once: sequences run at a time.
    """
    shown = steps_shown(task, shown)
    p = exponents(model)
    device, _ = home_of(model)
    ages, shares, resets = [], [], []
    example: tuple[Numbers, NDArray[numpy.int64], int] | None = None
    for batch in sequences_of(task, sequences, seed=seed, device=device, at_once=at_once):
        age = _ages(model, batch)
        signal = signal_steps(batch, channel)
        delay = signal - 1 - shown
        if not bool((delay > 0).all()):
            raise ValueError(f"expected signals after {shown} steps with symbols and a delay, got one at step {shown}")
        at_signal = age[signal - 2, torch.arange(len(signal), device=age.device)].double()
        reset = reset_steps(age, signal, shown, share, batch.lengths)
        ages.append(at_signal)
        shares.append(at_signal / delay.unsqueeze(-1))
        resets.append(reset)
        if example is None:
            k = _reference_times(age, batch.dt)[:, 0]
            order = torch.argsort(reset[0], stable=True)
            example = k.cpu().numpy().round(2), order.cpu().numpy(), int(signal[0])
    assert example is not None
    share_held = _mean(shares)
    later = numpy.flatnonzero(share_held >= share)
    later = later[numpy.argsort(-share_held[later], kind="stable")]
    example_k, example_order, example_signal = example
    return UnitAges(
        sequences=sum(len(part) for part in ages),
        p=p,
        age_at_signal=_mean(ages),
        share_held=share_held,
        reset_step=_mean(resets),
        later=later,
        p_mean=float(p.mean()),
        p_later_mean=float(p[later].mean()) if len(later) else None,
        p_below_half=int((p < 0.5).sum()),
        example_k=example_k,
        example_order=example_order,
        example_signal=example_signal,
    )


def later_reset_units(
    model: SequenceModel, task: Task, *, sequences: int = 100, seed: int = 0, share: float = 0.5
) -> NDArray[numpy.int64]:
    """The units that hold their memory until the signal, oldest first: `ages_and_resets(...).later`.

    Args:
        model: A trained model with one power-law layer.
        task: A copy task.
        sequences: Number of test sequences.
        seed: Seed of the sequences.
        share: Fraction of the delay that a unit has to hold.
    """
    return ages_and_resets(model, task, sequences=sequences, seed=seed, share=share).later


def reference_times(model: SequenceModel, batch: Batch) -> Numbers:
    """k_t, the time at which the memory of a unit began, of every unit over the sequences of a batch, `(T, B, H)`.

    Time starts at zero before the first step. Between resets k_t is constant; at a reset it jumps to t.

    Args:
        model: A model with one power-law layer.
        batch: Sequences.
    """
    return _reference_times(_ages(model, batch), batch.dt).cpu().numpy()


def exponents(model: SequenceModel) -> Numbers:
    """p of every unit, `(H,)`.

    Args:
        model: A model with one power-law layer.
    """
    _expect_power_law(model)
    layer = layer_of(model)
    p = exponents_of(layer, layer.places[0])
    assert p is not None
    return numbers(p)


def steps_shown(task: Task, shown: int | None) -> int:
    """The number of initial steps that show symbols: the given one, or the task's `length`.

    Args:
        task: A copy task.
        shown: The number; None for the task's `length`.
    """
    found: int | None = getattr(task, "length", None) if shown is None else shown
    if found is None:
        raise ValueError(
            f"expected shown, the number of steps with symbols, got none: task {task.name!r} has no length"
        )
    return found


def signal_steps(batch: Batch, channel: int = -1) -> Tensor:
    """The first step, counted from one, at which an input is one, `(B,)`. By default the last input, the signal.

    Args:
        batch: Sequences.
        channel: Index of the input.
    """
    signal = batch.inputs[..., channel] > 0.5
    if batch.lengths is not None:
        signal &= within(batch.lengths, len(signal))
    if not bool(signal.any(0).all()):
        raise ValueError(f"expected a signal on input {channel} of every sequence, got a sequence without one")
    return signal.int().argmax(0) + 1


def reset_steps(age: Tensor, signal: Tensor, shown: int, share: float = 0.5, lengths: Tensor | None = None) -> Tensor:
    """The step, counted from one, at which every unit resets after holding its memory since the symbols, `(B, H)`.

    At step t a unit holds if its age is at least `share` of the number of steps since the last symbol. There are two
    cases. If it holds at the last step before the signal, it resets at the first step from the signal on at which it
    does not hold, or one step after the end of the sequence. Otherwise it resets one step after the last step before
    the signal at which it held, at the earliest right after the symbols.

    Args:
        age: `(T, B, H)`.
        signal: `(B,)`, steps counted from one.
        shown: number of steps with symbols.
        share: fraction of the time since the symbols for which a unit must have held.
        lengths: `(B,)` length of every sequence; None if all have T steps.
    """
    steps = torch.arange(1, len(age) + 1, device=age.device).view(-1, 1, 1)
    signal = signal.view(1, -1, 1)
    end = torch.full_like(signal, len(age)) if lengths is None else lengths.view(1, -1, 1)
    holds = (age >= share * (steps - shown)) & (steps > shown)
    last_held = torch.where(holds & (steps < signal), steps, shown).amax(0)
    lets_go = torch.where(~holds & (steps >= signal) & (steps <= end), steps, end + 1).amin(0)
    return torch.where(last_held == signal[0] - 1, lets_go, last_held + 1)


def _ages(model: SequenceModel, batch: Batch) -> Tensor:
    """`(T, B, H)`."""
    _expect_power_law(model)
    with measuring(model):
        vectors, dt = layer_input_of(model, batch)
        seen = record(layer_of(model), vectors, dt=dt, lengths=batch.lengths)
    return cast("dict[str, Tensor]", seen)["age"]


def _reference_times(age: Tensor, dt: Tensor | None) -> Tensor:
    age = age.double()
    if dt is None:
        return torch.arange(1, len(age) + 1, device=age.device, dtype=age.dtype).view(-1, 1, 1) - age
    return dt.double().cumsum(0).unsqueeze(-1) - age


def _expect_power_law(model: SequenceModel) -> None:
    layer = layer_of(model)
    if len(layer.places) > 1:
        raise ValueError(
            f"expected a model with one unidirectional layer, got {len(layer.places)} layers or directions"
        )
    if not isinstance(layer.gate, PowerLaw):
        raise ValueError(f"expected a model with gate power_law, whose units have ages, got {layer.gate.name}")


def _mean(parts: list[Tensor]) -> Numbers:
    """Mean over sequences: `(B, H)` each to `(H,)`."""
    mean: Numbers = torch.cat(parts).double().mean(0).cpu().numpy()
    return mean
