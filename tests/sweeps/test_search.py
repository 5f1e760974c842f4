"""Hyperparameter search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from remanence.cli.main import app
from remanence.experiments import results
from remanence.sweeps import Grid, Sweep, lease
from remanence.sweeps import search as searching
from remanence.sweeps.search import PrunedError, Range, Watch
from remanence.training.progress import Silent

pytest.importorskip("optuna")

LR = {"train.lr": Range(1e-4, 1e-1, "log")}


def sweep_in(folder: Path) -> Sweep:
    sweep = Sweep(folder, Grid(["plstm/copy-200"], ["smoke"], ["plstm"], [1, 2]))
    sweep.make()
    return sweep


def go(sweep: Sweep, trials: int, ranges: dict[str, Range] = LR, **more: Any) -> Any:
    searching.search(sweep, ranges, trials, "cpu", "me", Silent(), **more)
    return searching.study_of(sweep, sweep.units[0], pruning=False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("1e-4:1e-2:log", Range(1e-4, 1e-2, "log")),
        ("16:128:int", Range(16, 128, "int")),
        ("-1:0.5", Range(-1, 0.5)),
    ],
)
def test_a_range_is_read(words: str, found: Range) -> None:
    assert Range.parse(words) == found


@pytest.mark.parametrize(
    "words", ["", "1", "2:1", "a:b", "0:1:log", "1.5:3:int", "1:2:wide", "1:2:log:x", "1:inf", "nan:1"]
)
def test_an_invalid_range_is_refused_in_one_sentence(words: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a range such as 1e-4:1e-2:log .*, got"):
        Range.parse(words)


def test_a_study_resumes_with_other_values(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "found")
    first = [trial.params["train.lr"] for trial in go(sweep, 2).trials]
    study = go(sweep, 4)
    values = [trial.params["train.lr"] for trial in study.trials]
    assert first == values[:2]
    assert len(set(values)) == 4
    assert all(1e-4 <= value <= 1e-1 for value in values)
    trial = study.trials[0]
    unit = sweep.units[0]
    at = type(unit)(unit.id, unit.preset, unit.model, unit.seeds, (f"train.lr={trial.params['train.lr']}",))
    runs = results.outcomes(sweep.out(at), at.experiment)["plstm"]
    assert trial.value == pytest.approx(sum(run.score for run in runs if run.score is not None) / 2)
    assert not list((sweep.folder / "leases").iterdir())
    (table,) = searching.table(sweep, LR)
    assert len(table.rows) == 4
    assert [float(row[-1]) for row in table.rows] == sorted((float(row[-1]) for row in table.rows), reverse=True)


def test_a_trial_whose_process_is_gone_is_tried_again_and_one_that_is_held_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SOON", 0.0)
    sweep = sweep_in(tmp_path / "found")
    unit = sweep.units[0]
    study = searching.study_of(sweep, unit, pruning=True)
    import optuna

    space = {path: one.distribution(optuna) for path, one in LR.items()}
    killed, busy = study.ask(space), study.ask(space)
    held = lease.take(searching.lease_of(sweep, unit, busy.number), "somebody else")
    assert held is not None
    study = go(sweep, 2)  # one is held by somebody: there is one to do
    by_number = {trial.number: trial for trial in study.trials}
    assert by_number[killed.number].state.name == "FAIL"
    assert by_number[busy.number].state.name == "RUNNING"
    assert by_number[2].state.name == "COMPLETE"
    assert by_number[2].params == killed.params


def test_a_trial_that_has_just_begun_is_left_to_whoever_began_it(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path / "found")
    unit = sweep.units[0]
    study = searching.study_of(sweep, unit, pruning=True)
    begun = study.ask({"train.lr": LR["train.lr"].distribution(pytest.importorskip("optuna"))})
    searching.take_up(sweep, unit, study)
    assert study.trials[begun.number].state.name == "RUNNING"


def test_a_trial_that_fails_is_noted_counted_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = searching.train_models
    calls: list[Any] = []

    def fails_once(*words: Any) -> Any:
        calls.append(words)
        if len(calls) == 1:
            raise ValueError("expected a smaller batch, got a large one")
        return whole(*words)

    monkeypatch.setattr(searching, "train_models", fails_once)
    sweep = sweep_in(tmp_path / "found")
    study = go(sweep, 2)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE"]
    assert study.trials[0].user_attrs[searching.WHY] == "expected a smaller batch, got a large one"
    assert len(go(sweep, 2).trials) == 2
    assert not list((sweep.folder / "leases").iterdir())


class Trial:
    """Stands in for Optuna's."""

    def __init__(self, bad_from: int) -> None:
        self.bad_from = bad_from
        self.reported: list[tuple[float, int]] = []

    def report(self, value: float, step: int) -> None:
        self.reported.append((value, step))

    def should_prune(self) -> bool:
        return self.reported[-1][1] >= self.bad_from


