"""`remanence demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import exit_on_error
from .output import echo


def command(
    out: Annotated[Path, typer.Option(help="Folder for the results.", metavar="DIR")] = Path("runs"),
    quick: Annotated[bool, typer.Option("--quick", help="Run only a few updates, to see that it works.")] = False,
) -> None:
    """Race three models: an LSTM, a fast-gate LSTM and a pLSTM learn a task that needs memory.

    Takes two to three minutes on two CPU cores and ends with a table, a figure
    and an HTML report. Stopping it (Ctrl-C, kill) loses nothing: run the same
    command again to resume. Once it is finished, it prints its table again.
    """
    from ..experiments import demo
    from ..training import Stopped
    from .tables import print_text, show_table

    with exit_on_error():
        shown = demo.Demo.of(out, quick)
        introduction = demo.introduction(shown.experiment, list(shown.standings.values()))
        for paragraph in introduction:
            print_text(paragraph, hang=0)
            echo()
        try:
            shown.run()
        except Stopped as stopped:
            echo(f"remanence: {stopped.reason}", err=True)
            raise typer.Exit(stopped.code) from None
        show_table(demo.table(shown.standings, shown.groups), wrap=("updates to solve", "final error"))
        echo()
        sentences = demo.conclusion(list(shown.standings.values()))
        if not quick:  # these hold for the full race only
            sentences += [demo.WHERE_AN_LSTM_DOES_AS_WELL, demo.ABOUT_THE_FAST_GATE]
        for sentence in sentences:
            print_text(sentence, hang=0)
            echo()
        for what, make in (("Picture", shown.draw), ("Report", lambda: shown.report([*introduction, *sentences]))):
            try:
                print_text(f"{what}: {make()}")
            except ImportError as error:
                print_text(f"No {what.lower()}: {error.name} is not installed (pip install 'remanence-rnn[report]')")
        print_text(f"Results: {shown.folder}")
