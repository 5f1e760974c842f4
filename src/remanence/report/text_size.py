"""Sizes of text in figures, in inches: enough to keep room for it before anything is drawn."""

from __future__ import annotations

import textwrap

LARGE, NORMAL, SMALL = 11.0, 9.5, 8.5
"""Sizes of text in points."""
LINE = 1.45
"""Height of a line of text in units of its size."""
BOLD = 1.12
"""How much wider bold text is."""
LETTER = 0.56
"""Width of a letter in units of its size, a little above the mean of the font."""


def letter(size: float) -> float:
    """Width of a letter in inches."""
    return LETTER * size / 72


def line(size: float) -> float:
    """Height of a line of text in inches."""
    return LINE * size / 72


def wrapped(text: str, width: float, size: float) -> str:
    """Text in lines that fit a width in inches."""
    return "\n".join(textwrap.wrap(text, max(10, int(width / letter(size))), break_on_hyphens=False))


def lines_of(text: str, size: float) -> float:
    """Height of text in inches."""
    return (text.count("\n") + 1) * line(size) if text else 0.0
