"""Tables and text for people: wrapped to the width of a terminal, unwrapped in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from ..printable import printable
from .output import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ..table import Table


def on_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def show_table(table: Table, wrap: Sequence[str] = ()) -> None:
    """Print a table. In a pipe each row is one line; on a terminal the columns named in `wrap` may wrap."""
    if not on_terminal():
        echo("\n".join(table.lines()))
        return
    from rich.console import Console

    show_rich(table, Console(highlight=False), wrap)


def show_rich(table: Table, console: Console, wrap: Sequence[str] | None = None) -> None:
    """Print a table fitted to a console; the columns named in `wrap` may wrap, or all of them if it is None."""
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table as RichTable

    shown = RichTable(
        title=escape(printable(table.title)) or None, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    for index, heading in enumerate(table.headings):
        justify: Literal["left", "right"] = "left" if table.is_words(index) else "right"
        shown.add_column(
            escape(printable(heading)),
            justify=justify,
            no_wrap=wrap is not None and heading not in wrap,
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*(escape(printable(cell)) for cell in row))
    console.print(shown)
    for note in table.notes:
        console.print(f"  {printable(note)}", markup=False)


def print_text(words: str, indent: int = 0, hang: int = 2) -> None:
    """Print a line of text: unchanged in a pipe; on a terminal wrapped, with later lines indented by `hang` more."""
    if not on_terminal():
        echo(" " * indent + words)
        return
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns)
    fill = textwrap.TextWrapper(
        width, " " * indent, " " * (indent + hang), break_on_hyphens=False, break_long_words=False
    )
    echo(fill.fill(words))
