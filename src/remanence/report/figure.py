"""What a figure shows, as plain data: drawn by `matplotlib` for files and by `plotly` for the page.

A figure is made from result files by a function of `report.figures`; how it looks is decided in one place for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Numbers = Sequence[float]
Mark = Literal["line", "points", "line and points", "bars", "area"]


@dataclass(frozen=True)
class Series:
    """Numbers against numbers, under one name."""

    name: str
    """In the legend; the same name has the same colour in all panels."""
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    """With `high`: a band around the line, or error bars at points and bars."""
    high: Numbers | None = None
    mark: Mark = "line"
    dashed: bool = False
    """For what is derived, fitted or published beside what was measured."""
    like: str | None = None
    """Drawn in the colour of the series of this name, and not in the legend."""
    faint: bool = False
    """One of several that belong together, such as a single seed: thin, and not in the legend."""
    shade: float | None = None
    """Where the series are steps of one quantity: a place from 0 to 1 on a scale of colours."""


@dataclass(frozen=True)
class Reference:
    """A thin line across a panel with a word or two at it: chance, the signal, a published level."""

    at: float
    words: str
    axis: Literal["x", "y"] = "y"
    """"y": a level, drawn from left to right. "x": a place, drawn from bottom to top."""


@dataclass(frozen=True)
class Heat:
    """A matrix of colours: rows from top to bottom."""

    values: Sequence[Numbers]
    """`(rows, columns)`."""
    name: str
    """What a colour means."""
    low: float | None = None
    high: float | None = None
    x: Numbers | None = None
    """Where the columns are; counted from zero where not given."""
    rows: Sequence[str] | None = None
    """A label for every row, or for some: empty ones are not shown."""
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class Axis:
    """One side of a panel."""

    title: str
    """With its unit: "delay (steps)"."""
    log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    """Places and what is written there, where numbers would not do."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes: either series or a heat map."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series] = ()
    heat: Heat | None = None
    references: Sequence[Reference] = ()
    note: str = ""
    """One sentence under the panel."""


@dataclass(frozen=True)
class Figure:
    """One figure of a paper, remade."""

    id: str
    """Of the experiment, "plstm/copy-200", with "#name" behind it where an experiment has several."""
    title: str
    panels: Sequence[Panel]
    statement: str
    """What was published."""
    made_from: Sequence[str] = field(default_factory=tuple)
    """Folders and files, relative to the folder of results."""
    columns: int = 3
    """Panels side by side on a wide page."""
    note: str = ""
    """How to read all panels, under them."""
