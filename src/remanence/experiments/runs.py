"""From an experiment to its runs, and from its runs to its result."""

from __future__ import annotations

import inspect
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch

from ..names import lookup
from ..table import Table
from ..tasks import IMDB, Pixels, Source, Task, Text
from ..tasks.base import Split, side_by_side
from ..training import Budget, Ranks, Run, RunError, train
from ..training.directory import Directory, read_result
from ..training.progress import Silent
from ..training.ranks import expect_enough
from . import analyses, results, simulations
from .analyses import Findings, Trained
from .build import convert, expect_known
from .models import build_model, count_parameters, describe
from .registry import find
from .schema import Experiment


@dataclass
class Way:
    """How runs are carried out: where they are kept, on what, how long, and who is told."""

    out: Path
    device: torch.device
    budget: Budget = field(default_factory=Budget)
    together: int | None = None
    """Seeds trained side by side; None for all on a GPU, one on a CPU."""
    progress: Silent = field(default_factory=Silent)
    loggers: Sequence[Any] = ()
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that train together; the first writes files and has what there is to show."""
    engine: str | None = None
    """What runs the models; None for the one a run began with, or the fastest."""

    def batches(self, runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
        """Runs that go side by side."""
        alone = self.device.type != "cuda" or any(run.config.jitter for run in runs)
        width = self.together or (1 if alone else len(runs))
        for start in range(0, len(runs), max(1, width)):
            yield runs[start : start + width]


def check(experiment: Experiment, models: Sequence[str] = ()) -> None:
    """Everything that can be wrong with an experiment before it starts, in one sentence."""
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
    """Names of the models an analysis looks at."""
    return dict.fromkeys(
        name
        for need in experiment.needs.values()
        for name in find(need.experiment, experiment.preset).usual
        if need.models is None or name in need.models
    )


def function_of(experiment: Experiment) -> Callable[..., Any]:
    """What an analysis or simulation calls."""
    name = experiment.function or ""
    if experiment.kind == "simulation":
        return lookup("function", name, simulations.KNOWN)[0]
    return lookup("function", name, analyses.KNOWN)


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments a configuration may set."""
    return [name for name in inspect.signature(function).parameters if name != "runs"]


def plan(
    experiment: Experiment, out: Path, models: Sequence[str] = (), seeds: Sequence[int] = ()
) -> dict[str, list[Run]]:
    """The runs of an experiment by model.

    Args:
        experiment: of kind training.
        out: the folder that holds all experiments.
        models: names of models; none for all that are usual.
        seeds: seeds; none for those of the experiment.
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
    """Carry out an experiment, or what is left of it, and write its result.

    Returns:
        What to show; nothing on ranks other than the first.

    Raises:
        training.Stopped: a signal or the budget ended it before it was done. Everything is saved.
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
    """Train what has not been trained and sum up what there is, also when it is stopped."""
    groups, ranks = plan(experiment, way.out, models, seeds), way.ranks
    everything = [run for runs in groups.values() for run in runs]
    ranks.told(lambda: expect_enough([run.config for run in everything], ranks))
    ranks.told(lambda: expect_one_configuration(experiment, way.out))
    unfinished = ranks.told(lambda: [number for number, run in enumerate(everything) if not is_finished(run)])
    kept: list[Source | None] = []

    def read() -> None:
        if not kept:
            kept.extend(read_data({everything[number].task for number in unfinished}, way.device))

    ranks.told(read)  # what is downloaded here, the others find
    ranks.alike(read)
    ranks.told(lambda: expect_scores(experiment, groups, way.device))
    try:
        for runs in groups.values():
            for batch in way.batches(runs):
                train(
                    batch,
                    device=way.device,
                    budget=way.budget,
                    progress=way.progress,
                    loggers=way.loggers,
                    ranks=ranks,
                    engine=way.engine,
                )
    finally:
        kept.clear()
        found = results.outcomes(way.out, experiment) if ranks.first else {}
        if found:
            try:
                results.save(
                    results.folder_of(way.out, experiment) / "summary.json", results.summary(experiment, found)
                )
            except RunError as error:  # on a disk that can only be read, a table can be shown all the same
                way.progress.say(f"remanence: {error}")
    return [results.table(experiment, found)] if ranks.first else []


