"""`remanence sweep`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import exit_on_bad_input, exit_on_launch_error, expect_single_process, read_seeds, split
from .live import live
from .output import echo

if TYPE_CHECKING:
    from ..sweeps import Grid, Sweep
    from ..sweeps.search import Range


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments from `remanence list`, or one YAML file with the grid.", metavar="ID..|FILE"),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="Presets; short by default.", metavar="NAME,..", show_default=False)
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help="Models to train; all by default.", metavar="NAME,..", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds, such as 1,2,3 or 1-5; by default those of the experiment.", metavar="N,..", show_default=False
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Values to try, such as train.lr=1e-3,3e-4; several paths form a grid.",
            metavar="PATH=VALUE,..",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the sweep.", metavar="DIR")] = Path("sweep"),
    launcher: Annotated[str, typer.Option(help="Where to run: local, ray or slurm.", metavar="NAME")] = "local",
    devices: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, or cuda:0,cuda:1; by default every GPU, or the CPU.", metavar="NAME,..", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Concurrent units: per GPU (default 1), on the CPU (default one per core), or SLURM jobs.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            help="Seeds trained in parallel as one unit; by default all on GPUs, one on a CPU.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="Launcher option: address=..., partition=..., timeout_min=...",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="optuna: search the ranges of --range instead of a grid.", metavar="NAME", show_default=False
        ),
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="Range to search, such as train.lr=1e-4:1e-2:log or train.batch=16:128:int.",
            metavar="PATH=LOW:HIGH",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Trials of a search, per model.", min=1, metavar="N")] = 20,
    status: Annotated[bool, typer.Option("--status", help="Show the progress of the sweep in DIR and exit.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Retry failed units.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of tables.")] = False,
) -> None:
    """Run a grid of experiments, models, seeds and values, on this machine, Ray or SLURM.

    Stopping it loses nothing: run the same command again to resume, here or on
    another machine that shares the folder. Once the sweep is finished, the same
    command prints its tables.
    """
    from .. import sweeps
    from ..experiments.results import SWEEP
    from ..sweeps.places import places_for
    from ..sweeps.search import expect_searchable, ranges_of

    with exit_on_bad_input():
        expect_single_process()
        if status:
            show_status(sweeps.Sweep.open(out), as_json)
            return
        ranges = ranges_of(search, range_, launcher)
        start = sweeps.launcher_named(launcher)
        places = places_for(launcher, split([devices] if devices else None), workers, option or [])
        grid = grid_of(what or [], preset, models, seeds, set_)
        one = 1 if places.devices == ["cpu"] else None
        if together is None and (out / SWEEP).is_file():  # started elsewhere, perhaps on another kind of device
            together = sweeps.Sweep.open(out).together
        elif together is None and not ranges:
            together = one
        sweep = sweeps.Sweep(out, grid, together)
        if ranges:
            expect_searchable(sweep, ranges)
        sweep.units  # noqa: B018  errors in the grid are reported first
        start.expect(places)
        sweep.make()
        if retry:
            sweep.forgive()
    if ranges:
        run_search(sweep, ranges, trials, places.devices[0])
        return
    with exit_on_launch_error(), live(sweep, as_json) as look:
        start.launch(sweep, places, look)
    finish(sweep, as_json, places.devices[0])


def run_search(sweep: Sweep, ranges: dict[str, Range], trials: int, device: str) -> None:
    """Run the search and print its results."""
    from ..sweeps.search import search, table
    from ..sweeps.work import owner_of_this_process
    from ..training import Progress, Stopped
    from .tables import print_text, show_table

    with exit_on_launch_error(), Progress() as progress:
        try:
            search(sweep, ranges, trials, device, owner_of_this_process(), progress)
        except Stopped as stopped:
            progress.say(f"remanence: {stopped.reason}")
            raise typer.Exit(stopped.code) from None
    for one in table(sweep, ranges):
        show_table(one)
        echo()
    print_text(f"Results: {sweep.folder}")


def grid_of(
    what: list[str], preset: list[str] | None, models: list[str] | None, seeds: str | None, sets: list[str] | None
) -> Grid:
    """The grid from the command line or from a YAML file."""
    from .. import sweeps
    from ..sweeps.grid import read_file, values_of

    if len(what) == 1 and what[0].endswith((".yaml", ".yml")):
        if preset or models or seeds or sets:
            raise ValueError(f"expected a grid in {what[0]} or in options, got both")
        return read_file(what[0])
    if not what:
        raise ValueError("expected experiments from `remanence list`, or a YAML file with the grid, got none")
    values = values_of(sets or [])
    return sweeps.Grid(list(dict.fromkeys(what)), split(preset) or ["short"], split(models), read_seeds(seeds), values)


def show_status(sweep: Sweep, as_json: bool) -> None:
    """Print the progress of a sweep."""
    from ..sweeps import tables
    from .tables import show_table

    if as_json:
        for row in tables.plain_status(sweep):
            echo(json.dumps(row, ensure_ascii=False))
        return
    show_table(tables.status(sweep), wrap=("",))


def finish(sweep: Sweep, as_json: bool, device: str) -> None:
    """Print the tables of results and save them as a file; exit with code 1 if a unit failed."""
    from ..experiments import results
    from ..sweeps import tables
    from ..sweeps.work import close
    from .tables import print_text, show_table

    close(sweep, device)
    results.save(sweep.folder / "table.json", tables.plain_outcomes(sweep))
    if as_json:
        echo(json.dumps({"results": tables.plain_outcomes(sweep)}, ensure_ascii=False))
    else:
        for table in tables.outcomes(sweep):
            show_table(table, wrap=("single runs",))
            echo()
        print_text(f"Results: {sweep.folder}")
    failures = [(unit, reason) for unit in sweep.units if (reason := sweep.failure(unit)) is not None]
    for unit, reason in failures:
        echo(f"remanence: {unit} failed: {reason}", err=True)
    left = sum(not sweep.is_done(unit) for unit in sweep.units) - len(failures)
    if left:
        echo(f"remanence: {left} units are not done; run the same command again to resume", err=True)
    if failures or left:
        raise typer.Exit(1)
