"""`remanence inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import exit_on_bad_input, writing
from .output import echo
from .own import import_from_current_folder

if TYPE_CHECKING:
    from ..experiments.checkpoints import Checkpoint
    from ..report.inspection import Inspection


def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A run folder, one of its checkpoints, a saved language model, or a folder from save_pretrained.",
            metavar="CHECKPOINT",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write a figure (.png, .svg) or an HTML page (.html).", metavar="FILE", show_default=False
        ),
    ] = None,
    sequences: Annotated[
        int,
        typer.Option(
            help="Run the model on this many sequences of its task, then switch the input off and record the decay.",
            min=0,
            metavar="N",
        ),
    ] = 0,
    steps: Annotated[int, typer.Option(help="Steps to record after the input is off.", min=1, metavar="N")] = 200,
    task: Annotated[
        str | None,
        typer.Option(
            help="With --sequences, for a run on a custom task: its module and class, which is imported.",
            metavar="MODULE:CLASS",
            show_default=False,
        ),
    ] = None,
    theme: Annotated[str, typer.Option(help="Theme of the figure: light or dark.")] = "light",
) -> None:
    """Show the units of a trained model: timescales, exponents, ages and gates, as tables and a figure."""
    from ..experiments.checkpoints import open_checkpoint
    from ..report.inspection import expect_ending, save
    from ..report.look import look_of
    from .tables import print_text, show_table

    with exit_on_bad_input():
        look_of(theme)
        if out is not None:
            expect_ending(out)
        opened = open_checkpoint(checkpoint)
        found = inspected(opened, sequences, steps, task)
        if out is not None:
            with writing(out):
                save(found, out, theme)  # before any output: if the file cannot be written, print only the error
    print_text(opened.title)
    for name, value in found.facts:
        print_text(f"{name:<10}  {value}", indent=2, hang=12)
    for table in found.tables():
        echo()
        show_table(table)
    echo()
    for line in found.histograms(bar_character()):
        echo(line)
    for note in found.notes:
        print_text(note)
    if out is not None:
        echo()
        print_text(f"{'Page' if out.suffix.lower() == '.html' else 'Picture'}: {out}")


def inspected(opened: Checkpoint, sequences: int, steps: int, task: str | None = None) -> Inspection:
    """Inspect a model, and its behaviour on sequences of its task if any are requested."""
    from ..report.inspection import inspect

    if task is not None:
        if not sequences:
            raise ValueError(f"expected --sequences with --task, got --task {task} alone")
        import_from_current_folder()
    if not sequences:
        return inspect(opened.model, title=opened.title, facts=opened.facts)
    from ..analysis import sequences_of

    (batch,) = sequences_of(opened.task(task), sequences, at_once=sequences)
    count = batch.inputs.shape[1]
    return inspect(
        opened.model,
        title=opened.title,
        facts=opened.facts,
        input=batch,
        driven_by=f"over {count} sequence{'' if count == 1 else 's'}",
        steps=steps,
    )


def bar_character() -> str:
    """A full block if the encoding of stdout has one, else #."""
    import sys

    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#"
    return "█"
