"""Run an experiment: plan its runs, train or analyse, and write the result."""

from __future__ import annotations

import inspect
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch

from ..names import lookup
from ..table import Table
from ..tasks import IMDB, Pixels, Source, Task, Text
from ..tasks.base import Split, side_by_side
from ..training import Ranks, Run, RunError, train
from ..training.directory import Directory, read_result
from ..training.ranks import expect_enough
from . import analyses, findings, results, simulations
from .analyses import Findings, Trained
from .build import convert, expect_known
from .models import build_model, count_parameters, describe
from .registry import find
from .runs_to_do import is_finished
from .schema import Experiment
from .way import Way


def check(experiment: Experiment, models: Sequence[str] = ()) -> None:
    """Check an experiment before it starts; raises ValueError with one sentence for the first mistake.

    Args:
        experiment: The experiment.
        models: Names of the requested models; empty for the default ones.
    """
    if models and experiment.kind == "simulation":
        raise ValueError(f"expected no models for {experiment.id}, which trains none, got {', '.join(models)}")
    for name in models:
        if name in experiment.left_out:
            raise ValueError(
                f"expected models of preset {experiment.preset}, got {name!r}, which it leaves out; "
                f"remanence show {experiment.id} says why"
            )
        lookup(f"model of {experiment.id}", name, experiment.models or needed_names(experiment))
    for model in experiment.models.values():
        count_parameters(model)
    if experiment.function is not None or experiment.kind != "training":
        function = function_of(experiment)
        expect_known(experiment.arguments, arguments_of(function), "arguments")
        kinds = get_type_hints(function)
        for name, value in experiment.arguments.items():
            convert(kinds[name], value, f"arguments.{name}")


def needed_names(experiment: Experiment) -> dict[str, None]:
    """Names of the models that an analysis reads."""
    return dict.fromkeys(
        name
        for need in experiment.needs.values()
        for name in find(need.experiment, experiment.preset).usual
        if need.models is None or name in need.models
    )


