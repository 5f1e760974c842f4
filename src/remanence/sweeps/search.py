"""Hyperparameter search with Optuna: earlier trials guide later ones, and bad trials are pruned.

`study.log` in the sweep folder holds one study for every experiment, preset and model. Several processes may search at
once. A trial is a point like those of a grid and stores its runs in the same way: a killed trial resumes from its last
checkpoint.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.machine import device_named
from ..experiments import Way, find
from ..experiments.results import run_folder
from ..experiments.runs import train_models
from ..experiments.schema import Experiment, Model
from ..names import lookup
from ..table import Table
from ..training import Run, Stopped
from ..training.directory import read_result
from ..training.files import HeldError
from ..training.progress import Silent
from ..training.schedule import lower_is_better
from . import lease
from .folder import Sweep
from .grid import Unit, setting
from .work import sentence

KINDS = ("", "log", "int")
WHY = "why it failed"
"""User attribute of a failed trial."""
SOON = 10.0
"""Seconds in which a process that begins a trial takes its lease."""


@dataclass(frozen=True)
class Range:
    """A range of values."""

    low: float
    high: float
    kind: str = ""
    """"log" for a logarithmic scale, "int" for integers."""

    @classmethod
    def parse(cls, words: str) -> Range:
        """Parse a range such as 1e-4:1e-2:log."""
        parts = words.split(":")
        try:
            low, high = float(parts[0]), float(parts[1])
            kind = parts[2].strip() if len(parts) > 2 else ""
            found = cls(low, high, kind)
            if len(parts) > 3 or kind not in KINDS or not low < high or not math.isfinite(high - low):
                raise ValueError
            if (kind == "log" and low <= 0) or (kind == "int" and low != int(low)):
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(f"expected a range such as 1e-4:1e-2:log or 16:128:int, got {words!r}") from None
        return found

    def distribution(self, optuna: Any) -> Any:
        """The Optuna distribution."""
        if self.kind == "int":
            return optuna.distributions.IntDistribution(int(self.low), int(self.high))
        return optuna.distributions.FloatDistribution(self.low, self.high, log=self.kind == "log")


def ranges_of(search: str | None, words: list[str] | None, launcher: str) -> dict[str, Range]:
    """Parse the ranges to search; empty without --search."""
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
        path, rest = setting(word, "--range PATH=LOW:HIGH, such as train.lr=1e-4:1e-2:log")
        found[path] = Range.parse(rest)
    return found


class PrunedError(Exception):
    """A trial is not worth continuing."""


class Watch(Silent):
    """Reports the progress of runs to their trial, and to another display.

    Args:
        trial: Optuna trial.
        score: Score to report.
        others: Progress display to forward to.
    """

    def __init__(self, trial: Any, score: str, others: Silent) -> None:
        self.trial, self.score, self.others = trial, score, others
        self.runs: list[Run] = []
        self.seen: dict[int, list[float]] = {}
        self.told = [-1]
        """The last update that was reported. As `runs` and `seen`, it is shared with further displays."""

    def another(self) -> Watch:
        beside = copy.copy(self)
        beside.others = self.others.another()
        return beside

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        self.runs += runs
        self.others.begin(runs, update, total)

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        self.others.evaluated(run, line)
        value, update = line.get("validation", {}).get(self.score), int(line["update"])
        if value is None:
            return
        found = self.seen.setdefault(update, [])
        found.append(float(value))
        if len(found) < len(self.runs) or update <= self.told[0]:
            return
        self.told[0] = update
        self.trial.report(statistics.fmean(found), update)
        if self.trial.should_prune():
            raise PrunedError

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        self.others.ended(run, result)

    def say(self, message: str) -> None:
        self.others.say(message)

    def end(self) -> None:
        self.others.end()


def search(
    sweep: Sweep, ranges: dict[str, Range], trials: int, device: str, owner: str, progress: Silent, pruning: bool = True
) -> None:
    """Run trials until every model has had `trials` of them.

    Args:
        sweep: Sweep with a grid of one point, to which the ranges are added.
        ranges: Ranges by path.
        trials: Trials for every experiment, preset and model.
        device: Device to train on.
        owner: Owner of the leases, see `lease.take`.
        progress: Progress display.
        pruning: Whether to stop trials early that are worse than the median of the others at the same update.
    """
    for unit in bases(sweep, ranges):
        study = study_of(sweep, unit, pruning)
        take_up(sweep, unit, study)
        while len(ended(study)) + held(sweep, unit, study) < trials:
            try_one(sweep, unit, study, ranges, device, owner, progress)


def bases(sweep: Sweep, ranges: dict[str, Range]) -> Iterator[Unit]:
    """The units to search: one for each model of an experiment, with all seeds."""
    for unit in sweep.units:
        if not unit.model:
            raise ValueError(f"expected experiments that train models for a search, got {unit.id}")
        both = next((path for path in ranges if any(word.startswith(f"{path}=") for word in unit.sets)), None)
        if both is not None:
            raise ValueError(f"expected {both} as a value or as a range, got both")
        yield unit


def expect_searchable(sweep: Sweep, ranges: dict[str, Range]) -> None:
    """Refuse ranges of settings that the experiments do not have."""
    for unit in bases(sweep, ranges):
        lowest = [f"{path}={int(one.low) if one.kind == 'int' else one.low}" for path, one in ranges.items()]
        find(unit.id, unit.preset, [*unit.sets, *lowest])


def study_of(sweep: Sweep, unit: Unit, pruning: bool) -> Any:
    """The study of a unit, on disk."""
    optuna = _optuna()
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(sweep.folder / "study.log"))
    )
    experiment = unit.experiment
    lower = lower_is_better(experiment.models[unit.model].task, experiment.report.score)
    study = optuna.create_study(
        study_name=str(unit),
        storage=storage,
        load_if_exists=True,
        direction="minimize" if lower else "maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5) if pruning else optuna.pruners.NopPruner(),
    )
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))  # a process that resumes must draw other values
    return study


def ended(study: Any) -> list[Any]:
    """Trials that have ended."""
    return [
        trial
        for trial in study.trials
        if trial.state.name in ("COMPLETE", "PRUNED") or (trial.state.name == "FAIL" and WHY in trial.user_attrs)
    ]


def held(sweep: Sweep, unit: Unit, study: Any) -> int:
    """Number of trials that a process works on."""
    return sum(lease.is_held(lease_of(sweep, unit, one.number)) for one in study.trials if one.state.name == "RUNNING")


def take_up(sweep: Sweep, unit: Unit, study: Any) -> None:
    """Queue abandoned trials again: their runs resume."""
    state = _optuna().trial.TrialState
    for trial in study.trials:
        path = lease_of(sweep, unit, trial.number)
        new = time.time() - trial.datetime_start.timestamp() < SOON if trial.datetime_start else False
        if trial.state.name == "RUNNING" and not lease.is_held(path) and (path.exists() or not new):
            study.tell(trial.number, state=state.FAIL)
            study.enqueue_trial(trial.params)


def try_one(
    sweep: Sweep, unit: Unit, study: Any, ranges: dict[str, Range], device: str, owner: str, progress: Silent
) -> None:
    """Run one trial."""
    optuna = _optuna()
    trial = study.ask({path: one.distribution(optuna) for path, one in ranges.items()})
    mine = lease.take(lease_of(sweep, unit, trial.number), owner)
    if mine is None:
        return
    mine.keep(lambda: None)
    try:
        value = tried(sweep, unit, trial, device, progress)
        study.tell(trial, value, state=None if value is not None else optuna.trial.TrialState.PRUNED)
    except PrunedError:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    except (Stopped, HeldError):
        raise  # resumes later
    except optuna.exceptions.UpdateFinishedTrialError:
        return  # another process considered this trial abandoned
    except Exception as error:
        trial.set_user_attr(WHY, sentence(error))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        progress.say(f"trial {trial.number} of {unit} failed: {sentence(error)}")
    finally:
        mine.give_back()


def tried(sweep: Sweep, unit: Unit, trial: Any, device: str, progress: Silent) -> float | None:
    """The score of a trial; None if a run diverged."""
    point = Unit(
        unit.id, unit.preset, unit.model, unit.seeds, (*unit.sets, *(f"{p}={v}" for p, v in trial.params.items()))
    )
    experiment = point.experiment
    watch = Watch(trial, experiment.report.score, progress)
    way = Way(sweep.out(point), device_named(device), together=len(unit.seeds), progress=watch)
    train_models(experiment, way, [unit.model], list(unit.seeds))
    return score(sweep.out(point), experiment, experiment.models[unit.model], unit.seeds)


def score(out: Path, experiment: Experiment, model: Model, seeds: Sequence[int]) -> float | None:
    """The mean of the best validation scores; None if a run diverged."""
    found: list[float] = []
    for seed in seeds:
        result = read_result(run_folder(out, experiment, model.name, seed)) or {}
        value = (result.get("best") or {}).get(experiment.report.score)
        if value is None or result.get("status") == "diverged":
            return None
        found.append(value)
    return statistics.fmean(found)


def lease_of(sweep: Sweep, unit: Unit, number: int) -> Path:
    """The path of the lease of a trial."""
    return sweep.folder / "leases" / f"{unit.name}-trial-{number}"


def table(sweep: Sweep, ranges: dict[str, Range], most: int = 10) -> list[Table]:
    """The best trials of every study."""
    tables = []
    for unit in sweep.units:
        study = study_of(sweep, unit, pruning=False)
        report = unit.experiment.report
        done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
        sign = 1 if study.direction.name == "MINIMIZE" else -1
        rows = [
            (
                str(trial.number),
                *(f"{trial.params[path]:.4g}" if path in trial.params else "-" for path in ranges),
                f"{trial.value * report.scale:.{report.digits}f}",
            )
            for trial in sorted(done, key=lambda trial: sign * trial.value)[:most]
        ]
        pruned = sum(trial.state.name == "PRUNED" for trial in study.trials)
        what = f"validation {report.score}" + (f", {report.unit}" if report.unit else "")
        title = f"{unit}: best of {len(done) + pruned} trials, {pruned} of them pruned"
        tables.append(Table(title, ("trial", *ranges, what), rows, words=1))
    return tables


def _optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise ValueError(
            f"expected Optuna for a search, got: {error}; install it with pip install 'remanence-rnn[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
