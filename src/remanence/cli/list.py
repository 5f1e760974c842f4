"""`remanence list`."""

from __future__ import annotations

from .output import echo


def command() -> None:
    """List every experiment: its id, what it reproduces, and its title.

    `remanence show ID` describes one, `remanence run ID` runs it.
    """
    from ..experiments import PAPERS, every
    from ..table import Table
    from .tables import print_text, show_table

    experiments = every()
    headings = ("id", "reproduces", "title")
    for paper, title in PAPERS.items():
        rows = [(one.id, one.reproduces, one.title) for one in experiments if one.paper == paper]
        show_table(Table(title, headings, rows, words=len(headings)), wrap=("reproduces", "title"))
        echo()
    print_text(
        "Every experiment has the presets smoke (seconds on a CPU), short (minutes on a GPU) and paper (as published)."
    )
    print_text("remanence show ID describes an experiment, remanence run ID runs it.")