def function_of(experiment: Experiment) -> Callable[..., Any]:
    """The function that an analysis or simulation calls."""
    name = experiment.function or ""
    if experiment.kind == "simulation":
        return lookup("function", name, simulations.KNOWN)[0]
    return lookup("function", name, analyses.KNOWN)


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a configuration may set."""
    return [name for name in inspect.signature(function).parameters if name != "runs"]


def plan(
    experiment: Experiment, out: Path, models: Sequence[str] = (), seeds: Sequence[int] = ()
) -> dict[str, list[Run]]:
    """The runs of an experiment by model.

    Args:
        experiment: An experiment of kind training.
        out: Folder for the results of all experiments.
        models: Names of models; empty for the default models of the experiment.
        seeds: Seeds; empty for those of the experiment.
    """
    return {
        name: [
            Run(
                directory=results.run_folder(out, experiment, name, seed),
                experiment=experiment.id,
                model_name=name,
                seed=seed,
                task=model.task,
                make_model=partial(build_model, model),
                config=model.training,
                description=describe(experiment, model, seed),
            )
            for seed in (seeds or experiment.seeds)
        ]
        for name, model in experiment.models.items()
        if name in (models or experiment.usual)
    }


def run(experiment: Experiment, way: Way, models: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Table]:
    """Run an experiment, or resume it, and write its result.

    Args:
        experiment: The experiment.
        way: How to run it.
        models: Names of models; empty for the default ones.
        seeds: Seeds; empty for those of the experiment.

    Returns:
        The tables to show; empty on ranks other than 0.

    Raises:
        training.Stopped: A signal or the time budget stopped it. Everything is saved.
    """
    check(experiment, models)
    way.ranks.told(lambda: expect_training(experiment, way.ranks))
    way.ranks.told(lambda: expect_folder(way.out))
    if experiment.kind == "training":
        tables = train_models(experiment, way, models, seeds)
        if experiment.function is None or not way.ranks.first:
            return tables
        return [*tables, *conclude(experiment, way, own(experiment, way), analyse)]
    if experiment.kind == "simulation":
        return [*conclude(experiment, way, [], simulate)]
    return [*conclude(experiment, way, trained(experiment, way, models, seeds), analyse)]


def train_models(experiment: Experiment, way: Way, models: Sequence[str], seeds: Sequence[int]) -> list[Table]:
    """Train all unfinished runs and write the summary of the finished ones, also when training is stopped."""
    groups, ranks = plan(experiment, way.out, models, seeds), way.ranks
    elsewhere = ranks.told(lambda: finished_elsewhere(experiment, way, groups))
    if elsewhere:
        places = ", ".join(map(str, way.unless_in))
        way.progress.say(f"remanence: runs left out, because they have finished in {places}: {len(elsewhere)}")
        groups = without(groups, elsewhere)
    everything = [run for runs in groups.values() for run in runs]
    ranks.told(lambda: expect_enough([run.config for run in everything], ranks))
    ranks.told(lambda: expect_one_configuration(experiment, way.out))
    ranks.told(lambda: expect_ended(everything))
    unfinished = ranks.told(lambda: [number for number, run in enumerate(everything) if not has_result(run)])
    kept: list[Source | None] = []

    def read() -> None:
        if not kept:
            kept.extend(read_data({everything[number].task for number in unfinished}, way.device))

    ranks.told(read)  # rank 0 downloads, the others find the files
    ranks.alike(read)
    ranks.told(lambda: expect_scores(experiment, groups, way.device))
    try:
        for batch, turns in way.batches(groups.values()):
            train(
                batch,
                device=way.device,
                budget=way.budget,
                progress=way.progress,
                loggers=way.loggers,
                ranks=ranks,
                engine=way.engine,
                at_once=turns,
            )
    finally:
        found = results.outcomes(way.out, experiment) if ranks.first else {}
        if found:
            try:
                results.save(
                    results.folder_of(way.out, experiment) / "summary.json", results.summary(experiment, found)
                )
            except RunError as error:  # on a read-only disk the table can still be shown
                way.progress.say(f"remanence: {error}")
        kept.clear()
    return [results.table(experiment, found)] if ranks.first else []


def without(groups: dict[str, list[Run]], out: Sequence[tuple[str, int]]) -> dict[str, list[Run]]:
    """Runs by model, without some of them and without models that then have none."""
    left = {name: [run for run in runs if (name, run.seed) not in out] for name, runs in groups.items()}
    return {name: runs for name, runs in left.items() if runs}


def finished_elsewhere(experiment: Experiment, way: Way, groups: dict[str, list[Run]]) -> list[tuple[str, int]]:
    """Model and seed of the runs without a result here that have finished in one of the folders of `way.unless_in`."""
    return [
        (name, run.seed)
        for name, runs in groups.items()
        for run in runs
        if any(is_finished(place, experiment, experiment.models[name], run.seed) for place in way.unless_in)
        and not has_result(run)
    ]


def expect_one_configuration(experiment: Experiment, out: Path) -> None:
    """Refuse a folder with finished runs of another configuration: they would end up in one table with the new ones."""
    for name, model in experiment.models.items():
        for seed, path in results.with_result(out, experiment, name).items():
            Directory(path).expect_configuration(describe(experiment, model, seed))


def expect_ended(runs: Sequence[Run]) -> None:
    """Refuse runs that were kept unfinished: they have no weights to continue with."""
    for run in runs:
        if results.is_unfinished(run.directory):
            raise ValueError(
                f"expected a finished run, or one that can be resumed, in {run.directory}, got one that was kept "
                "unfinished, without weights; remove it or choose another --out"
            )


def expect_training(experiment: Experiment, ranks: Ranks) -> None:
    """Refuse several processes if there is nothing to train."""
    if experiment.kind != "training" and not ranks.alone:
        raise ValueError(
            f"expected one process or a training, got {ranks.size} processes and the {experiment.kind} {experiment.id}"
        )


def expect_scores(experiment: Experiment, groups: Mapping[str, Sequence[Run]], device: torch.device) -> None:
    """Refuse names of scores that a task does not compute, before training starts."""
    for runs in groups.values():
        asked = {"report.score": experiment.report.score, "training.best_by": runs[0].config.best_by}
        task = runs[0].task
        unsure = {name: score for name, score in asked.items() if score not in (None, "loss", task.goal)}
        if not unsure or all(map(has_result, runs)):
            continue
        known = names_of_scores(task, device)
        for name, score in unsure.items():
            if known and score not in known:
                raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {score!r}")


def names_of_scores(task: Task, device: torch.device) -> list[str]:
    """Names of the scores of a task, found by scoring zeros; empty if it has no sequences to score."""
    splits: tuple[Split, ...] = ("validation", "test")
    sources = (task.source(split, 0, device) for split in splits)
    source = next((source for source in sources if source is not None and source.size), None)
    if source is None:
        return []
    batch = side_by_side([source.pick(torch.zeros(1, dtype=torch.long, device=device))])
    steps = (batch.inputs.shape[1],) if task.readout == "every" else ()
    scores = task.scores(torch.zeros(1, *steps, 1, task.output_size, device=device), batch)
    return list(scores | task.derived(dict.fromkeys(scores, 0.0)))


def expect_folder(path: Path) -> None:
    """Refuse a path for results that is not a folder and cannot become one. It need not exist."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise ValueError(f"expected a folder for results, got the file {path}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"expected a folder for results, got {path}: {error.strerror}") from None


