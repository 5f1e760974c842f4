"""`remanence sweep`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import bad_input_is_answered, expect_alone, read_seeds, split
from .output import complain, echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sweeps import Grid, Places, Sweep
    from ..sweeps.search import Range


def command(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments of `remanence list`, or one YAML file with the grid.", metavar="ID..|FILE"),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="Presets; short by default.", metavar="NAME,..", show_default=False)
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help="Models; all by default.", metavar="NAME,..", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="1,2,3 or 1-5; by default those of the experiment.", metavar="N,..", show_default=False),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Values to go through, such as train.lr=1e-3,3e-4; several paths are a grid.",
            metavar="PATH=VALUE,..",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the sweep.", metavar="DIR")] = Path("sweep"),
    launcher: Annotated[str, typer.Option(help="local, ray or slurm.", metavar="NAME")] = "local",
    devices: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda, or cuda:0,cuda:1; by default every GPU, or the CPU.", metavar="NAME,..", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Units at a time: on each GPU (1 by default), on the CPU (one for each core), of SLURM's jobs.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            help="Seeds trained side by side as one unit; by default all on GPUs, one on a CPU.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="What a launcher should know: address=..., partition=..., timeout_min=...",
            metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(help="optuna: search the values of --range instead.", metavar="NAME", show_default=False),
    ] = None,
    range_: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="From where to where, such as train.lr=1e-4:1e-2:log or train.batch=16:128:int.",
            metavar="PATH=LOW:HIGH",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Of a search, for every model.", min=1, metavar="N")] = 20,
    status: Annotated[bool, typer.Option("--status", help="Show how far the sweep of DIR is, and do nothing.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Lines of JSON instead of tables.")] = False,
) -> None:
    """Run a grid of experiments, models, seeds and values, on this machine, Ray or SLURM.

    Stopping it loses nothing: the same command goes on, and so does another machine that shares the folder. When it is
    finished, the same command shows its tables.
    """
    from .. import sweeps
    from ..experiments.results import SWEEP

    with bad_input_is_answered():
        expect_alone()
        if status:
            shown(sweeps.Sweep.open(out), as_json)
            return
        ranges = ranges_of(search, range_, launcher)
        start = sweeps.launcher_named(launcher)
        places = where(launcher, devices, workers, option)
        grid = grid_of(what or [], preset, models, seeds, set_)
        one = 1 if places.devices == ["cpu"] else None
        if together is None and (out / SWEEP).is_file():  # begun elsewhere, perhaps on another kind of device
            together = sweeps.Sweep.open(out).together
        elif together is None and not ranges:
            together = one
        sweep = sweeps.Sweep(out, grid, together)
        expect_known(sweep, ranges)
        sweep.units  # noqa: B018  what is wrong with the grid is said first
        start.expect(places)
        sweep.make()
        if retry:
            sweep.forgive()
    if ranges:
        searched(sweep, ranges, trials, places.devices[0])
        return
    with answered(), live(sweep, as_json) as look:
        start.launch(sweep, places, look)
    finish(sweep, as_json, places.devices[0])


def ranges_of(search: str | None, words: list[str] | None, launcher: str) -> dict[str, Range]:
    """What is searched; nothing without --search."""
    from ..names import lookup
    from ..sweeps.search import Range

    if search is None:
        if words:
            raise ValueError("expected --range with --search optuna, got it alone")
        return {}
    lookup("search", search, {"optuna": None})
    if launcher != "local":
        raise ValueError(
            f"expected a search on this machine, got --launcher {launcher}; start it on several that share --out"
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
    """Refuse paths that experiments do not have, before anything is written."""
    from .. import experiments
    from ..sweeps.search import bases

    if ranges:
        for unit in bases(sweep, ranges):
            lowest = [f"{path}={int(one.low) if one.kind == 'int' else one.low}" for path, one in ranges.items()]
            experiments.find(unit.id, unit.preset, [*unit.sets, *lowest])


def searched(sweep: Sweep, ranges: dict[str, Range], trials: int, device: str) -> None:
    """Search, and show what was found."""
    from ..sweeps.search import search, table
    from ..sweeps.work import owner_of_this_process
    from ..training import Progress, Stopped
    from .tables import say, show_table

    with answered(), Progress() as progress:
        try:
            search(sweep, ranges, trials, device, owner_of_this_process(), progress)
        except Stopped as stopped:
            progress.say(f"remanence: {stopped.reason}")
            raise typer.Exit(stopped.code) from None
    for one in table(sweep, ranges):
        show_table(one)
        echo()
    say(f"Results: {sweep.folder}")


def grid_of(
    what: list[str], preset: list[str] | None, models: list[str] | None, seeds: str | None, sets: list[str] | None
) -> Grid:
    """The grid that was typed, or that of a file."""
    from .. import sweeps

    if len(what) == 1 and what[0].endswith((".yaml", ".yml")):
        if preset or models or seeds or sets:
            raise ValueError(f"expected a grid in {what[0]} or in options, got both")
        try:
            return sweeps.read(Path(what[0]).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"expected a YAML file with a grid, got {what[0]}: {error}") from None
    if not what:
        raise ValueError("expected experiments of `remanence list`, or a YAML file with the grid, got none")
    values: dict[str, list[str]] = {}
    for word in sets or []:
        path, equals, rest = word.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"expected --set PATH=VALUE,.., such as train.lr=1e-3,3e-4, got {word!r}")
        values.setdefault(path.strip(), []).extend(apart(rest))
    return sweeps.Grid(list(dict.fromkeys(what)), split(preset) or ["short"], split(models), read_seeds(seeds), values)


def apart(words: str) -> list[str]:
    """Values between commas, but for those inside of brackets and quotes."""
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


def where(launcher: str, devices: str | None, workers: int | None, options: list[str] | None) -> Places:
    """Where units run."""
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
def answered() -> Iterator[None]:
    """One sentence and exit code 2 for a launcher that cannot start; Ctrl-C is no error."""
    try:
        yield
    except KeyboardInterrupt:
        echo("remanence: stopped; the same command goes on", err=True)
        raise typer.Exit(130) from None
    except ValueError as error:
        if not str(error).startswith("expected "):
            raise
        complain(error)
        raise typer.Exit(2) from None


@contextmanager
def live(sweep: Sweep, as_json: bool) -> Iterator[Callable[[], None]]:
    """Something to call now and then, which shows how far everything is: a table that changes, or lines."""
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


def shown(sweep: Sweep, as_json: bool) -> None:
    """How far a sweep is."""
    from ..sweeps import tables
    from .tables import show_table

    if as_json:
        for row in tables.plain_status(sweep):
            echo(json.dumps(row, ensure_ascii=False))
        return
    show_table(tables.status(sweep), wrap=("",))


def finish(sweep: Sweep, as_json: bool, device: str) -> None:
    """Tables of what came out, also as a file; exit code 1 if something failed."""
    from ..experiments import results
    from ..sweeps import tables
    from ..sweeps.work import close
    from .tables import say, show_table

    close(sweep, device)
    results.save(sweep.folder / "table.json", tables.plain_outcomes(sweep))
    if as_json:
        echo(json.dumps({"results": tables.plain_outcomes(sweep)}, ensure_ascii=False))
    else:
        for table in tables.outcomes(sweep):
            show_table(table, wrap=("single runs",))
            echo()
        say(f"Results: {sweep.folder}")
    failures = [(unit, reason) for unit in sweep.units if (reason := sweep.failure(unit)) is not None]
    for unit, reason in failures:
        echo(f"remanence: {unit} failed: {reason}", err=True)
    left = sum(not sweep.is_done(unit) for unit in sweep.units) - len(failures)
    if left:
        echo(f"remanence: {left} units are not done; the same command goes on", err=True)
    if failures or left:
        raise typer.Exit(1)
