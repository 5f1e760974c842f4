"""Figures as plain data, drawn with matplotlib for files and with plotly for the HTML page.

Functions of `report.figures` make figures from result files; `report.look` defines the style of all figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Numbers = Sequence[float]
Mark = Literal["line", "points", "line and points", "bars", "area"]


@dataclass(frozen=True)
class Series:
    """One named series of x and y values."""

    name: str
    """Name in the legend; the same name has the same colour in all panels."""
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    """With `high`: a band around the line, or error bars at points and bars."""
    high: Numbers | None = None
    mark: Mark = "line"
    dashed: bool = False
    """For derived, fitted or published values next to measured ones."""
    like: str | None = None
    """Use the colour of the series of this name, without a legend entry."""
    faint: bool = False
    """One of several that belong together, such as a single seed: a thin line without a legend entry."""
    shade: float | None = None
    """Position from 0 to 1 on a colour scale, if the series are steps of one quantity."""


@dataclass(frozen=True)
class Reference:
    """A thin labelled line across a panel, such as chance level, the signal or a published value."""

    at: float
    words: str
    axis: Literal["x", "y"] = "y"
    """"y": a horizontal line. "x": a vertical line."""


@dataclass(frozen=True)
class Heat:
    """A heat map, rows from top to bottom."""

    values: Sequence[Numbers]
    """`(rows, columns)`."""
    name: str
    """Label of the colour bar."""
    low: float | None = None
    high: float | None = None
    x: Numbers | None = None
    """Positions of the columns; 0, 1, ... if None."""
    rows: Sequence[str] | None = None
    """Labels of the rows; empty ones are not shown."""
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class Axis:
    """One axis of a panel."""

    title: str
    """With its unit: "delay (steps)"."""
    log: bool = False
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    """Positions and labels of the ticks, instead of numbers."""


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
    """A reproduced figure of a paper."""

    id: str
    """Id of the experiment, "plstm/copy-200", followed by "#name" if the experiment has several figures."""
    title: str
    panels: Sequence[Panel]
    statement: str
    """The published claim."""
    made_from: Sequence[str] = field(default_factory=tuple)
    """Folders and files it was made from, relative to the results folder."""
    columns: int = 3
    """Panels per row on a wide page."""
    note: str = ""
    """Note below the panels."""
