"""Where the title, legend and text of a figure go: above and below the panels, never over data."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .figure import Figure
from .look import Look, colour_of, dashes, marker_of, places_of, shown_in_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


LARGE, NORMAL, SMALL = 11.0, 9.5, 8.5
"""Font sizes in points."""
LINE = 1.45
"""Line height, relative to the font size."""
BOLD = 1.12
"""How much wider bold text is."""
LETTER = 0.56
"""Width of a letter relative to the font size, a little above the mean of the font."""


WIDTH, HEIGHT = 4.4, 3.3
"""Size of one panel with its labels, in inches."""
MARGIN = 0.12
SAMPLE = 0.62
"""Width of a line sample in the legend with its padding, in inches."""


def letter(size: float) -> float:
    """Width of a letter in inches."""
    return LETTER * size / 72


def line(size: float) -> float:
    """Height of a line of text in inches."""
    return LINE * size / 72


def wrapped(text: str, width: float, size: float) -> str:
    """Wrap text to a width in inches."""
    return "\n".join(textwrap.wrap(text, max(10, int(width / letter(size))), break_on_hyphens=False))


def lines_of(text: str, size: float) -> float:
    """Height of text in inches."""
    return (text.count("\n") + 1) * line(size) if text else 0.0


@dataclass(frozen=True)
class Page:
    """Layout of a figure, in inches."""

    figure: Figure
    rows: int
    columns: int
    width: float
    title: str
    legend_columns: int
    legend_rows: int
    below: str

    @classmethod
    def of(cls, figure: Figure) -> Page:
        """Compute the layout of a figure."""
        if not figure.panels:
            raise ValueError(f"expected a figure with panels, got {figure.id} without any")
        columns = min(figure.columns, len(figure.panels))
        width = max(WIDTH * columns, 1.35 * WIDTH)
        entries = [one.name for one in shown_in_legend(figure)]
        sizes = [SAMPLE + len(name) * letter(NORMAL) for name in entries]
        available = width - 2 * MARGIN
        legend_columns = len(entries) if sum(sizes) <= available else max(1, int(available / max(sizes)))
        below = (figure.note, f"Published: {figure.statement}" if figure.statement else "")
        return cls(
            figure=figure,
            rows=math.ceil(len(figure.panels) / columns),
            columns=columns,
            width=width,
            title=wrapped(figure.title, width - 2 * MARGIN, BOLD * LARGE),
            legend_columns=legend_columns,
            legend_rows=math.ceil(len(entries) / max(1, legend_columns)) if len(entries) > 1 else 0,
            below="\n".join(wrapped(text, width - 2 * MARGIN, SMALL) for text in below if text),
        )

    @property
    def head(self) -> float:
        """Height of title and legend."""
        return 2 * MARGIN + lines_of(self.title, LARGE) + self.legend_rows * line(NORMAL) * 1.1

    @property
    def foot(self) -> float:
        """Height of the note and the published claim below the panels."""
        return MARGIN + lines_of(self.below, SMALL) if self.below else 0.0

    @property
    def height(self) -> float:
        """Height of the whole figure."""
        notes = max((len(panel.note) for panel in self.figure.panels), default=0)
        note = line(SMALL) * math.ceil(notes * letter(SMALL) / (0.8 * WIDTH))
        return self.head + self.rows * (HEIGHT + note) + self.foot

    def write(self, drawing: Drawing, look: Look) -> None:
        """Draw title, legend and the text below; the panels get the remaining space."""
        engine = drawing.get_layout_engine()
        assert engine is not None
        bottom, top = self.foot / self.height, 1 - self.head / self.height
        engine.set(rect=(0, bottom, 1, top - bottom), w_pad=0.1, h_pad=0.08)  # type: ignore[call-arg]
        left = MARGIN / self.width
        drawing.text(
            left, 1 - MARGIN / self.height, self.title, size=LARGE, weight="bold", va="top", linespacing=LINE / 1.2
        )
        if self.below:
            drawing.text(left, MARGIN / 2 / self.height, self.below, size=SMALL, color=look.quiet, va="bottom")
        if self.legend_rows:
            handles = legend_handles(self.figure, look)
            place = (left, 1 - (1.6 * MARGIN + lines_of(self.title, LARGE)) / self.height)
            drawing.legend(
                handles=handles,
                loc="upper left",
                bbox_to_anchor=place,
                ncols=self.legend_columns,
                frameon=False,
                borderpad=0,
                borderaxespad=0,
                labelspacing=0.35,
                handlelength=2.4,
                fontsize=NORMAL,
            ).set_in_layout(False)


def legend_handles(figure: Figure, look: Look) -> list[Any]:
    """Legend handles of all entries."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    places = places_of(figure)
    handles: list[Any] = []
    for one in shown_in_legend(figure):
        colour = colour_of(one, places, look)
        if one.mark in ("bars", "area"):
            handles.append(Patch(color=colour, label=one.name))
            continue
        style: Any = {"linestyle": "none" if one.mark == "points" else dashes(one), "marker": marker_of(one, places)}
        handles.append(Line2D([], [], color=colour, markersize=5, label=one.name, **style))
    return handles
