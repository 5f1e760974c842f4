"""`remanence bench`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import exit_on_bad_input, split
from .output import echo

if TYPE_CHECKING:
    from ..bench import BenchReport


def command(
    context: typer.Context,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; by default CUDA if available.", show_default=False)
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Also write all measurements to this file.", metavar="FILE", show_default=False)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure one small shape only, in half a minute.")] = False,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            help="Shapes: copy-200, pixel-256, ... or sizes such as T220-B128-H128.",
            metavar="NAME,..",
            show_default=False,
        ),
    ] = None,
    gates: Annotated[
        list[str] | None,
        typer.Option(
            help="Gates, or gru, janet, phased, nru, ...; by default all except exprnn, urnn, eurnn, goru, sru.",
            metavar="NAME,..",
            show_default=False,
        ),
    ] = None,
    engines: Annotated[
        list[str] | None,
        typer.Option(
            help="Engines: auto, cpu, triton, loop, ...; by default auto and every other one that can run.",
            metavar="NAME,..",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="tf32, full or bf16; by default tf32 on CUDA, full on a CPU.", show_default=False),
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="Measure all layers in one process, as on a GPU; on a CPU each has its own by default."
        ),
    ] = False,
    training: Annotated[
        bool,
        typer.Option("--training", help="Measure the overhead of the training loop over its bare arithmetic instead."),
    ] = False,
    language: Annotated[
        bool, typer.Option("--language", help="Measure word-level language models against torch.nn.LSTM instead.")
    ] = False,
    streaming: Annotated[bool, typer.Option("--streaming", help="Measure single steps against torch instead.")] = False,
    first_use: Annotated[
        bool, typer.Option("--first-use", help="Measure the first call in a new process against torch instead.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Time limit in seconds; the remaining measurements are skipped.", metavar="SECONDS", show_default=False
        ),
    ] = None,
) -> None:
    """Benchmark every gate and engine against torch.nn.LSTM on this machine.

    Measures inference, a training step, memory, and scaling with the size.
    Runs of torch.nn.LSTM and of our layers alternate, in the same precision;
    compare the ratios. Takes a few minutes, longer on a GPU the first time
    because kernels are compiled.
    """
    from rich.console import Console

    from ..bench import expect_writable, plan, run, run_first_use, run_language, run_programs, run_streaming, save

    with exit_on_bad_input():
        if json is not None:
            expect_writable(json)
        asked = training + language + streaming + first_use
        if asked > 1:
            raise ValueError(f"expected one of --training, --language, --streaming and --first-use, got {asked}")
        planned = plan(device, split(shapes), split(gates), split(engines), precision, quick, budget, not together)
    with Console(stderr=True).status("measuring") as status:

        def say(words: str) -> None:
            status.update(f"measuring {words}")

        command = command_line(context)
        if training:
            report = run_programs(planned.device, command, say)
        else:
            other = run_language if language else run_streaming if streaming else run_first_use if first_use else run
            report = other(planned, command, say)
    if json is not None:
        try:
            save(report, json)
        except OSError as error:
            show(report, markdown)
            echo(f"remanence: expected a file that can be written, got {json}: {error.strerror}", err=True)
            raise typer.Exit(2) from None
    show(report, markdown)


def command_line(context: typer.Context) -> str:
    """The command line as typed, except for the order of the options."""
    words = ["remanence", "bench"]
    for name, value in context.params.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value not in (None, False, [], ()):
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [f"--{name}", str(one)]
    return shlex.join(words)


def show(report: BenchReport, markdown: bool) -> None:
    """Print the description of the machine, then the tables."""
    from rich.console import Console

    from ..bench import reading, tables
    from .tables import show_rich

    about = {"command": report.command, **report.machine, "took": f"{report.seconds:.0f} s"}
    if markdown:
        echo("\n".join(f"- {name}: {value}" for name, value in about.items()))
        echo(f"\n{reading(report)}")
        for table in tables(report):
            echo(f"\n{table.markdown()}")
        return
    console = Console(highlight=False)
    for name, value in about.items():
        console.print(f"{name:>9}  {value}", markup=False)
    console.print(f"\n{reading(report)}")
    for table in tables(report):
        show_rich(table, console)
