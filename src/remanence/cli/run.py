"""`remanence run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import exit_on_bad_input, exit_on_error, exit_on_launch_error, read_seeds, split
from .live import live
from .output import echo


def command(
    id: Annotated[
        str, typer.Argument(help="An experiment from `remanence list`, or a file such as my.yaml.", metavar="ID")
    ],
    preset: Annotated[
        str, typer.Option(help="smoke (seconds), short (minutes on a GPU) or paper (as published).")
    ] = "short",
    models: Annotated[
        list[str] | None, typer.Option(help="Models to train; all by default.", metavar="NAME,..", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            help="Seeds, such as 1,2,3 or 1-5; by default those of the experiment.",
            metavar="N,..",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; by default CUDA if available.", show_default=False)
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="Several devices, such as cuda:0,cuda:1, which share the models and seeds.",
            metavar="NAME,..",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time limit, such as 90s, 9m or 1h30m: stop cleanly after it.", metavar="TIME", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.", metavar="DIR")] = Path("runs"),
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override any setting, such as train.lr=3e-4.", metavar="PATH=VALUE", show_default=False
        ),
    ] = None,
    together: Annotated[
        int | None,
        typer.Option(
            help="Runs trained at once on one device; by default one on a CPU, on a GPU all seeds of a model, and of "
            "several models if they leave room.",
            min=1,
            metavar="N",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Engine for the models; by default the one the run started with, or the fastest.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    unless_in: Annotated[
        list[Path] | None,
        typer.Option(
            "--unless-in",
            help="Leave out runs that have finished in this folder, such as results.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    logger: Annotated[
        list[str] | None,
        typer.Option(help="Also log metrics to mlflow or wandb.", metavar="NAME,..", show_default=False),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print one line per evaluation instead of progress bars.")
    ] = False,
) -> None:
    """Run an experiment.

    Stopping it (Ctrl-C, kill, --budget) loses nothing: run the same command
    again to resume. Once all runs are finished, it prints their table.
    Results are in DIR/ID/PRESET. Under torchrun all processes train together.
    """
    from .. import experiments
    from ..engines import check_name
    from ..experiments.results import expect_there
    from ..training import Budget, Progress, Quiet, Ranks, Silent, Stopped, loggers
    from .tables import print_text, show_table

    with exit_on_bad_input():
        ranks = Ranks.join()

    def asked() -> tuple[experiments.Experiment, experiments.Way, list[str], list[int], list[str]]:
        limit = Budget() if budget is None else Budget.parse(budget)
        experiment = experiments.find(id, preset, set_ or ())
        chosen, numbers = split(models), read_seeds(seeds)
        several = split([devices] if devices else None)
        if engine is not None:
            check_name(engine)
        others = {
            "--device": device,
            "--budget": budget,
            "--logger": logger,
            "--engine": engine,
            "--unless-in": unless_in,
            f"the {experiment.kind} {id}": experiment.kind != "training",
            "torchrun": not ranks.alone,
        }
        unfit = next((name for name, there in others.items() if there), None)
        if several and unfit is not None:
            raise ValueError(f"expected --devices only with a training experiment, got it with {unfit}")
        if unless_in and (experiment.kind != "training" or experiment.function is not None):
            raise ValueError(f"expected --unless-in only where no analysis reads the weights, got {id}")
        for folder in unless_in or ():
            expect_there(folder)
        place = ranks.device(device or (several[0] if several else None))
        experiments.check(experiment, chosen)
        also = [loggers.make(name) for name in split(logger)] if ranks.first else []
        progress = Silent() if not ranks.first else Quiet() if quiet else Progress()
        way = experiments.Way(out, place, limit, together, progress, also, ranks, engine, unless_in or ())
        return experiment, way, chosen, numbers, several

    with exit_on_bad_input(ranks):
        experiment, way, chosen, numbers, several = ranks.alike(asked)
    if several:
        spread(id, preset, chosen, numbers, set_ or [], several, together, out)
    with exit_on_error(ranks), way.progress as progress:
        try:
            tables = experiments.run(experiment, way, chosen, numbers)
        except Stopped as stopped:
            progress.say(f"remanence: {stopped.reason}")
            ranks.leave()
            raise typer.Exit(stopped.code) from None
    for table in tables:
        show_table(table, wrap=("single runs",))
        echo()
    if ranks.first:
        for claim in experiment.claims:
            print_text(f"{'To be tested' if experiment.paper == 'own' else 'Published'}: {claim}")
        print_text(f"Results: {out / experiment.id / experiment.preset}")
    ranks.leave()


def spread(
    id: str,
    preset: str,
    models: list[str],
    seeds: list[int],
    sets: list[str],
    devices: list[str],
    together: int | None,
    out: Path,
) -> None:
    """Train the unfinished runs in one process per device; afterwards only the table is left to make."""
    from .. import sweeps
    from ..sweeps.grid import one_point
    from ..sweeps.places import places_for

    start = sweeps.launcher_named("local")
    with exit_on_bad_input():
        places = places_for("local", devices, 1)
        grid = one_point(id, preset, models, seeds, sets)
        sweep = sweeps.Sweep.over_devices(out, grid, places.devices, together)
        start.expect(places)
        sweep.make()
        sweep.forgive()
    with exit_on_launch_error(), live(sweep, as_json=False) as look:
        start.launch(sweep, places, look)
    for unit in sweep.units:
        reason = sweep.failure(unit)
        if reason is not None:
            echo(f"remanence: {unit} failed: {reason}", err=True)
            raise typer.Exit(1)
