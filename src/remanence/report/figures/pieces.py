"""Parts that figures of analyses share: data by need, model and seed, and means over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..figure import Figure, Panel
from ..files import ResultFiles

Rows = Sequence[Sequence[float | None]]


def figure(
    files: ResultFiles, statement: str, panels: Sequence[Panel], *, name: str = "", columns: int = 2, note: str = ""
) -> Figure:
    """A figure of an analysis; with a name where it has several."""
    if not panels:
        raise files.nothing()
    return Figure(
        id=f"{files.id}#{name}" if name else files.id,
        title=f"{files.title} ({files.place})",
        panels=panels,
        statement=statement,
        made_from=(f"{files.place}/result.json",),
        columns=columns,
        note=note,
    )


def each_model(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str, list[Any]]]:
    """Need, model, and what was found of each of its seeds."""
    for need, models in found.items():
        for name, seeds in models.items():
            yield need, name, list(seeds.values())


def mean_rows(seeds: Sequence[Rows]) -> list[list[float]]:
    """The mean over seeds of matrices of numbers; a gap where one has none."""
    return [[mean(cell) for cell in zip(*rows, strict=True)] for rows in zip(*seeds, strict=True)]


def mean(values: Sequence[float | None]) -> float:
    """Not a number where one is missing."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else math.nan


def seeds_in_words(seeds: int) -> str:
    """Says that lines are means, where they are."""
    return f"Means over {seeds} seeds." if seeds > 1 else ""


def few(count: int, most: int) -> list[int]:
    """At most so many of the numbers from 0 on, spread evenly, both ends among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})


def short(number: float | None) -> str:
    """A timescale as a label: three digits, thousands with a K, two digits after the point below 1."""
    if number is None:
        return "∞"
    return f"{number / 1000:.3g}K" if number >= 1000 else f"{number:.3g}" if number >= 1 else f"{number:.2f}"
