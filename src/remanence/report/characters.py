"""Text histograms for a terminal or a pipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy

from ..analysis.arrays import Numbers

WIDTH = 40
"""Length of the longest bar in characters."""
MOST = 18
"""Maximum number of bins, unless the values span more decades."""


def histogram(values: Numbers, edges: Sequence[float], bar: str = "#") -> list[str]:
    """One line per bin, and one for infinite values if there are any.

    Args:
        values: finite values between the first and the last edge, or infinite ones.
        edges: a bin includes its left edge; the last bin also includes its right edge.
        bar: character of the bars.
    """
    counts = numpy.histogram(values[numpy.isfinite(values)], edges)[0].tolist()
    rows = [(f"{low:,.6g} to {high:,.6g}", count) for (low, high), count in zip(pairwise(edges), counts, strict=True)]
    endless = int(numpy.isinf(values).sum())
    rows += [("infinite", endless)] if endless else []
    most, width = max(1, *(count for _, count in rows)), max(len(label) for label, _ in rows)
    return [
        f"  {label.rjust(width)}  {bar * math.ceil(count * WIDTH / most)}{' ' if count else ''}{count}"
        for label, count in rows
    ]


def round_edges(values: Numbers) -> list[float]:
    """Edges 1, 2, 5, 10, ... around all finite values; only powers of ten if there would be too many."""
    known = values[numpy.isfinite(values) & (values > 0)]
    low, high = (known.min(), known.max()) if len(known) else (1.0, 1.0)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for parts in ((1, 2, 5), (1,)):
        marks = [part * 10.0**decade for decade in range(first, last + 1) for part in parts]
        below = max((index for index, mark in enumerate(marks) if mark <= low), default=0)
        above = min((index for index, mark in enumerate(marks) if mark >= high), default=len(marks) - 1)
        edges = marks[below : max(above, below + 1) + 1]
        if len(edges) - 1 <= MOST:
            break
    if len(edges) == 1:  # all values are the same round number
        edges = [edges[0], 10 * edges[0]]
    return [0.0, *edges] if (values == 0).any() else edges


def tenths(values: Numbers) -> list[float]:
    """Edges 0, 0.1, 0.2, ... around all values."""
    last = max(10, math.ceil(10 * float(values.max())))
    return [number / 10 for number in range(last + 1)]
