"""`remanence report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import exit_on_error, writing


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of results, sweeps, experiments or single runs.", metavar="DIR..", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.", metavar="FILE")] = Path("report.html"),
) -> None:
    """Write an HTML report: results beside the published numbers, figures, and which claims hold.

    The page is self-contained. Unfinished runs are shown with the results so far.
    """
    from ..experiments.sections import gather, sweeps_in
    from ..report import page
    from ..sweeps import Sweep
    from ..sweeps.section import sections as of_sweep
    from .tables import print_text

    with exit_on_error():
        places = dict.fromkeys(place for folder in folders for place in sweeps_in(folder))
        swept = [one for place in places for one in of_sweep(Sweep.open(place))]
        sections = [*gather(folders, none=bool(swept)), *swept]
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            page.write(sections, out)
    print_text(f"Report: {out}")
