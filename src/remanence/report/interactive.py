"""Figures as plotly traces and layouts (plain data). The page sets the colours, because its theme can be switched."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from importlib.resources import files as resources
from typing import Any

from .figure import Axis, Figure, Heat, Numbers, Panel, Reference, Series
from .look import KNOWN as THEMES
from .look import MARKERS, SCALE, colour_of, places_of, shown_in_legend
from .panels import gaps, spacing

MOST = 400
"""Maximum points of a series, and rows or columns of a heat map: enough for a screen, and the page stays small."""
FAINT = 150
"""Maximum points of a faint series."""
WORDS = 20
"""Maximum characters to reserve next to a panel: a phone has no space for more."""
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "*": "star",
}
"""Plotly names of matplotlib markers."""
MODES = {"line": "lines", "area": "lines", "points": "markers", "line and points": "lines+markers"}
Spec = dict[str, Any]


def library() -> str | None:
    """The plotly.js library, None if plotly is not installed."""
    try:
        return (resources("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")
    except (ImportError, OSError):
        return None


def interactive(figure: Figure) -> Spec:
    """Convert a figure to plain data for plotly.

    Returns:
        `legend`: name, colour by theme and dash style of every entry; `panels`: plotly traces and layout without
        colours: a trace has those of both themes in its `meta`.
    """
    places = places_of(figure)
    legend = [
        {"name": one.name, "colours": colours_of(one, places), "dashed": one.dashed} for one in shown_in_legend(figure)
    ]
    return {"legend": legend, "panels": [panel_spec(panel, places) for panel in figure.panels]}


def panel_spec(panel: Panel, places: dict[str, int]) -> Spec:
    """One pair of axes."""
    if panel.heat is not None:
        traces = [heat_trace(panel.heat, panel.x, panel.y)]
    else:
        # Bands first, so that they do not cover lines.
        traces = [band for one in panel.series if (band := band_trace(one, places)) is not None]
        traces += [series_trace(one, panel, places) for one in panel.series]
    layout: Spec = {
        "xaxis": axis_spec(panel.x),
        "yaxis": axis_spec(panel.y),
        "shapes": [reference_shape(one) for one in panel.references],
        "annotations": [reference_words(one, panel) for one in panel.references],
        "margin": margin(panel),
        "barmode": "overlay",
    }
    if panel.heat is not None:
        layout["yaxis"] |= heat_rows(panel.heat)
        if panel.heat.columns is not None:
            layout["xaxis"] |= labels(panel.heat.columns, panel.heat.x or range(len(panel.heat.columns)))
    return {"data": traces, "layout": layout}


def axis_spec(axis: Axis) -> Spec:
    """An axis; a bound that is None follows the data."""
    spec: Spec = {"title": {"text": plain_text(axis.title)}, "type": "log" if axis.log else "linear"}
    low, high = (None if bound is None else math.log10(bound) if axis.log else bound for bound in (axis.low, axis.high))
    if low is not None and high is not None:
        spec["range"] = [low, high]
    elif low is not None or high is not None:  # a range with one end is lost when the window is resized
        spec["autorangeoptions"] = {"maxallowed": high} if low is None else {"minallowed": low}
    if axis.ticks is not None:
        spec["tickvals"] = [number(place) for place, _ in axis.ticks]
        spec["ticktext"] = [plain_text(words) for _, words in axis.ticks]
    return spec


def series_trace(series: Series, panel: Panel, places: dict[str, int]) -> Spec:
    """The trace of a series."""
    kept = thinned(len(series.x), FAINT if series.faint else MOST)
    trace: Spec = {
        "type": "bar" if series.mark == "bars" else "scatter",
        "name": plain_text(series.name or series.like or ""),
        "x": numbers(series.x, kept, panel.x.log),
        "y": numbers(series.y, kept, panel.y.log),
        "meta": {"series": series.like or series.name, "colours": colours_of(series, places)},
        "hovertemplate": hover(series, panel),
        "showlegend": False,
    }
    if series.mark == "bars":
        trace["width"] = 0.92 * spacing([one for one in panel.series if one.mark == "bars"])
    else:
        trace["mode"] = MODES[series.mark]
        trace["line"] = {"width": 1 if series.faint else 2, "dash": "dash" if series.dashed else "solid"}
        trace["opacity"] = 0.45 if series.faint else 1
        trace["marker"] = {"size": 5 if series.faint else 7, "symbol": symbol(series, places)}
        if series.mark == "area":
            trace["fill"] = "tozeroy"
    if series.low is not None and series.high is not None and not has_band(series):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": numbers(apart(series.high, series.y), kept),
            "arrayminus": numbers(apart(series.y, series.low), kept),
            "thickness": 1.2,
            "width": 4,
        }
    return trace


def apart(upper: Numbers, lower: Numbers) -> list[float]:
    """Lengths of error bars."""
    return [max(0.0, high - low) for high, low in zip(gaps(upper), gaps(lower), strict=True)]


def has_band(series: Series) -> bool:
    """Whether low and high are drawn as a band and not as error bars."""
    return series.low is not None and series.high is not None and series.mark == "line" and not series.faint


def band_trace(series: Series, places: dict[str, int]) -> Spec | None:
    """The band around a line."""
    if not has_band(series):
        return None
    assert series.low is not None
    assert series.high is not None
    low, high = gaps(series.low), gaps(series.high)
    kept = [index for index in thinned(len(series.x)) if math.isfinite(low[index]) and math.isfinite(high[index])]
    there, back = numbers(series.x, kept), numbers(series.x, kept[::-1])
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*there, *back],
        "y": [*numbers(high, kept), *numbers(low, kept[::-1])],
        "fill": "toself",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": {"series": series.like or series.name, "colours": colours_of(series, places), "band": True},
    }


def heat_trace(heat: Heat, x: Axis, y: Axis) -> Spec:
    """The trace of a heat map."""
    rows = thinned(len(heat.values))
    columns = thinned(len(heat.values[0]) if heat.values else 0)
    words = "<br>".join(
        (
            f"{plain_text(x.title)}: %{{x}}",
            f"{plain_text(y.title)}: %{{y}}",
            f"{plain_text(heat.name)}: %{{z:.4~g}}",
        )
    )
    return {
        "type": "heatmap",
        "z": [numbers(heat.values[row], columns) for row in rows],
        "x": numbers(heat.x, columns) if heat.x is not None else columns,
        "y": rows,
        "zmin": heat.low,
        "zmax": heat.high,
        "colorscale": SCALE.title(),
        "colorbar": {"title": {"text": plain_text(heat.name), "side": "right"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": words + "<extra></extra>",
    }


def heat_rows(heat: Heat) -> Spec:
    """The vertical axis of a heat map, first row on top."""
    spec: Spec = {"autorange": "reversed"}
    return spec | (labels(heat.rows, range(len(heat.rows))) if heat.rows is not None else {})


def labels(words: Sequence[str], places: Numbers) -> Spec:
    """Ticks with the labels that are not empty."""
    shown = [(place, label) for place, label in zip(places, words, strict=True) if label]
    return {"tickvals": [number(place) for place, _ in shown], "ticktext": [plain_text(label) for _, label in shown]}


def reference_shape(reference: Reference) -> Spec:
    """The line of a reference."""
    along, across = ("x", "y") if reference.axis == "y" else ("y", "x")
    at = number(reference.at)
    ends = {f"{along}0": 0, f"{along}1": 1, f"{across}0": at, f"{across}1": at}
    return {"type": "line", f"{along}ref": f"{along} domain", **ends, "line": {"width": 1, "dash": "dot"}}


def reference_words(reference: Reference, panel: Panel) -> Spec:
    """The label of a reference."""
    level = reference.axis == "y"
    axis = panel.y if level else panel.x
    at = math.log10(reference.at) if axis.log and reference.at > 0 else reference.at
    # Outside the panel, so that it covers nothing.
    place: Spec = {"xref": "x domain", "x": 1.01, "y": at} if level else {"yref": "y domain", "y": 1.01, "x": at}
    anchors = {"xanchor": "left" if level else "center", "yanchor": "middle" if level else "bottom"}
    return {"text": plain_text(reference.words), "showarrow": False, "font": {"size": 11}, **place, **anchors}


def margin(panel: Panel) -> Spec:
    """Margins for the buttons and reference labels; plotly adds those for the axes."""
    right = max((len(one.words) for one in panel.references if one.axis == "y"), default=0)
    top = any(one.axis == "x" for one in panel.references)
    return {"l": 8, "r": 12 + 7 * min(right, WORDS), "t": 48 if top else 32, "b": 8}


def hover(series: Series, panel: Panel) -> str:
    """The hover text of a point."""
    name = series.name or series.like
    head = f"<b>{plain_text(name)}</b><br>" if name else ""
    x, y = plain_text(panel.x.title), plain_text(panel.y.title)
    return f"{head}{x}: %{{x:,.6~g}}<br>{y}: %{{y:.5~g}}<extra></extra>"


def colours_of(series: Series, places: dict[str, int]) -> dict[str, str]:
    """The colour of a series in every theme."""
    return {theme: colour_of(series, places, look) for theme, look in THEMES.items()}


def symbol(series: Series, places: dict[str, int]) -> str:
    """The marker of a series."""
    place = places.get(series.like or series.name, 0)
    return SYMBOLS[MARKERS[place % len(MARKERS)]]


def thinned(count: int, most: int = MOST) -> list[int]:
    """Indices of the points to keep: all, or `most` evenly spaced ones including the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]


def numbers(values: Numbers, kept: Sequence[int], log: bool = False) -> list[float | int | None]:
    """The kept values for JSON; None if a value is not finite or has no logarithm."""
    found = [number(values[index]) for index in kept]
    return [None if log and value is not None and value <= 0 else value for value in found]


def number(value: float | None) -> float | int | None:
    """One value for JSON: integers unchanged, others with six significant digits."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")


def plain_text(words: str) -> str:
    """Escape text for plotly, which interprets some tags as markup and %{...} as a value."""
    return html.escape(words, quote=False).replace("%{", "%\u200b{")
