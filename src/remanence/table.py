"""Tables of words and numbers, as text or as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    """The first so many columns are words, set to the left; the others are numbers, set to the right."""
    text: int = 0
    """The last so many columns are words as well."""
    notes: Sequence[str] = field(default_factory=list)

    def is_words(self, column: int) -> bool:
        """Whether a column is set to the left."""
        return column < self.words or column >= len(self.headings) - self.text

    def lines(self) -> list[str]:
        """The table as text, every cell in full, columns in line."""
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
        """As Markdown, with the title in bold and the notes below."""
        marks = ["---" if self.is_words(index) else "---:" for index in range(len(self.headings))]
        text = "\n".join("| " + " | ".join(line) + " |" for line in (self.headings, marks, *self.rows))
        title = f"**{self.title}**\n\n" if self.title else ""
        return title + text + "".join(f"\n\n{note}" for note in self.notes)


def mean_and_std(values: Sequence[float], digits: int) -> str:
    """Mean and sample standard deviation, "-" where there is nothing."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} +- {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
