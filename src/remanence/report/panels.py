"""Draw one panel with matplotlib: series or a heat map, with labels, ticks and reference lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .figure import Axis, Heat, Numbers, Panel, Reference, Series
from .layout import HEIGHT, NORMAL, SMALL, WIDTH, letter, wrapped
from .look import SCALE, Look, colour_of, dashes, marker_of, seldom, ten_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

FEW_DECADES, MANY_DECADES = 2.2, 6
MANY_POINTS = 150
"""With more points than this, markers are small."""


def draw_panel(axes: Axes, panel: Panel, places: dict[str, int], look: Look) -> None:
    """Draw one panel."""
    if panel.title:
        above = any(one.axis == "x" for one in panel.references)  # its label is between title and panel
        axes.set_title(wrapped(panel.title, 0.85 * WIDTH, NORMAL), loc="left", pad=18 if above else None)
    if panel.heat is not None:
        draw_heat(axes, panel.heat, look)
    else:
        axes.grid()
    for one in panel.series:
        draw_series(axes, one, places, look, panel.series)
    set_axis(axes, "x", panel.x, [one.x for one in panel.series])
    set_axis(axes, "y", panel.y, [one.y for one in panel.series])
    for reference in panel.references:
        draw_reference(axes, reference, look, panel.heat is not None)
    if panel.note:
        axes.annotate(
            wrapped(panel.note, 0.8 * WIDTH, SMALL),
            (0.5, 0),
            (0, -3),
            xycoords=axes.xaxis.label,
            textcoords="offset points",
            ha="center",
            va="top",
            size=SMALL,
            color=look.quiet,
        )


def draw_series(axes: Axes, series: Series, places: dict[str, int], look: Look, others: Sequence[Series]) -> None:
    """Draw one series in its colour."""
    colour = colour_of(series, places, look)
    x, y = gaps(series.x), gaps(series.y)
    band = None if series.low is None or series.high is None else (gaps(series.low), gaps(series.high))
    if series.faint:
        point = "." if len(x) == 1 else None  # a line of one point is not seen
        axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.45, linestyle=dashes(series), marker=point)
        return
    if series.mark == "bars":
        axes.bar(x, y, width=0.92 * spacing(others), color=colour, yerr=around(y, band), ecolor=look.ink, capsize=3)
        return
    if series.mark == "area":
        axes.fill_between(x, y, color=colour, alpha=0.5, linewidth=0)
        return
    if band is not None and series.mark == "line":
        axes.fill_between(x, *band, color=colour, alpha=0.18, linewidth=0)
    points = series.mark != "line"
    # If points are data in this panel, lines have no markers.
    marker = None if not points and any(one.mark == "points" for one in others) else marker_of(series, places)
    style: Any = {
        "color": colour,
        "linestyle": "none" if series.mark == "points" else dashes(series),
        "marker": marker,
        "markersize": 4.5 if not points else 2.5 if len(x) > MANY_POINTS else 5.0,
        "markevery": None if points or marker is None else seldom(len(x), places.get(series.like or series.name, 0)),
        "zorder": 3.5 if series.dashed else 3,
    }
    if points and band is not None:
        axes.errorbar(x, y, yerr=around(y, band), capsize=3, elinewidth=1.2, **style)
    else:
        axes.plot(x, y, **style)


def spacing(series: Sequence[Series]) -> float:
    """The distance between bars."""
    places = sorted({float(x) for one in series if one.mark == "bars" for x in one.x})
    return min((second - first for first, second in itertools.pairwise(places)), default=1.0)


def around(middle: Sequence[float], band: tuple[Sequence[float], Sequence[float]] | None) -> Any:
    """Lengths of error bars below and above."""
    if band is None:
        return None
    low = [max(0.0, value - below) for value, below in zip(middle, band[0], strict=True)]
    high = [max(0.0, above - value) for value, above in zip(middle, band[1], strict=True)]
    return [low, high]


def gaps(values: Numbers) -> list[float]:
    """Replace None by NaN, which is drawn as a gap."""
    return [math.nan if value is None else float(value) for value in values]


def draw_heat(axes: Axes, heat: Heat, look: Look) -> None:
    """Draw a heat map, first row on top, with a colour bar."""
    values = [gaps(row) for row in heat.values]
    columns = list(range(len(values[0]))) if heat.x is None else list(heat.x)
    mesh = axes.pcolormesh(
        columns,
        list(range(len(values))),
        values,
        cmap=SCALE,
        vmin=heat.low,
        vmax=heat.high,
        shading="nearest",
        rasterized=True,
    )
    axes.invert_yaxis()
    for which, labels, places in (("y", heat.rows, range(len(values))), ("x", heat.columns, columns)):
        if labels is not None:
            shown = [(place, label) for place, label in zip(places, labels, strict=True) if label]
            turn = {"rotation": 90} if which == "x" and len(shown) > 8 else {}
            ticks = getattr(axes, f"set_{which}ticks")
            ticks([place for place, _ in shown], [label for _, label in shown], **turn)
    bar = axes.figure.colorbar(mesh, ax=axes, pad=0.02, fraction=0.06)
    bar.set_label(heat.name)
    bar.outline.set_edgecolor(look.grid)


def set_axis(axes: Axes, which: str, axis: Axis, values: Sequence[Numbers]) -> None:
    """Set title, scale, limits and ticks. The scale stays linear if no value is positive."""
    own = axes.xaxis if which == "x" else axes.yaxis
    own.set_label_text(wrapped(axis.title, 0.8 * (WIDTH if which == "x" else HEIGHT), NORMAL))
    log = axis.log and any(value > 0 for row in values for value in gaps(row))
    if log:
        getattr(axes, f"set_{which}scale")("log", nonpositive="mask")
    if axis.low is not None or axis.high is not None:
        bounds = {"left": axis.low, "right": axis.high} if which == "x" else {"bottom": axis.low, "top": axis.high}
        getattr(axes, f"set_{which}lim")(**bounds)
    if axis.ticks is not None:
        places = [place for place, _ in axis.ticks]
        words = [word for _, word in axis.ticks]
        crowded = which == "x" and sum(map(len, words)) * letter(SMALL) > 0.6 * WIDTH
        getattr(axes, f"set_{which}ticks")(places, words, **({"rotation": 90} if crowded else {}))
        own.minorticks_off()
    elif log:
        label_decades(own)
    elif max(map(abs, own.get_view_interval())) >= 10_000:
        own.set_major_formatter("{x:,.0f}")
        if which == "x":
            axes.locator_params(axis="x", nbins=5)


def label_decades(axis: XAxis | YAxis) -> None:
    """Label a log axis with plain numbers if they are short, also between powers of ten if there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    if decades > MANY_DECADES or low < 1e-5 or high >= 1e6:
        axis.set_major_formatter(FuncFormatter(lambda value, _: ten_to(round(math.log10(value)))))
        axis.set_minor_formatter(NullFormatter())
        return
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    axis.set_major_formatter(plain)
    axis.set_minor_formatter(plain if decades < FEW_DECADES else NullFormatter())
    if decades < FEW_DECADES:
        axis.set_minor_locator(LogLocator(subs=(2, 3, 5) if decades < 1 else (2, 5)))


def draw_reference(axes: Axes, reference: Reference, look: Look, on_colours: bool) -> None:
    """Draw a thin line, with its label outside the panel so that it covers nothing."""
    style: Any = {"color": look.quiet, "linewidth": 1.0, "linestyle": (0, (1, 1.5)), "zorder": 2}
    if on_colours:
        style |= {"color": "#FFFFFF", "linewidth": 1.6}
    words: Any = {"size": SMALL, "color": look.quiet}
    if reference.axis == "y":
        axes.axhline(reference.at, **style)
        axes.text(1.01, reference.at, reference.words, transform=axes.get_yaxis_transform(), va="center", **words)
    else:
        axes.axvline(reference.at, **style)
        axes.text(reference.at, 1.01, reference.words, transform=axes.get_xaxis_transform(), ha="center", **words)
