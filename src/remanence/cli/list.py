"""`remanence list`."""

from __future__ import annotations

import typer


def command() -> None:
    """Show every experiment: its id, what it reproduces, what it is about.

    `remanence show ID` says more about one, `remanence run ID` runs it.
    """
    from ..experiments import PAPERS, every
    from ..table import Table
    from .tables import say, show_table

    experiments = every()
    headings = ("id", "reproduces", "title", "runs")
    for paper, title in PAPERS.items():
        rows = [
            (one.id, one.reproduces, one.title, "yes" if one.later is None else "later")
            for one in experiments
            if one.paper == paper
        ]
        show_table(Table(title, headings, rows, words=len(headings)), wrap=("reproduces", "title"))
        typer.echo()
    for what in dict.fromkeys(one.later for one in experiments if one.later is not None):
        say(f"later: listed with what was published; runs once there are {what}.")
    say("Presets of all that run: smoke (seconds on a CPU), short (minutes on a GPU), paper (as published).")
    say("remanence show ID says more about one, remanence run ID runs it.")
