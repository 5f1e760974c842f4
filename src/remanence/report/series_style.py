"""Markers and dashes of series, in matplotlib's words."""

from __future__ import annotations

from typing import Any

from .figure import Series
from .look import MARKERS


def dashes(series: Series) -> Any:
    """Dashes for what is derived, fitted or published."""
    return (0, (4, 1.6)) if series.dashed else "-"


def marker_of(series: Series, places: dict[str, int]) -> str | None:
    """Every colour has its marker, also on lines, for print in grey. Lines of a scale have none."""
    if series.shade is not None:
        return None if series.mark == "line" else "o"
    if series.dashed and series.mark == "line":
        return None
    return MARKERS[places[series.like or series.name] % len(MARKERS)]


def seldom(points: int, place: int) -> tuple[int, int]:
    """Where on a line markers stand: a few, at other places for every colour."""
    every = max(1, points // 6)
    return place * every // len(MARKERS), every
