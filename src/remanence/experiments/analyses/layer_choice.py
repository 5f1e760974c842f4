"""Perplexity over timescales that are set in one layer or another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import timescales
from ...models import LanguageModel
from ...table import Table
from ...timescales import InverseGamma
from .perplexities import best, cells, of_runs
from .trained import Findings, Trained
from .words import corpus_of, is_assigned, language_model, median, rounded
from .words import layer as layer_of


def layer_choice(runs: Sequence[Trained], *, reference: str | None = None) -> Findings:
    """Perplexity of models that differ in the timescales of their layers. Validation decides, test is reported.

    The data, by corpus:

        reference   the model from which others differ
        best        the model with the lowest mean perplexity in validation
        models      model -> {layers: for every layer {words: what was set, median: timescale from the biases, None
                    where nothing was set}, validation: by seed, validation_mean, test: by seed, test_mean}
        by_layer    for every layer {layer, models: those that differ from the reference in this layer alone, and the
                    reference, spread: largest less smallest mean perplexity in validation among them, None for one,
                    best: the one with the lowest}

    Args:
        runs: models of words.
        reference: a name; None, or one that is not there, for the first model.
    """
    groups: dict[str, dict[str, list[Trained]]] = {}
    for run in runs:
        groups.setdefault(corpus_of(run).name, {}).setdefault(run.model_name, []).append(run)
    data: dict[str, Any] = {}
    tables = []
    for corpus, models in groups.items():
        found = {
            name: {"layers": layers_of(language_model(group[0])), **of_runs(group)} for name, group in models.items()
        }
        base = reference if reference in found else next(iter(found))
        decided = best(found)
        by_layer = [one_layer(found, base, place) for place in range(len(found[base]["layers"]))]
        data[corpus] = {"reference": base, "best": decided, "models": found, "by_layer": by_layer}
        layers = [f"layer {place + 1}" for place in range(len(by_layer))]
        rows = [
            (name, *(own["words"] for own in one["layers"]), *cells(one), "best" if name == decided else "")
            for name, one in found.items()
        ]
        headings = ("model", *layers, "seeds", "validation", "test", "")
        title = f"perplexity by timescales of the layers, {corpus}; validation decides"
        tables.append(Table(title, headings, rows, words=1 + len(layers), text=1))
        rows = [
            (
                str(one["layer"]),
                ", ".join(one["models"]),
                "-" if one["spread"] is None else f"{one['spread']:.2f}",
                one["best"] or "-",
            )
            for one in by_layer
        ]
        headings = ("layer", "models", "spread of validation perplexity", "best")
        title = f"models that differ from {base} in one layer alone, {corpus}"
        tables.append(Table(title, headings, rows, words=2, text=1))
    return Findings(data, tables)


def layers_of(model: LanguageModel) -> list[dict[str, Any]]:
    """What was set in every layer."""
    every = timescales.of(model)
    return [
        {"words": in_words(model, place), "median": rounded(median(own)) if is_assigned(model, place) else None}
        for place, own in enumerate(every, 1)
    ]


def in_words(model: LanguageModel, number: int) -> str:
    """What was set in a layer, counted from one."""
    given = layer_of(model, number).timescales[0]
    if given is None:
        return "learned"
    if isinstance(given, InverseGamma):
        words = f"inverse gamma {given.alpha:g}"
    else:
        own = timescales.of(model)[number - 1]
        values = torch.unique((own * 1000).round() / 1000).tolist()
        words = " and ".join(f"{value:g}" for value in values) if len(values) < 4 else repr(given)
    return words if given.freeze else f"{words} at the start"


def one_layer(found: Mapping[str, Mapping[str, Any]], base: str, place: int) -> dict[str, Any]:
    """The models that differ from one in a layer alone, and what that makes."""

    def others(name: str) -> list[str]:
        return [own["words"] for at, own in enumerate(found[name]["layers"]) if at != place]

    alike = [name for name in found if name == base or others(name) == others(base)]
    alike = [name for name in alike if name == base or found[name]["layers"] != found[base]["layers"]]
    means = [found[name]["validation_mean"] for name in alike if found[name]["validation_mean"] is not None]
    return {
        "layer": place + 1,
        "models": alike,
        "spread": max(means) - min(means) if len(means) > 1 else None,
        "best": best({name: found[name] for name in alike}),
    }