def has_result(run: Run) -> bool:
    """Whether a run has written its result."""
    return (run.directory / "result.json").exists()


def read_data(tasks: Iterable[Task], device: torch.device) -> list[Source | None]:
    """Find, download, verify and read the data files of tasks, before anything is written.

    Test data, too, so that a run does not miss files that are gone after hours of training. Tasks share loaded data as
    long as a reference to it exists: keep the result, and all runs share one copy.
    """
    stored = [task for task in tasks if isinstance(task, Pixels | IMDB | Text)]
    return [task.source(split, 0, device) for task in stored for split in get_args(Split)]


def own(experiment: Experiment, way: Way) -> list[Trained]:
    """The finished runs of an experiment that analyses its own models after training."""
    found = [
        Trained(path, experiment.id, name, seed, read_result(path) or {}, way.device)
        for name in experiment.models
        for seed, path in results.with_result(way.out, experiment, name).items()
    ]
    return [run for run in found if run.result.get("status") != "diverged"]


def trained(experiment: Experiment, way: Way, models: Sequence[str], seeds: Sequence[int]) -> list[Trained]:
    """The finished runs that an analysis reads. Missing runs are trained first."""
    found = []
    for name, need in experiment.needs.items():
        other = find(need.experiment, experiment.preset)
        chosen = [one for one in need.names(other) if not models or one in models]
        groups = plan(other, way.out, chosen, seeds) if chosen else {}
        missing = [one for runs in groups.values() for one in runs if not has_result(one)]
        if missing:
            way.progress.say(
                f"{experiment.id} needs {other.id} (preset {other.preset}); missing runs, trained first: {len(missing)}"
            )
        if groups:  # even if nothing is missing: it refuses runs of another configuration
            train_models(other, way, chosen, seeds)
        for runs in groups.values():
            for one in runs:
                result = read_result(one.directory)
                assert result is not None
                if result["status"] == "diverged":
                    way.progress.say(f"{one} has diverged and is left out")
                    continue
                found.append(Trained(one.directory, name, one.model_name, one.seed, result, way.device))
    return found


def conclude(
    experiment: Experiment, way: Way, runs: list[Trained], work: Callable[[Experiment, list[Trained]], Findings]
) -> Iterable[Table]:
    """Run the analysis or simulation, unless the same result is already there, and write the result.

    What was found before about other seeds stays in it.
    """
    path = results.folder_of(way.out, experiment) / "result.json"
    about = {
        "experiment": experiment.id,
        "preset": experiment.preset,
        "reproduces": experiment.reproduces,
        "function": experiment.function,
        "arguments": experiment.arguments,
        "runs": [
            {"need": run.need, "model": run.model_name, "seed": run.seed, "result": dict(run.result)} for run in runs
        ],
    }
    content = findings.there(about, way.out, experiment)
    if content is None:
        found = work(experiment, runs)
        content = findings.with_earlier_seeds({**about, **found.plain()}, way.out, experiment)
        results.save(path, content, protected=True)
    return [Table(**table) for table in content["tables"]]


def analyse(experiment: Experiment, runs: list[Trained]) -> Findings:
    """Run an analysis on trained models."""
    found: Findings = function_of(experiment)(runs, **experiment.arguments)
    return found


def simulate(experiment: Experiment, _: list[Trained]) -> Findings:
    """Run a simulation."""
    function, as_table = simulations.KNOWN[experiment.function or ""]
    result = function(**experiment.arguments)
    return Findings(result.plain(), [as_table(result)])
