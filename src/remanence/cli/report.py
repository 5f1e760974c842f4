"""`remanence report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .run import answered

if TYPE_CHECKING:
    from ..report.section import Section


def command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of results, of experiments or of single runs.", metavar="DIR..", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path("report.html"),
) -> None:
    """Make one page of results: tables beside the published numbers, figures, what was run, which claims hold.

    The page needs no network and no other file. Runs that have not ended are shown as far as they are.
    """
    from ..experiments.gathering import gather
    from .tables import say

    with answered():
        write_page(gather(folders), out)
    say(f"Report: {out}")


def write_page(sections: list[Section], out: Path, **words: Any) -> None:
    """Write the page, or say in one sentence why it cannot be written."""
    from ..report import page

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        page.write(sections, out, **words)
    except ImportError as error:
        raise ValueError(
            f"expected jinja2 for the page, got: {error}; pip install 'remanence[report]' brings it"
        ) from None
    except OSError as error:
        raise ValueError(f"expected to write {out}, got: {error.strerror or error}") from None
