"""Learning curves as a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...training import files
from .standing import Standing, listed

# After Okabe & Ito: told apart with every kind of colour vision, and dark enough for text. Every line is labelled too.
COLOURS = ("#0072B2", "#D55E00", "#008A64", "#A84C86")
DASHES = ("-", (0, (5, 1.5)), "-", (0, (2, 1)))
INK, GREY, FAINT = "#333333", "#666666", "#DDDDDD"


def draw(standings: Sequence[Standing], title: str, path: Path) -> None:
    """Write the error of every run over its updates.

    Args:
        standings: the models.
        title: above the picture.
        path: a PNG file, written whole or not at all.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    look: Any = {
        "font.size": 10,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots()
        first = standings[0]
        last = max((curve[-1][0] for one in standings for curve in one.curves.values() if curve), default=1)
        marks = ((first.guessing, "always saying 1", -16, "top"), (first.solved_at, "solved", 4, "bottom"))
        for level, words, offset, side in marks:
            error = math.sqrt(level)
            axes.axhline(error, color=GREY, linewidth=1, linestyle=":", zorder=1)
            label = f"{words}: {error:.2f}"
            axes.annotate(
                label, (last, error), (0, offset), textcoords="offset points", ha="right", va=side, color=GREY
            )
        for standing, colour, dashes in zip(standings, COLOURS, DASHES, strict=False):
            for number, curve in enumerate(standing.curves.values()):
                updates = [update for update, _ in curve]
                errors = [math.sqrt(loss) for _, loss in curve]
                name = f"{standing.title}: {outcome(standing)}" if number == 0 else None
                axes.plot(updates, errors, color=colour, linestyle=dashes, linewidth=2, label=name)
            for seed, update in standing.solved.items():
                error = math.sqrt(dict(standing.curves[seed])[update])
                axes.plot(update, error, "o", color=colour, markersize=7, zorder=3)
        axes.set(xlim=(0, last * 1.02), xlabel="updates", ylabel="typical error on new rows")
        highest = max((loss for one in standings for curve in one.curves.values() for _, loss in curve), default=0.0)
        axes.set_ylim(0, max(1.25 * math.sqrt(first.guessing), 1.1 * math.sqrt(highest)))
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
        axes.legend(loc="lower left", frameon=False)
        content = io.BytesIO()
        figure.savefig(content, dpi=120, format="png")
    files.write(path, content.getvalue())


def outcome(standing: Standing) -> str:
    """What a model came to, in the legend."""
    solved = standing.solved
    if not solved:
        return "not solved"
    words = f"solved after {listed([f'{update:,}' for update in solved.values()])} updates"
    return words if len(solved) == len(standing.curves) else f"{words}, {len(solved)} of {len(standing.curves)} seeds"
