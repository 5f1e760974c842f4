"""Perplexity by word frequency, and whether the difference between two models is significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ... import analysis
from ...analysis.arrays import Numbers
from ...analysis.frequency_bins import BOUNDS, columns
from ...language import Corpus
from ...report.difference import from_zero
from ...table import Table, mean_and_std
from .trained import Findings, Trained, by_need_and_model, number
from .words import Part, corpus_of, language_model, text_of

COUNTINGS = {"train": "the training text", "all": "training, validation and test text"}
"""Texts in which word occurrences are counted: as the paper says, and as its tables were computed."""
Losses = dict[str, dict[int, Numbers]]
"""-log p of every word of the text, by model and seed."""
Binned = dict[str, dict[int, dict[str, analysis.BinnedPerplexity]]]
"""By model, seed and counting."""


def by_frequency(
    runs: Sequence[Trained],
    *,
    reference: str | None = None,
    bounds: Sequence[int] = BOUNDS,
    block: int = 100,
    resamples: int = 10_000,
    seed: int = 0,
    part: Part = "test",
    length: int | None = None,
    chunk: int = 70,
) -> Findings:
    """Perplexity of every run, overall and by word frequency, and a paired bootstrap against a reference.

    The data, by need, with C columns (bins, the most frequent first, and "all") and countings "train" and "all":

        corpus, part       names
        columns            C names
        tokens             counting -> number of words of the text per column (C)
        models             model -> seed -> counting -> {columns, tokens, perplexity (C), bits}
        over_seeds         model -> counting -> {mean (C), std (C), standard_error (C)}; the last two None for one seed
        left_out           runs with a non-finite loss anywhere in the text
        reference          the model that others are compared with
        comparisons        list of {model, seed, counting -> PairedBootstrap: difference, mean, std, low, high (95 %),
                           low_999, high_999, significant, first, second, each (C), and blocks, block, left_out,
                           resamples, seed}, where first is the reference: positive differences are in favour of model

    Args:
        runs: word-level language models.
        reference: the model that others are compared with, seed by seed; None, or an unknown name, for the first.
        bounds: minimum number of occurrences in every bin but the last.
        block: words per block of the bootstrap.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
        part: split of the corpus.
        length: use only the first `length` words; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for need, models in by_need_and_model(runs).items():
        corpus = one_corpus(need, models)
        text = text_of(corpus, part, length)
        targets = text[1:].numpy()
        losses = {
            name: {run.seed: language_model(run).token_losses(text, chunk=chunk).double().numpy() for run in group}
            for name, group in models.items()
        }
        losses, left_out = finite(losses)
        if not losses:
            raise ValueError(f"expected models with finite losses in {need}, got none")
        found: Binned = {
            name: {
                own: analysis.both_countings(values, targets, corpus, bounds=bounds) for own, values in seeds.items()
            }
            for name, seeds in losses.items()
        }
        against = reference if reference in losses else next(iter(losses))
        compared = comparisons(
            losses, against, targets, corpus, bounds=bounds, block=block, resamples=resamples, seed=seed
        )
        data[need] = {
            "corpus": corpus.name,
            "part": part,
            "columns": list(columns(bounds)),
            "tokens": {counting: tokens(found, counting) for counting in COUNTINGS},
            "models": plain(found),
            "over_seeds": over_all_seeds(plain(found)),
            "left_out": left_out,
            "reference": against,
            "comparisons": [
                {"model": name, "seed": own, **{counting: one.plain() for counting, one in results.items()}}
                for name, own, results in compared
            ],
        }
    return Findings(data, frequency_tables(data))


def frequency_tables(data: Mapping[str, Any]) -> list[Table]:
    """For every need and counting a table of perplexities, and one of differences if models were compared."""
    tables = []
    for need, found in data.items():
        for counting in COUNTINGS:
            tables.append(perplexities(f"perplexity, {need}, {found['part']} words", found, counting))
            if found["comparisons"]:
                tables.append(differences(f"difference of perplexity, {need}", found, counting))
    return tables


def finite(losses: Losses) -> tuple[Losses, list[str]]:
    """The runs whose losses are all finite, and the names of the others."""
    good = {
        name: {seed: values for seed, values in seeds.items() if numpy.isfinite(values).all()}
        for name, seeds in losses.items()
    }
    bad = [f"{name} seed {seed}" for name, seeds in losses.items() for seed in seeds if seed not in good[name]]
    return {name: seeds for name, seeds in good.items() if seeds}, bad


def one_corpus(need: str, models: Mapping[str, Sequence[Trained]]) -> Corpus:
    """The corpus that all compared models share."""
    every = [run for group in models.values() for run in group]
    tasks = {run.task for run in every}
    texts = {(getattr(task, "corpus", None), getattr(task, "markov", None)) for task in tasks}
    if len(texts) > 1:
        raise ValueError(f"expected models of one corpus to compare in {need}, got {len(texts)} corpora")
    return corpus_of(every[0])


