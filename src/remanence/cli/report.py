"""`remanence report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import writing
from .run import answered


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of results, of sweeps, of experiments or of single runs.", metavar="DIR..", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path("report.html"),
) -> None:
    """Make one page of results: tables beside the published numbers, figures, what was run, which claims hold.

    The page needs no network and no other file. Runs that have not ended are shown as far as they are.
    """
    from ..experiments.sections import gather, sweeps_in
    from ..report import page
    from ..sweeps import Sweep
    from ..sweeps.section import sections as of_sweep
    from .tables import say

    with answered():
        places = dict.fromkeys(place for folder in folders for place in sweeps_in(folder))
        swept = [one for place in places for one in of_sweep(Sweep.open(place))]
        sections = [*gather(folders, none=bool(swept)), *swept]
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            page.write(sections, out)
    say(f"Report: {out}")
