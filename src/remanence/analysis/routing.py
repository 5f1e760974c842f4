"""Which units carry information about which words (figures 3 and 11 of the multi-timescale paper).

The output of a group of units of one layer is set to zero on its way to the next layer; the layer itself, including its
recurrence, is unchanged. The increase in perplexity by word frequency shows for which words the group matters. All
groups run as one batch: the same text in every row, with a different group ablated in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..cells import wide
from ..models.language import LanguageModel
from ..models.modes import evaluating
from ..models.text import Text, tokens_of
from .arrays import Integers, Numbers, numbers
from .frequency_bins import BOUNDS, binned_sums, bins_of, columns, perplexity
from .groups import Groups, groups_of_units, numbered_layer, timescales_of
from .plain import Result

MEMORY = 2**32
"""Memory limit in bytes on a GPU for the logits of all words and their intermediate results."""
MEMORY_ON_CPU = 2**29


@dataclass(frozen=True, eq=False)
class Routing(Result):
    """Perplexity by word frequency without each of G groups of units, from long to short timescales."""

    layer: int
    """Counted from zero at the input."""
    groups: Groups
    """The groups of units."""
    columns: tuple[str, ...]
    """Names of the bins, most frequent first, and "all"."""
    tokens: Integers
    """Number of words of the text in every column, `(C,)`."""
    intact: Numbers
    """Perplexity of the whole model, `(C,)`."""
    perplexity: Numbers
    """Without each group, `(G, C)`."""
    ratio: Numbers
    """`perplexity / intact`, `(G, C)`."""


def routing(
    model: LanguageModel,
    stream: Text,
    counts: Any,
    *,
    layer: int = 1,
    group: int = 50,
    timescales: Any = None,
    bounds: Sequence[int] = BOUNDS,
    chunk: int = 70,
    variants: int | None = None,
) -> Routing:
    """Ablate every group of units of a layer in turn.

    Args:
        model: a trained language model.
        stream: a text, its words or their token ids `(N,)`.
        counts: occurrences of every word of the vocabulary, `(V,)`.
        layer: index of the layer, counted from zero at the input.
        group: units per group; 23 groups of 50 in the paper.
        timescales: timescales of the units, by which they are grouped; None for those of the biases.
        bounds: least number of occurrences in every bin except the last.
        chunk: words run at a time.
        variants: batch rows; None for as many as memory allows.
    """
    own = timescales_of(numbered_layer(model, layer), timescales)
    groups = groups_of_units(own, group)
    kept = torch.ones(len(groups.units) + 1, len(own), dtype=torch.bool)  # the first row is the intact model
    for row, units in zip(kept[1:], groups.units, strict=True):
        row[torch.from_numpy(units)] = False
    losses = losses_without(model, stream, kept, layer=layer, chunk=chunk, variants=variants)
    targets = tokens_of(stream, model.words, model.vocabulary)[1:].numpy()
    sums, tokens = binned_sums(losses, bins_of(counts, bounds, targets), len(bounds) + 1)
    found = perplexity(sums, tokens)
    return Routing(
        layer=layer,
        groups=groups,
        columns=columns(bounds),
        tokens=tokens,
        intact=found[0],
        perplexity=found[1:],
        ratio=found[1:] / found[0],
    )


def losses_without(
    model: LanguageModel,
    stream: Text,
    kept: Tensor,
    *,
    layer: int = 1,
    chunk: int = 70,
    variants: int | None = None,
) -> Numbers:
    """-log p of every word except the first, by a model with some units of a layer ablated, `(G, N - 1)`.

    Args:
        model: a language model.
        stream: a text, its words or their token ids `(N,)`.
        kept: `(G, H)`, the units of each of G variants that still reach the next layer.
        layer: index of the layer, counted from zero at the input.
        chunk: words run at a time; the state is carried from one to the next.
        variants: batch rows; None for as many as memory allows.
    """
    units = numbered_layer(model, layer).output_size
    if kept.dim() != 2 or kept.shape[1] != units or not len(kept):
        raise ValueError(f"expected kept to be a mask of shape (variants, {units}), got {tuple(kept.shape)}")
    if variants is None:
        # The logits of all words, their exponentials, and a reserve.
        bytes_each = 4 * 3 * chunk * model.words
        variants = max(1, (MEMORY_ON_CPU if model.device.type == "cpu" else MEMORY) // bytes_each)
    if chunk < 1 or variants < 1:
        raise ValueError(f"expected chunks of at least one word and one variant, got {chunk} and {variants}")
    tokens = tokens_of(stream, model.words, model.vocabulary).to(model.device)
    if len(tokens) < 2:
        raise ValueError(f"expected a text of at least two words, got {len(tokens)}")
    parts = []
    with evaluating(model):
        for start in range(0, len(kept), variants):
            with silent(model, layer, kept[start : start + variants]):
                parts.append(_losses(model, tokens, chunk))
    return numpy.concatenate(parts)


@contextmanager
def silent(model: LanguageModel, layer: int, kept: Tensor) -> Iterator[None]:
    """A context in which some units of a layer do not reach the next one.

    Up to that layer all variants are equal. So one text, `(T, 1)`, becomes a batch of G rows only there, and the logits
    are `(T, G, V)`; an input batch of G rows works as well. The state of the layers below then has one row, that of the
    layers above has G.

    Args:
        model: a language model.
        layer: index of the layer, counted from zero at the input.
        kept: `(G, H)`, the units that every batch row keeps.
    """
    kept = kept.to(model.device, torch.bool)
    called = False

    def hook(_: nn.Module, inputs: Any, result: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
        nonlocal called
        called = True
        output, state = result
        return torch.where(kept, output, 0), state  # its own recurrence is unchanged

    handle = numbered_layer(model, layer).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
    assert called, "the model ran without calling its layers"


def _losses(model: LanguageModel, tokens: Tensor, chunk: int) -> Numbers:
    """Losses of the words `(N,)` as `(G, N - 1)`, for the G rows that the model makes of one text."""
    losses = []
    state = None
    for start in range(0, len(tokens) - 1, chunk):
        targets = tokens[start + 1 : start + 1 + chunk].unsqueeze(1)
        scores, state = model(tokens[start : start + len(targets)].unsqueeze(1), state)
        rows = scores.shape[1]
        scores = scores.to(wide(scores.dtype)).flatten(0, 1)
        losses.append(cross_entropy(scores, targets.expand(-1, rows).flatten(), reduction="none").view(-1, rows))
    return numbers(torch.cat(losses).T)
