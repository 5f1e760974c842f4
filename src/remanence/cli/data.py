"""`remanence data`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..printable import printable
from .answers import exit_on_bad_input

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..data import Counts, DataSet


def command(
    name: Annotated[
        str | None, typer.Argument(help="Data set to find or download, and verify.", show_default=False)
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify every data set that is found, byte for byte.")
    ] = False,
) -> None:
    """List the data sets, or download and verify one.

    Without a name, lists every data set and where it was found. With a name,
    looks for its files in $REMANENCE_DATA/NAME, then in the cache folder
    ($REMANENCE_CACHE). If they are missing, downloads them to the cache, unless
    REMANENCE_OFFLINE=1. Then verifies checksums, reads all files and prints
    the size of each split.
    """
    from rich.console import Console

    from ..data import KNOWN
    from ..names import lookup

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000)  # in a pipe, do not truncate or wrap
    with exit_on_bad_input():
        if name is not None:
            show(lookup("data set", name, KNOWN), console)
        elif verify:
            for known in KNOWN.values():
                if known.find() is not None:
                    show(known, console)
        else:
            show_all(console)


def show_all(console: Console) -> None:
    """Print one row per data set."""
    from rich.markup import escape

    from ..data import KNOWN, cache_folder, data_folder

    shown = table("name", "what", "holds", "found")
    shown.columns[0].no_wrap = True
    for known in KNOWN.values():
        found = known.find()
        counts = (found and found.form.counts) or known.counts
        where = escape(printable(found.where)) if found else "[yellow]not found[/yellow]"
        shown.add_row(known.name, escape(known.description), escape(summary(counts)), where)
    console.print(shown)
    console.print(
        f"Looked in {data_folder() or '$REMANENCE_DATA (not set)'}, then in {cache_folder()}.\n"
        "`remanence data NAME` verifies one data set, and downloads it if it was not found;\n"
        "`remanence data --verify` verifies every data set that was found.\n"
        "Data sets are always verified before they are read (files above 128 MB: samples of them).",
        markup=False,
    )


def show(known: DataSet[Any], console: Console) -> None:
    """Verify a data set and show its files and splits."""
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"verifying {known.name}") as status:
        found = known.find()
        if found is None:
            status.stop()  # a download shows its own progress bar
            found = known.fetch()
            status.start()
        counts = known.count(known.load(again=True))
    console.print(f"{known.name}: {known.description}\nfound in {printable(found.where)}", markup=False)
    if found.files:
        files = table("file", "bytes", "checksum")
        files.columns[1].justify = "right"
        for file, path in found.files:
            if file.checksum is None:
                files.add_row(escape(file.name), "", "content as published")
            else:
                files.add_row(
                    escape(file.name), f"{path.stat().st_size:,}", f"{file.checksum.split(':')[0]} as expected"
                )
        console.print(files)
    units = list(next(iter(counts.values())))
    splits = table("split", *map(escape, units))
    for column in splits.columns[1:]:
        column.justify = "right"
    for split, numbers in counts.items():
        splits.add_row(split, *(f"{numbers[unit]:,}" for unit in units))
    console.print(splits)


def table(*headings: str) -> Table:
    """An empty table that wraps long cells rather than truncating them."""
    from rich.box import SIMPLE
    from rich.table import Table

    made = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def summary(counts: Counts) -> str:
    """The size of each split in its first unit: "60,000 / 10,000 images"."""
    unit = next(iter(next(iter(counts.values()))))
    return " / ".join(f"{numbers[unit]:,}" for numbers in counts.values()) + f" {unit}"
