"""Style of figures, in files and on the page: colours, markers and line styles of series.

The colours are those of Okabe & Ito with slightly more contrast: distinct with every kind of colour vision. Markers
differ too, for greyscale print.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..names import lookup
from .figure import Figure, Series

Theme = Literal["light", "dark"]


@dataclass(frozen=True)
class Look:
    """The colours of a theme."""

    paper: str
    """Background."""
    ink: str
    """Text and axes."""
    quiet: str
    """Notes and reference lines."""
    grid: str
    colours: tuple[str, ...]
    """Colours of the series, in order."""
    shades: tuple[str, ...]
    """Colour scale from 0 to 1, visible on the background everywhere."""


KNOWN: dict[str, Look] = {
    "light": Look(
        paper="#FFFFFF",
        ink="#222222",
        quiet="#5F5F5F",
        grid="#E2E2E2",
        colours=("#C24A00", "#0064A8", "#009169", "#B0538F", "#D19000", "#222222", "#4FA3D8", "#8A8A8A"),
        shades=("#440154", "#472C7A", "#3B518B", "#2C718E", "#21908D", "#27AD81", "#5CC863"),
    ),
    "dark": Look(
        paper="#15181D",
        ink="#E8E8E8",
        quiet="#A9AEB6",
        grid="#31363E",
        colours=("#F0712C", "#4DAAF0", "#22B98B", "#E694C4", "#F5DC5A", "#F4F4F4", "#A3CDE8", "#9A9A9A"),
        shades=("#6A77C6", "#4F92C4", "#3BA8B8", "#35BFA0", "#6BD172", "#B0DD3F", "#FDE725"),
    ),
}
SCALE = "cividis"
"""Colour map of heat maps; looks the same with and without red-green colour blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Matplotlib markers, one per colour."""

OWNERS: dict[str, int] = {
    **dict.fromkeys(("lstm", "sigmoid", "baseline", "exponential"), 0),
    **dict.fromkeys(("lstm-chrono", "chrono"), 1),
    **dict.fromkeys(("plstm", "fast", "mts", "power law"), 2),
    "softsign": 3,
    "refine": 4,
    "nru": 5,
    "janet": 6,
}
"""Colour index of names that have the same colour in every figure."""


def look_of(theme: str) -> Look:
    """A theme by its name."""
    return lookup("theme", theme, KNOWN)


def places_of(figure: Figure) -> dict[str, int]:
    """Colour index of every name: fixed for names in `OWNERS`, the next free one for others."""
    names = names_of(series for panel in figure.panels for series in panel.series if series.shade is None)
    places: dict[str, int] = {}
    for name in names:
        if name in OWNERS and OWNERS[name] not in places.values():
            places[name] = OWNERS[name]
    count = len(KNOWN["light"].colours)
    free = [place for place in range(count) if place not in places.values()] or list(range(count))
    for number, name in enumerate(name for name in names if name not in places):
        places[name] = free[number % len(free)]
    return places


def names_of(series: Iterable[Series]) -> list[str]:
    """Names with their own colour, in order."""
    return list(dict.fromkeys(one.like or one.name for one in series))


def shown_in_legend(figure: Figure) -> list[Series]:
    """The series in the legend, in order."""
    found: dict[str, Series] = {}
    for panel in figure.panels:
        for one in panel.series:
            if one.name and one.like is None and not one.faint:
                found.setdefault(one.name, one)
    return list(found.values())


def colour_of(series: Series, places: dict[str, int], look: Look) -> str:
    """The colour of a series in a theme."""
    if series.shade is not None:
        return shade(series.shade, look.shades)
    return look.colours[places[series.like or series.name]]


def shade(place: float, scale: tuple[str, ...]) -> str:
    """Interpolate a colour scale, "#RRGGBB"."""
    at = min(1.0, max(0.0, place)) * (len(scale) - 1)
    low = min(int(at), len(scale) - 2)
    mixed = (
        round(first + (second - first) * (at - low))
        for first, second in zip(parts(scale[low]), parts(scale[low + 1]), strict=True)
    )
    return "#" + "".join(f"{part:02X}" for part in mixed)


def parts(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#RRGGBB"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ten_to(power: int) -> str:
    """Format a power of ten with superscripts."""
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def dashes(series: Series) -> Any:
    """Matplotlib line style: dashed for derived, fitted or published values."""
    return (0, (4, 1.6)) if series.dashed else "-"


def marker_of(series: Series, places: dict[str, int]) -> str | None:
    """Every colour has its marker, also on lines, for greyscale print. Lines of a colour scale have none."""
    if series.shade is not None:
        return None if series.mark == "line" else "o"
    if series.dashed and series.mark == "line":
        return None
    return MARKERS[places[series.like or series.name] % len(MARKERS)]


def seldom(points: int, place: int) -> tuple[int, int]:
    """Matplotlib `markevery`: a few markers, at different positions for every colour."""
    every = max(1, points // 6)
    return place * every // len(MARKERS), every
