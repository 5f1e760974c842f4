"""Tables as plain text or Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A table with a title, headings, rows and notes."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    """Number of leading columns that hold text and are left-aligned; the others hold numbers and are right-aligned."""
    text: int = 0
    """Number of trailing columns that hold text as well."""
    notes: Sequence[str] = field(default_factory=list)

    def is_words(self, column: int) -> bool:
        """Whether a column is left-aligned."""
        return column < self.words or column >= len(self.headings) - self.text

    def lines(self) -> list[str]:
        """The lines of the table as aligned plain text, without truncation."""
        every = [list(self.headings), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        body = [
            "  ".join(
                cell.ljust(width) if self.is_words(index) else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in every
        ]
        rule = "  ".join("-" * width for width in widths).rstrip()
        return [*([self.title] if self.title else []), body[0], rule, *body[1:], *self.notes]

    def markdown(self) -> str:
        """The table as Markdown, with the title in bold and the notes below."""
        marks = ["---" if self.is_words(index) else "---:" for index in range(len(self.headings))]
        text = "\n".join("| " + " | ".join(line) + " |" for line in (self.headings, marks, *self.rows))
        title = f"**{self.title}**\n\n" if self.title else ""
        notes = (rf"\{note}" if note.startswith("* ") else note for note in self.notes)  # a star, not a list item
        return title + text + "".join(f"\n\n{note}" for note in notes)


def spread_of(values: Sequence[float]) -> float | None:
    """Sample standard deviation; None for fewer than two values, or if they are not all finite."""
    return statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None


def mean_and_std(values: Sequence[float], digits: int) -> str:
    """Mean and sample standard deviation, if there is one; "-" for no values."""
    if not values:
        return "-"
    mean, spread = statistics.fmean(values), spread_of(values)
    return f"{mean:.{digits}f}" if spread is None else f"{mean:.{digits}f} +- {spread:.{digits}f}"
