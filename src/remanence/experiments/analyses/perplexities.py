"""Perplexities of language models whose timescales were set in different ways."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import timescales
from ...models import LanguageModel
from ...table import Table, mean_and_std
from ...timescales import InverseGamma
from .trained import Findings, Trained
from .words import corpus_of, is_assigned, language_model, median, rounded, steps
from .words import layer as layer_of


def perplexity(scores: Mapping[str, Any] | None) -> float | None:
    """Perplexity from the scores of a split; None if it is missing or not finite."""
    if not scores:
        return None
    value = scores.get("perplexity")
    if value is None and scores.get("loss") is not None:
        value = math.exp(min(scores["loss"], 700.0))  # larger values overflow
    return None if value is None or not math.isfinite(value) else float(value)


def of_runs(runs: Sequence[Trained]) -> dict[str, Any]:
    """Perplexities of the seeds of one model: {validation, test: by seed; validation_mean, test_mean}."""
    found: dict[str, Any] = {
        split: {str(run.seed): perplexity(run.result.get(part)) for run in runs}
        for split, part in (("validation", "best"), ("test", "test"))
    }
    return found | {f"{split}_mean": mean(found[split].values()) for split in ("validation", "test")}


def mean(values: Any) -> float | None:
    """Mean of the values that are not None."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else None


def cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Number of seeds, validation and test perplexity, for a table."""
    there = [[value for value in found[split].values() if value is not None] for split in ("validation", "test")]
    return str(len(found["validation"])), *(mean_and_std(values, 2) for values in there)


def best(found: Mapping[Any, Mapping[str, Any]]) -> Any:
    """The key with the lowest mean validation perplexity, or None."""
    there = {key: one["validation_mean"] for key, one in found.items() if one["validation_mean"] is not None}
    return min(there, key=lambda key: there[key]) if there else None


def shape_sweep(runs: Sequence[Trained], *, layer: int = 2) -> Findings:
    """Perplexity of models by the shape of the timescale distribution of a layer. Validation selects, test is reported.

    The shape is read from the models, so that they may have any names. The data, by corpus:

        layer    number of the layer, from 1
        best     the shape with the lowest mean validation perplexity
        shapes   list, by increasing shape, of {alpha, model: its name, timescales: assigned, long to short, (H),
                 validation: by seed, validation_mean, test: by seed, test_mean}

    Args:
        runs: word-level language models with inverse gamma timescales in that layer; others are refused.
        layer: number of the layer, from 1 at the input.
    """
    groups: dict[str, dict[float, list[Trained]]] = {}
    assigned: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        corpus, model = corpus_of(run).name, language_model(run)
        alpha = shape_of(run, model, layer)
        groups.setdefault(corpus, {}).setdefault(alpha, []).append(run)
        own = timescales.of(model)[layer - 1].sort(descending=True).values
        assigned.setdefault((corpus, alpha), rounded(own.tolist()))
    data: dict[str, Any] = {}
    tables = []
    for corpus, shapes in groups.items():
        found = {alpha: of_runs(shapes[alpha]) for alpha in sorted(shapes)}
        decided = best(found)
        data[corpus] = {
            "layer": layer,
            "best": decided,
            "shapes": [
                {
                    "alpha": alpha,
                    "model": shapes[alpha][0].model_name,
                    "timescales": assigned[corpus, alpha],
                    **one,
                }
                for alpha, one in found.items()
            ],
        }
        rows = [
            (f"{alpha:g}", steps(assigned[corpus, alpha][0]), *cells(one), "best" if alpha == decided else "")
            for alpha, one in found.items()
        ]
        headings = ("alpha", "longest timescale", "seeds", "validation", "test", "")
        title = f"perplexity by shape of the timescales of layer {layer}, {corpus}; validation decides"
        tables.append(Table(title, headings, rows, words=0, text=1))
    return Findings(data, tables)


def shape_of(run: Trained, model: LanguageModel, number: int) -> float:
    """The shape alpha of the timescales assigned to a layer."""
    given = layer_of(model, number).timescales[0]
    if not isinstance(given, InverseGamma):
        raise ValueError(f"expected inverse gamma timescales in layer {number} of {run.model_name!r}, got {given!r}")
    return float(given.alpha)


def layer_choice(runs: Sequence[Trained], *, reference: str | None = None) -> Findings:
    """Perplexity of models that differ in the timescales of their layers. Validation selects, test is reported.

    The data, by corpus:

        reference   the model from which others differ
        best        the model with the lowest mean validation perplexity
        models      model -> {layers: per layer {words: assigned timescales, median: timescale from the biases, None
                    if none were assigned}, validation: by seed, validation_mean, test: by seed, test_mean}
        by_layer    per layer {layer, models: the reference and those that differ from it only in this layer, spread:
                    largest minus smallest mean validation perplexity among them, None for a single model, best: the
                    model with the lowest}

    Args:
        runs: word-level language models.
        reference: name of a model; None, or an unknown name, for the first model.
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
    """The timescales assigned to every layer."""
    every = timescales.of(model)
    return [
        {"words": in_words(model, place), "median": rounded(median(own)) if is_assigned(model, place) else None}
        for place, own in enumerate(every, 1)
    ]


def in_words(model: LanguageModel, number: int) -> str:
    """The timescales assigned to a layer (counted from 1), in words."""
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
    """The models that differ from the reference only in one layer, and the effect on the perplexity."""

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
