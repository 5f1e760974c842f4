"""`remanence list`."""

from __future__ import annotations

from .output import echo


def command() -> None:
    """Show every experiment: its id, what it reproduces, what it is about.

    `remanence show ID` says more about one, `remanence run ID` runs it.
    """
    from ..experiments import PAPERS, every
    from ..table import Table
    from .tables import say, show_table

    experiments = every()
    headings = ("id", "reproduces", "title")
    for paper, title in PAPERS.items():
        rows = [(one.id, one.reproduces, one.title) for one in experiments if one.paper == paper]
        show_table(Table(title, headings, rows, words=len(headings)), wrap=("reproduces", "title"))
        echo()
    say("Presets of all: smoke (seconds on a CPU), short (minutes on a GPU), paper (as published).")
    say("remanence show ID says more about one, remanence run ID runs it.")