def test_a_trial_gets_the_mean_over_seeds_once_per_update_and_may_be_pruned() -> None:
    trial = Trial(bad_from=20)
    watch = Watch(trial, "accuracy", Silent())
    watch.begin(["one", "two"], 0, 100)  # type: ignore[list-item]
    for update in (10, 20):
        watch.evaluated("one", {"update": update, "validation": {"accuracy": 0.2}})  # type: ignore[arg-type]
        assert len(trial.reported) == update // 10 - 1
        if update == 10:
            watch.evaluated("two", {"update": update, "validation": {"accuracy": 0.4}})  # type: ignore[arg-type]
    with pytest.raises(PrunedError):
        watch.evaluated("two", {"update": 20, "validation": {"accuracy": 0.4}})  # type: ignore[arg-type]
    assert trial.reported == [(pytest.approx(0.3), 10), (pytest.approx(0.3), 20)]


def test_runs_that_take_turns_report_their_mean_once() -> None:
    trial = Trial(bad_from=20)
    first = Watch(trial, "accuracy", Silent())
    second = first.another()
    first.begin(["one"], 0, 100)  # type: ignore[list-item]
    second.begin(["two"], 0, 100)  # type: ignore[list-item]
    first.evaluated("one", {"update": 10, "validation": {"accuracy": 0.2}})  # type: ignore[arg-type]
    assert trial.reported == []
    second.evaluated("two", {"update": 10, "validation": {"accuracy": 0.4}})  # type: ignore[arg-type]
    first.evaluated("one", {"update": 10, "validation": {"accuracy": 0.2}})  # type: ignore[arg-type]
    assert trial.reported == [(pytest.approx(0.3), 10)]


def test_a_pruned_trial_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pruned(*_: Any) -> None:
        raise PrunedError

    monkeypatch.setattr(searching, "train_models", pruned)
    study = go(sweep_in(tmp_path / "found"), 3)
    assert [trial.state.name for trial in study.trials] == ["PRUNED"] * 3


def command(*words: str) -> Any:
    return CliRunner().invoke(app, ["sweep", "plstm/copy-200", "--preset", "smoke", "--devices", "cpu", *words])


def test_the_command_searches_and_shows_the_best(tmp_path: Path) -> None:
    words = ["--models", "plstm", "--seeds", "1", "--search", "optuna", "--range", "train.lr=1e-4:1e-1:log"]
    found = command(*words, "--range", "train.batch=8:16:int", "--trials", "2", "--out", str(tmp_path / "found"))
    assert found.exit_code == 0, found.output
    assert "best of 2 trials, 0 of them pruned" in found.stdout
    assert "train.batch" in found.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--range", "train.lr=1:2"], "expected --search optuna with --range, got --range alone"),
        (["--search", "optuna"], "expected ranges to search"),
        (["--search", "grid", "--range", "train.lr=1:2"], "expected search to be"),
        (["--search", "optuna", "--range", "train.lr"], "expected --range PATH=LOW:HIGH"),
        (["--search", "optuna", "--range", "train.zz=1:2"], "training.zz"),
        (
            ["--search", "optuna", "--range", "train.lr=1:2", "--set", "train.lr=1"],
            "as a value or as a range, got both",
        ),
        (
            ["--search", "optuna", "--range", "train.lr=1:2", "--launcher", "ray"],
            "expected a search to run on this machine",
        ),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_a_sentence_and_writes_nothing(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    found = command(*words, "--out", str(tmp_path / "found"))
    assert found.exit_code == 2, found.output
    assert sentence in found.output
    assert found.output.count("remanence:") == 1
    assert not (tmp_path / "found").exists()
