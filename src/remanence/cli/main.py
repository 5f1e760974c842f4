"""The table of commands and the entry point of `remanence`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ..version import __version__
from . import bench, check, data, demo, export, figure, inspect, report, run, show, sweep
from . import list as list_
from .output import echo, exit_if_unwritable, reopen_closed_streams

KNOWN: dict[str, Callable[..., None]] = {
    "demo": demo.command,
    "list": list_.command,
    "show": show.command,
    "run": run.command,
    "sweep": sweep.command,
    "report": report.command,
    "figure": figure.command,
    "inspect": inspect.command,
    "export": export.command,
    "bench": bench.command,
    "check": check.command,
    "data": data.command,
}
"""Every command, in the order of `remanence --help`."""

app = typer.Typer(
    help="Recurrent networks whose forgetting you can choose, set, measure and afford.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in KNOWN.items():
    app.command(_name)(_command)


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        echo(f"remanence {__version__}")
        raise typer.Exit


@app.callback()
def remanence(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Recurrent networks whose forgetting you can choose, set, measure and afford."""


def main() -> None:
    """Entry point: run the command line."""
    reopen_closed_streams()
    with exit_if_unwritable():
        app(prog_name="remanence")
