"""`remanence sweep`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import exit_on_bad_input, expect_single_process, read_seeds, split
from .output import echo, print_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sweeps import Grid, Places, Sweep
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

    with exit_on_bad_input():
        expect_single_process()
        if status:
            show_status(sweeps.Sweep.open(out), as_json)
            return
        ranges = ranges_of(search, range_, launcher)
        start = sweeps.launcher_named(launcher)
        places = places_for(launcher, devices, workers, option)
        grid = grid_of(what or [], preset, models, seeds, set_)
        one = 1 if places.devices == ["cpu"] else None
        if together is None and (out / SWEEP).is_file():  # started elsewhere, perhaps on another kind of device
            together = sweeps.Sweep.open(out).together
        elif together is None and not ranges:
            together = one
        sweep = sweeps.Sweep(out, grid, together)
        expect_known(sweep, ranges)
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


def ranges_of(search: str | None, words: list[str] | None, launcher: str) -> dict[str, Range]:
    """Parse the ranges to search; empty without --search."""
    from ..names import lookup
    from ..sweeps.search import Range

    if search is None:
        if words:
            raise ValueError("expected --search optuna with --range, got --range alone")
        return {}
    lookup("search", search, {"optuna": None})
    if launcher != "local":
        raise ValueError(
            f"expected a search to run on this machine, got --launcher {launcher}; "
            "start it on several machines that share --out instead"
        )
    if not words:
        raise ValueError("expected ranges to search, such as --range train.lr=1e-4:1e-2:log, got none")
    found = {}
    for word in words:
        path, equals, rest = word.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"expected --range PATH=LOW:HIGH, such as train.lr=1e-4:1e-2:log, got {word!r}")
        found[path.strip()] = Range.parse(rest)
    return found


def expect_known(sweep: Sweep, ranges: dict[str, Range]) -> None:
    """Refuse settings that the experiments do not have, before anything is written."""
    from .. import experiments
    from ..sweeps.search import bases

    if ranges:
        for unit in bases(sweep, ranges):
            lowest = [f"{path}={int(one.low) if one.kind == 'int' else one.low}" for path, one in ranges.items()]
            experiments.find(unit.id, unit.preset, [*unit.sets, *lowest])


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

    if len(what) == 1 and what[0].endswith((".yaml", ".yml")):
        if preset or models or seeds or sets:
            raise ValueError(f"expected a grid in {what[0]} or in options, got both")
        try:
            return sweeps.read(Path(what[0]).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"expected a YAML file with a grid, got {what[0]}: {error}") from None
    if not what:
        raise ValueError("expected experiments from `remanence list`, or a YAML file with the grid, got none")
    values: dict[str, list[str]] = {}
    for word in sets or []:
        path, equals, rest = word.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"expected --set PATH=VALUE,.., such as train.lr=1e-3,3e-4, got {word!r}")
        values.setdefault(path.strip(), []).extend(split_values(rest))
    return sweeps.Grid(list(dict.fromkeys(what)), split(preset) or ["short"], split(models), read_seeds(seeds), values)


def split_values(words: str) -> list[str]:
    """Split at commas, except inside brackets and quotes."""
    found, depth, quote = [""], 0, ""
    for letter in words:
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and depth <= 0 and not quote:
            found.append("")
        else:
            found[-1] += letter
    return [word.strip() for word in found if word.strip()]


def places_for(launcher: str, devices: str | None, workers: int | None, options: list[str] | None) -> Places:
    """The devices, workers and launcher options that units run with."""
    import os

    import torch

    from .. import sweeps
    from ..engines.machine import device_named

    names = split([devices] if devices else None)
    if launcher == "local":
        if not names or names == ["cuda"]:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if names and not count:
                raise ValueError("expected a CUDA device of this machine, got 'cuda', and torch sees no CUDA device")
            names = [f"cuda:{number}" for number in range(count)] or ["cpu"]
        names = [str(device_named(name)) for name in names]
    elif names and names not in (["cpu"], ["cuda"]):
        raise ValueError(f"expected --devices cpu or cuda with --launcher {launcher}, got {devices!r}")
    known = {}
    for word in options or []:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected --option NAME=VALUE, got {word!r}")
        known[name.strip()] = value.strip()
    names = names or ["cpu"]
    usual = (os.cpu_count() or 1) if names == ["cpu"] else 1
    return sweeps.Places(names, workers or usual, known)


@contextmanager
def exit_on_launch_error() -> Iterator[None]:
    """Exit with one sentence and code 2 if a launcher cannot start; Ctrl-C is not an error."""
    try:
        yield
    except KeyboardInterrupt:
        echo("remanence: stopped; run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    except ValueError as error:
        if not str(error).startswith("expected "):
            raise
        print_error(error)
        raise typer.Exit(2) from None


@contextmanager
def live(sweep: Sweep, as_json: bool) -> Iterator[Callable[[], None]]:
    """A function to call periodically, which shows progress: a live table on a terminal, otherwise lines."""
    import signal
    import sys

    from ..sweeps import tables
    from ..training.interruption import on_signals

    before: dict[str, str] = {}

    def lines() -> None:
        for row in tables.plain_status(sweep):
            if before.get(row["unit"]) != row["state"]:
                before[row["unit"]] = row["state"]
                if as_json:
                    echo(json.dumps(row, ensure_ascii=False))
                else:
                    echo(f"{row['unit']}: {row['state']}{row['reason'] and ': ' + row['reason']}", err=True)

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with on_signals(ended, (signal.SIGTERM,)):
        if as_json or not sys.stderr.isatty():
            yield lines
            lines()
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=2, transient=True) as screen:

            def table() -> None:
                from rich.markup import escape
                from rich.table import Table as RichTable

                found = tables.status(sweep)
                shown_table = RichTable(title=escape(found.title), title_justify="left", box=None)
                for heading in found.headings:
                    shown_table.add_column(heading)
                busy = [row for row in found.rows if row[1] in ("running", "failed")]
                for row in busy[:30]:
                    shown_table.add_row(*map(escape, row))
                screen.update(shown_table)

            yield table


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
