"""The progress of a sweep, shown while its units run."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sweeps import Sweep


@contextmanager
def live(sweep: Sweep, as_json: bool) -> Iterator[Callable[[], None]]:
    """A function to call periodically, which shows progress: a live table on a terminal, otherwise lines."""
    from ..sweeps import tables
    from ..training.interruption import on_signals

    before: dict[str, str] = {}

    def lines() -> None:
        for row in tables.plain_status(sweep):
            if before.get(row["unit"]) != row["state"]:
                before[row["unit"]] = row["state"]
                if as_json:
                    echo(json.dumps(row, ensure_ascii=False))
                else:
                    echo(f"{row['unit']}: {row['state']}{row['reason'] and ': ' + row['reason']}", err=True)

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with on_signals(ended, (signal.SIGTERM,)):
        if as_json or not sys.stderr.isatty():
            yield lines
            lines()
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as screen:

            def table() -> None:
                from rich.markup import escape
                from rich.table import Table as RichTable

                found = tables.status(sweep)
                shown_table = RichTable(title=escape(found.title), title_justify="left", box=None)
                for heading in found.headings:
                    shown_table.add_column(heading)
                busy = [row for row in found.rows if row[1] in ("running", "failed")]
                for row in busy[:30]:
                    shown_table.add_row(*map(escape, row))
                screen.update(shown_table)

            yield table