def comparisons(
    losses: Losses, reference: str, targets: Any, corpus: Corpus, **options: Any
) -> list[tuple[str, int, dict[str, analysis.PairedBootstrap]]]:
    """Compare every other model with the reference of the same seed: model, seed, and the bootstrap by counting."""
    return [
        (
            name,
            seed,
            {
                counting: analysis.paired_bootstrap(
                    losses[reference][seed],
                    values,
                    targets,
                    corpus.counts(counting),  # type: ignore[arg-type]
                    **options,
                )
                for counting in COUNTINGS
            },
        )
        for name, seeds in losses.items()
        if name != reference
        for seed, values in seeds.items()
        if seed in losses[reference]
    ]


def tokens(found: Binned, counting: str) -> list[int]:
    """Number of words in every column, the same for all models."""
    first = next(iter(next(iter(found.values())).values()))
    numbers: list[int] = first[counting].tokens.tolist()
    return numbers


def plain(found: Binned) -> dict[str, Any]:
    """For the result file."""
    return {
        name: {
            str(seed): {counting: one.plain() for counting, one in countings.items()}
            for seed, countings in seeds.items()
        }
        for name, seeds in found.items()
    }


def over_all_seeds(models: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics over the seeds of every model, by counting."""
    return {name: {counting: over_seeds(seeds, counting) for counting in COUNTINGS} for name, seeds in models.items()}


def every_seed(seeds: Mapping[str, Any], counting: str) -> Numbers:
    """Perplexities of the seeds of a model, `(seeds, C)`."""
    return numpy.array([countings[counting]["perplexity"] for countings in seeds.values()], dtype=numpy.float64)


def over_seeds(seeds: Mapping[str, Any], counting: str) -> dict[str, Any]:
    """Mean, sample standard deviation, and standard error of the mean, in every column."""
    every = every_seed(seeds, counting)
    several = len(every) > 1
    std = every.std(0, ddof=1) if several else None
    return {
        "mean": analysis.as_plain(every.mean(0)),
        "std": analysis.as_plain(std),
        "standard_error": analysis.as_plain(None if std is None else std / len(every) ** 0.5),
    }


def perplexities(title: str, found: Mapping[str, Any], counting: str) -> Table:
    """One row per model."""
    rows = []
    for name, seeds in found["models"].items():
        columns_of_model = every_seed(seeds, counting).T
        rows.append((name, str(len(seeds)), *(mean_and_std(column.tolist(), 2) for column in columns_of_model)))
    words = ", ".join(
        f"{count:,} {name}" for name, count in zip(found["columns"], found["tokens"][counting], strict=True)
    )
    title = f"{title}, by occurrences of the word in {COUNTINGS[counting]}"
    notes = [f"Words: {words}."]
    if found["left_out"]:
        notes.append(f"Left out because a loss is not finite: {', '.join(found['left_out'])}.")
    return Table(title, ("model", "seeds", *found["columns"]), rows, notes=notes)


def differences(title: str, found: Mapping[str, Any], counting: str) -> Table:
    """Three rows per pair of models: the difference and two intervals."""
    reference, rows = found["reference"], []
    for compared in found["comparisons"]:
        one = compared[counting]
        who = f"{reference} - {compared['model']}", str(compared["seed"])
        rows.append((*who, "difference", *(f"{number(value):.2f}" for value in one["difference"])))
        rows.append((*who, "95 % interval", *(map(interval, one["low"], one["high"]))))
        rows.append((*who, "99.9 % interval", *(map(interval, one["low_999"], one["high_999"]))))
    by_model: dict[str, list[Sequence[float | None]]] = {}
    for compared in found["comparisons"]:
        by_model.setdefault(compared["model"], []).append(compared[counting]["difference"])
    several = {model: seeds for model, seeds in by_model.items() if len(seeds) > 1}
    for model, seeds in several.items():
        rows += mean_differences(f"{reference} - {model}", seeds)
    every = [compared[counting] for compared in found["comparisons"]]
    first = every[0]
    better = [
        f"{column}: {sum(one['significant'][at] and one['difference'][at] > 0 for one in every)} of {len(every)}"
        for at, column in enumerate(first["columns"])
    ]
    notes = [
        f"Paired bootstrap over {first['blocks']} blocks of {first['block']} words, {first['resamples']:,} resamples; "
        f"positive: {reference} is worse.",
        f"Lower than {reference}, with a 95 % interval above zero: {'; '.join(better)}.",
    ]
    if several:
        notes.append("Intervals over seeds: t test of the differences between models of one seed.")
    headings = ("models", "seed", "", *first["columns"])
    title = f"{title}, by occurrences in {COUNTINGS[counting]}"
    return Table(title, headings, rows, words=3, notes=notes)


def mean_differences(models: str, seeds: Sequence[Sequence[float | None]]) -> list[tuple[str, ...]]:
    """Two rows: the mean over seeds of a paired difference in every column, and its interval from their spread."""
    means = [from_zero([number(value) for value in column]) for column in zip(*seeds, strict=True)]
    who = models, f"{len(seeds)} seeds"
    return [
        (*who, "mean difference", *(f"{one.value:.2f}" for one in means)),
        (*who, "95 % interval over seeds", *(interval(one.low, one.high) for one in means)),
    ]


def interval(low: float | None, high: float | None) -> str:
    """Format an interval."""
    return f"[{number(low):.2f}, {number(high):.2f}]"