def expect_one_configuration(experiment: Experiment, out: Path) -> None:
    """Refuse a folder with finished runs of another configuration: they would stand in one table with the new ones."""
    for name, model in experiment.models.items():
        for seed, path in results.finished(out, experiment, name).items():
            Directory(path).expect_configuration(describe(experiment, model, seed))


def expect_training(experiment: Experiment, ranks: Ranks) -> None:
    """Refuse several processes where there is nothing for them to share."""
    if experiment.kind != "training" and not ranks.alone:
        raise ValueError(
            f"expected one process or a training, got {ranks.size} processes and the {experiment.kind} {experiment.id}"
        )


def expect_scores(experiment: Experiment, groups: Mapping[str, Sequence[Run]], device: torch.device) -> None:
    """Refuse names of scores that the tasks of runs do not have, before anything is trained."""
    for runs in groups.values():
        asked = {"report.score": experiment.report.score, "training.best_by": runs[0].config.best_by}
        task = runs[0].task
        unsure = {name: score for name, score in asked.items() if score not in (None, "loss", task.goal)}
        if not unsure or all(map(is_finished, runs)):
            continue
        known = names_of_scores(task, device)
        for name, score in unsure.items():
            if known and score not in known:
                raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {score!r}")


def names_of_scores(task: Task, device: torch.device) -> list[str]:
    """What a task scores, found by scoring zeros; none where it has no sequences to score."""
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
    """Refuse a path for results that is no folder, or can be none. It need not be there."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            raise ValueError(f"expected a folder for results, got the file {path}")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ValueError(f"expected a folder for results, got {path}: {error.strerror}") from None


def is_finished(run: Run) -> bool:
    """Whether a run has its result."""
    return (run.directory / "result.json").exists()


def read_data(tasks: Iterable[Task], device: torch.device) -> list[Source | None]:
    """Find, download and verify the files that tasks read, before anything is written, and read them.

    Tasks share what they have read as long as somebody holds it: hold the result, and it is read once for all runs.
    """
    return [task.source("train", 0, device) for task in tasks if isinstance(task, Pixels | IMDB | Text)]


def own(experiment: Experiment, way: Way) -> list[Trained]:
    """The finished runs of an experiment that looks at its own models when they are trained."""
    found = [
        Trained(path, experiment.id, name, seed, read_result(path) or {}, way.device)
        for name in experiment.models
        for seed, path in results.finished(way.out, experiment, name).items()
    ]
    return [run for run in found if run.result.get("status") != "diverged"]


def trained(experiment: Experiment, way: Way, models: Sequence[str], seeds: Sequence[int]) -> list[Trained]:
    """The finished runs an analysis looks at. What is missing is trained first."""
    found = []
    for name, need in experiment.needs.items():
        other = find(need.experiment, experiment.preset)
        chosen = [one for one in (need.models or other.usual) if one in other.models and (not models or one in models)]
        groups = plan(other, way.out, chosen, seeds) if chosen else {}
        missing = [one for runs in groups.values() for one in runs if not is_finished(one)]
        if missing:
            way.progress.say(
                f"{experiment.id} needs {other.id} (preset {other.preset}): "
                f"{len(missing)} runs are not there and are trained first"
            )
        if groups:  # also where nothing is missing: it refuses runs of another configuration
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
    """Analyse or simulate, unless the same has been done, and write the result."""
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
    before = read_result(path.parent)
    if before is not None and all(before.get(name) == value for name, value in about.items()):
        return [Table(**table) for table in before["tables"]]
    found = work(experiment, runs)
    tables = [
        {
            "title": one.title,
            "headings": list(one.headings),
            "rows": [list(row) for row in one.rows],
            "words": one.words,
            "text": one.text,
            "notes": list(one.notes),
        }
        for one in found.tables
    ]
    results.save(path, {**about, "tables": tables, "found": found.data}, protected=True)
    return found.tables


def analyse(experiment: Experiment, runs: list[Trained]) -> Findings:
    """What an analysis finds in trained models."""
    found: Findings = function_of(experiment)(runs, **experiment.arguments)
    return found


def simulate(experiment: Experiment, _: list[Trained]) -> Findings:
    """What a simulation gives."""
    function, as_table = simulations.KNOWN[experiment.function or ""]
    result = function(**experiment.arguments)
    return Findings(result.plain(), [as_table(result)])
