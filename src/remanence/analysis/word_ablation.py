"""How long one word stays in the memory of a model (figures 6 to 8 of the multi-timescale paper).

One word of a text is replaced by the unknown token. The cells of the model on the changed text are compared with those
on the original text, k words later:

    D(k) = mean over positions of |c_k - c'_k| / |c_k|,   shown as D(k) / D(0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from ..models.language import LanguageModel
from ..models.modes import evaluating
from ..models.text import Text, tokens_of
from .arrays import Integers, Numbers
from .groups import Groups, groups_of_units, numbered_layer, timescales_of
from .plain import Result

AT_ONCE = 50
"""Default number of positions run at a time."""
STEPS = 20
"""Words recorded at a time: the gates of all layers at these steps are in memory together."""


@dataclass(frozen=True, eq=False)
class WordAblation(Result):
    """The trace of one word, k = 0 ... K words after it."""

    by_layer: Numbers
    """D(k) / D(0) of the cells of every layer, `(L, K + 1)`."""
    by_layer_first: Numbers
    """D(0), `(L,)`."""
    layer: int | None
    """The layer whose units are grouped, counted from zero at the input."""
    groups: Groups | None
    """The groups of units; None without a layer."""
    by_group: Numbers
    """D(k) / D(0) of the cells of every group, `(G, K + 1)`."""
    by_group_first: Numbers
    """D(0), `(G,)`."""
    positions: Integers
    """Positions of the replaced words in the stream."""


def word_ablation(
    model: LanguageModel,
    stream: Text,
    unknown: int,
    *,
    words: int = 200,
    positions: int = 500,
    warm_up: int = 70,
    layer: int | None = None,
    group: int = 100,
    timescales: Any = None,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> WordAblation:
    """Replace a word by the unknown token and measure how its trace fades.

    Args:
        model: a trained language model.
        stream: a text, its words or their token ids `(N,)`.
        unknown: id of the token that replaces a word. Positions that already have it are not used.
        words: number of words after it, K.
        positions: number of random positions; all possible ones if there are fewer.
        warm_up: number of words before it, which the model reads from zero state.
        layer: layer to analyse by groups of units, counted from zero at the input; None for no groups.
        group: units per group.
        timescales: timescales of its units, by which they are grouped; None for those of the biases.
        seed: seed of the positions.
        at_once: positions run at a time.
    """
    if min(words, warm_up) < 0 or min(positions, at_once) < 1:
        raise ValueError("expected at least one position and a non-negative number of words, got others")
    if not 0 <= unknown < model.words:
        raise ValueError(f"expected the unknown token to be one of {model.words} words, got {unknown}")
    tokens = tokens_of(stream, model.words, model.vocabulary)
    chosen = random_positions(tokens.numpy(), unknown, positions, before=warm_up, after=words, seed=seed)
    groups = None
    if layer is not None:
        groups = groups_of_units(timescales_of(numbered_layer(model, layer), timescales), group)
    places = torch.arange(-warm_up, words + 1).unsqueeze(1)
    sums = []
    with evaluating(model):
        for start in range(0, len(chosen), at_once):
            as_it_is = tokens[torch.from_numpy(chosen[start : start + at_once]) + places]
            changed = as_it_is.clone()
            changed[warm_up] = unknown
            both = torch.cat((as_it_is, changed), 1).to(model.device)
            sums.append(_distances(model, both, warm_up, layer, [] if groups is None else groups.units))
    distance: Numbers = (torch.stack(sums).sum(0) / len(chosen)).T.cpu().numpy()
    first = distance[:, :1]
    relative = numpy.divide(distance, first, out=numpy.full_like(distance, numpy.nan), where=first > 0)
    layers = len(model.layers)
    return WordAblation(
        by_layer=relative[:layers],
        by_layer_first=first[:layers, 0],
        layer=layer,
        groups=groups,
        by_group=relative[layers:],
        by_group_first=first[layers:, 0],
        positions=chosen,
    )


def random_positions(stream: Integers, unknown: int, count: int, *, before: int, after: int, seed: int = 0) -> Integers:
    """Random positions with enough words on both sides, not at unknown tokens, in ascending order."""
    possible = numpy.arange(before, len(stream) - after)
    possible = possible[stream[possible] != unknown]
    if not len(possible):
        raise ValueError(
            f"expected a text with a known word that has {before} words before and {after} after it, "
            f"got {len(stream)} words"
        )
    chosen = numpy.random.default_rng(seed).choice(possible, min(count, len(possible)), replace=False)
    return numpy.sort(chosen)


def _distances(
    model: LanguageModel, tokens: Tensor, warm_up: int, layer: int | None, groups: Sequence[Integers]
) -> Tensor:
    """|c - c'| / |c| summed over positions, float64 `(K + 1, L + G)`: for all layers, then for groups of one layer.

    Args:
        model: a language model.
        tokens: `(warm_up + K + 1, 2 B)`: B original texts, then the changed ones.
        warm_up: number of steps in which both are equal.
        layer: the layer with groups.
        groups: units of every group.
    """
    state = None
    rows = []
    for start in range(0, warm_up, STEPS):
        state = model.watch(tokens[start : min(start + STEPS, warm_up)], state)[1]
    for start in range(warm_up, len(tokens), STEPS):
        records, state, _ = model.watch(tokens[start : start + STEPS], state)
        if any("cell" not in record for record in records):
            raise ValueError("expected layers with cells, got a layer without: NRU has none")
        cells = [record["cell"].double().chunk(2, 1) for record in records]
        if layer is not None:
            as_it_is, changed = cells[layer]
            cells += [(as_it_is[..., units], changed[..., units]) for units in groups]
        rows.append(torch.stack([_relative(*pair).sum(1) for pair in cells], 1))
    return torch.cat(rows)


def _relative(as_it_is: Tensor, changed: Tensor) -> Tensor:
    """Relative distance of two `(T, B, H)` tensors, `(T, B)`; zero where both are equal."""
    difference = (as_it_is - changed).norm(dim=-1)
    return torch.where(difference == 0, 0, difference / as_it_is.norm(dim=-1))
