"""Forget values over a sequence, unit by unit (figure 5 of the multi-timescale paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..models.language import LanguageModel
from ..models.text import tokens_of, words_of
from .arrays import Integers, Numbers, numbers
from .opened import AnyInput, AnyModel, LayerInput, Opened, opened
from .plain import Result


@dataclass(frozen=True, eq=False)
class ForgetMap(Result):
    """Forget values of G groups of units of one layer and direction."""

    name: str
    """l0, l1, ..."""
    values: Numbers
    """Mean forget value of every group at every step, `(G, T)`; the group with the largest values comes first."""
    units: list[Integers]
    """The units of every group, largest mean forget value first."""
    means: Numbers
    """Mean forget value of every group, `(G,)`, in descending order."""
    timescales: Numbers | None
    """Mean timescale of every group from the biases, `(G,)`; None if the gate has none."""


@dataclass(frozen=True, eq=False)
class ForgetMaps(Result):
    """One heat map per layer of a model."""

    first: int
    """First step of the map, counted from zero."""
    labels: list[str] | None
    """Labels of the steps: the words, for a language model with a vocabulary."""
    layers: list[ForgetMap]
    """One map per layer and direction."""


def forget_maps(
    model: AnyModel,
    input: AnyInput,
    *,
    group: int = 10,
    first: int = 0,
    steps: int | None = None,
    labels: Sequence[str] | None = None,
    dt: Tensor | None = None,
) -> ForgetMaps:
    """Forget values of all units over a sequence, sorted by their mean and averaged in groups.

    Args:
        model: a layer, a `SequenceModel`, a `LanguageModel`, or torch's LSTM or GRU.
        input: an input of the model, a batch of a task, or a text. Values are means over its sequences; padding does
            not count.
        group: units per group; 1 for single units. The last group may be smaller.
        first: first step of the map. The model still runs from the start of the input.
        steps: number of steps of the map; None for all remaining ones.
        labels: labels of all steps of the input; None for the words of a text.
        dt: time between steps of the input.
    """
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise ValueError(f"expected groups of at least one unit, got {group!r}")
    inside = opened(model)
    for layer in inside.layers:
        layer.gate  # noqa: B018  raises for a layer without a gate
    drive = inside.layer_input(input, dt)
    whole = len(drive.vectors)
    last = whole if steps is None else first + steps
    if not 0 <= first < last <= whole:
        raise ValueError(f"expected steps within the {whole} of the input, got {first} to {last - 1}")
    if labels is None:
        labels = _words(model, input)
    if labels is not None and len(labels) != whole:
        raise ValueError(f"expected a label for each of {whole} steps, got {len(labels)}")
    with inside.measuring():
        means = _means(inside, drive, first, last)
    maps = [
        _map(name, values, assigned, group)
        for name, values, assigned in zip(inside.names, means, inside.timescales(), strict=True)
    ]
    return ForgetMaps(first=first, labels=None if labels is None else list(labels[first:last]), layers=maps)


def _means(inside: Opened, drive: LayerInput, first: int, last: int) -> list[Numbers]:
    """Mean forget values over sequences, `(T, H)` for every place."""
    kept: list[list[Numbers]] = [[] for _ in inside.places]
    for start, records, _ in inside.watched(drive):
        for rows, record in zip(kept, records, strict=True):
            rows.append(_over_sequences(record["forget"], drive.lengths)[max(0, first - start) : last - start])
        if start + len(records[0]["forget"]) >= last:
            break
    return [numpy.concatenate(rows) for rows in kept]


def _over_sequences(values: Tensor, lengths: Tensor | None) -> Numbers:
    """The mean over the sequences that have not ended, `(T, B, H)` to `(T, H)`."""
    if lengths is None:
        return numbers(values.double().mean(1))
    going_on = torch.arange(len(values)).unsqueeze(1) < lengths  # values past the end are zero
    return numbers(values.double().sum(1)) / numbers(going_on.sum(1, keepdim=True))


def _map(name: str, values: Numbers, assigned: Numbers | None, group: int) -> ForgetMap:
    order = numpy.argsort(-values.mean(0), kind="stable").astype(numpy.int64)
    units = [order[start : start + group] for start in range(0, len(order), group)]
    rows = numpy.stack([values[:, part].mean(1) for part in units])
    return ForgetMap(
        name=name,
        values=rows,
        units=units,
        means=rows.mean(1),
        timescales=None if assigned is None else numpy.array([assigned[part].mean() for part in units]),
    )


def _words(model: AnyModel, text: AnyInput) -> list[str] | None:
    if not isinstance(model, LanguageModel) or model.vocabulary is None:
        return None
    if isinstance(text, Tensor) and text.dim() == 2:
        if text.shape[1] > 1:
            return None  # several texts have no common labels
        text = text[:, 0]
    return words_of(tokens_of(text, model.words, model.vocabulary).tolist(), model.vocabulary)
