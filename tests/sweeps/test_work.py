"""Workers: the same results as plain runs, and how failures are handled."""

import json
import os
import threading
from dataclasses import replace

import pytest
import torch
from small_sweeps import ID, kept, left_by, run_plainly, small, until

from remanence import experiments
from remanence.experiments import Way, analyses, results
from remanence.experiments.analyses import Findings
from remanence.sweeps import Grid, Sweep, grid, lease, work
from remanence.sweeps.work import do, do_all
from remanence.training import Budget, Silent, Stopped


def states(sweep):
    return [sweep.state(unit).name for unit in sweep.units]


def leases(sweep):
    return sorted(path.name for path in (sweep.folder / "leases").iterdir())


def breaking(monkeypatch, error, when=lambda unit: True):
    """Some units raise."""
    usual = work.carry_out

    def carry_out(sweep, unit, *rest):
        if when(unit):
            raise error
        usual(sweep, unit, *rest)

    monkeypatch.setattr(work, "carry_out", carry_out)


@pytest.mark.parametrize("together", [1, 2, None])
def test_results_are_those_of_a_plain_run(tmp_path, together):
    sweep = small(tmp_path / "sweep", ("lstm", "plstm"), (1, 2), together, train__lr=["1e-3", "1e-2"])
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done"] * len(sweep.units)
    plain = run_plainly(sweep, tmp_path / "plain")
    assert len(plain) == 2
    assert all(len(files) == 1 + 4 * 5 for files in plain.values())
    assert left_by(sweep) == plain
    assert leases(sweep) == []


def test_a_unit_of_another_process_is_left_alone(tmp_path):
    sweep = small(tmp_path)
    unit = sweep.units[0]
    held = lease.take(sweep.lease(unit), "another")
    assert do(sweep, unit, "cpu", "me", Silent()) is False
    assert states(sweep) == ["running", "queued"]
    do_all(sweep, sweep.units[1:], "cpu", "me", Silent())
    assert states(sweep) == ["running", "done"]
    assert lease.look(sweep.lease(unit)) == ("another", held.nonce)


def test_a_unit_of_another_process_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "WAIT", 0.05)
    sweep = small(tmp_path, seeds=[1])
    held = lease.take(sweep.lease(sweep.units[0]), "another")
    worker = threading.Thread(target=do_all, args=(sweep, sweep.units, "cpu", "me", Silent()))
    worker.start()
    worker.join(0.3)
    assert worker.is_alive()
    assert states(sweep) == ["running"]
    held.give_back()
    worker.join(60)
    assert not worker.is_alive()
    assert states(sweep) == ["done"]


def test_the_owner_of_a_running_unit_is_shown(tmp_path, monkeypatch):
    sweep = small(tmp_path, seeds=[1])
    seen = []
    monkeypatch.setattr(work, "carry_out", lambda sweep, unit, *_: seen.append(sweep.state(unit)))
    do(sweep, sweep.units[0], "cpu", "me", Silent())
    assert [(state.name, state.who) for state in seen] == [("running", "me")]
    assert 0 < seen[0].seconds < 60


def test_finished_units_are_not_run_again(tmp_path, monkeypatch):
    sweep = small(tmp_path)
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    breaking(monkeypatch, AssertionError("it is done"))
    assert do(sweep, sweep.units[0], "cpu", "me", Silent()) is True
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done", "done"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("expected a data set, got none\nand more"), "expected a data set, got none"),
        (ValueError("what?"), "ValueError: what?"),
        (RuntimeError("the kernel\nis broken"), "RuntimeError: the kernel"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried"),
            "out of device memory; run fewer seeds at a time (--together)",
        ),
    ],
)
def test_a_unit_that_raises_has_failed_and_others_go_on(tmp_path, monkeypatch, error, sentence):
    sweep = small(tmp_path, seeds=[1, 2, 3])
    breaking(monkeypatch, error, lambda unit: unit.seeds == (2,))
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done", "failed", "done"]
    assert sweep.failure(sweep.units[1]) == sentence
    assert leases(sweep) == []


def test_failed_units_are_tried_again_once_forgiven(tmp_path):
    sweep = small(tmp_path, seeds=[1])
    sweep.fail(sweep.units[0], "it is too large")
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["failed"]
    sweep.forgive()
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done"]


def test_a_stop_passes_through_and_the_lease_is_free(tmp_path):
    sweep = small(tmp_path)
    unit = sweep.units[0]
    with pytest.raises(Stopped):
        do(sweep, unit, "cpu", "me", Silent(), Budget(1e-9))
    assert states(sweep) == ["queued", "queued"]
    assert leases(sweep) == []
    assert do(sweep, unit, "cpu", "another", Silent())
    assert states(sweep) == ["done", "queued"]


def test_an_interruption_frees_the_lease(tmp_path, monkeypatch):
    sweep = small(tmp_path)
    breaking(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["queued", "queued"]
    assert leases(sweep) == []


def test_a_worker_that_lost_a_unit_stops_and_leaves_it_to_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(lease.take, "__defaults__", (0.2,))
    sweep = small(tmp_path, seeds=[1], train__epochs=[100000], task__train_size=[256])
    (unit,) = sweep.units
    path = results.run_folder(sweep.out(unit), unit.experiment, "plstm", 1) / "metrics.jsonl"

    def take_away():
        until(path.exists)
        lease.take(sweep.lease(unit), "me", 60.0)

    other = threading.Thread(target=take_away)
    other.start()
    assert do(sweep, unit, "cpu", "me", Silent()) is True  # no `Stopped`: nobody asked this process to end
    other.join()
    assert sweep.failure(unit) is None
    assert lease.look(sweep.lease(unit))[0] == "me"
    assert not sweep.is_done(unit)


def test_units_without_training_are_run_as_well(tmp_path):
    sweep = Sweep(tmp_path / "sweep", Grid(["plstm/fig1-decay"], ["smoke"], set={"arguments.steps": [50, 60]}), 1)
    sweep.make()
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done", "done"]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


def test_an_experiment_that_looks_at_its_own_models_does_so(tmp_path, monkeypatch):
    def counted(runs):
        return Findings({"seeds": [run.seed for run in runs]}, [])

    found = grid._found
    monkeypatch.setitem(analyses.KNOWN, "counted", counted)
    monkeypatch.setattr(grid, "_found", lambda *words: replace(found(*words), function="counted"))
    sweep = small(tmp_path / "sweep")
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    work.close(sweep, "cpu")
    unit = sweep.units[0]
    experiments.run(unit.experiment, Way(tmp_path / "plain", torch.device("cpu")), ["plstm"], [1, 2])
    folder = results.folder_of(tmp_path / "plain", unit.experiment)
    assert json.loads((folder / "result.json").read_text())["found"] == {"seeds": [1, 2]}
    assert kept(sweep.out(unit)) == kept(tmp_path / "plain")


def test_an_analysis_looks_at_the_seeds_that_are_named(tmp_path):
    sweep = Sweep(tmp_path / "sweep", Grid(["plstm/kt-and-p"], ["smoke"], ["plstm"], [3]), 1)
    sweep.make()
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    trained = {path.parent.name for path in sweep.folder.rglob("seed-*/result.json")}
    assert trained == {"seed-3"}
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


def test_a_run_locked_by_another_process_has_not_failed(tmp_path):
    filelock = pytest.importorskip("filelock")
    sweep = small(tmp_path, seeds=[1])
    (unit,) = sweep.units
    folder = results.run_folder(sweep.out(unit), unit.experiment, "plstm", 1)
    folder.mkdir(parents=True)
    with filelock.FileLock(folder / "lock"):  # an analysis that needs it, or who lost the lease and saves
        assert do(sweep, unit, "cpu", "me", Silent()) is False
    assert states(sweep) == ["queued"]
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert states(sweep) == ["done"]


def test_no_other_process_has_its_name():
    assert f":{os.getpid()}-" in work.owner_of_this_process()
    assert work.owner_of_this_process() != work.owner_of_this_process()


def test_ids_are_in_the_folders_of_plain_runs(tmp_path):
    sweep = small(tmp_path, seeds=[1])
    do_all(sweep, sweep.units, "cpu", "me", Silent())
    assert (sweep.out(sweep.units[0]) / ID / "smoke" / "plstm" / "seed-1" / "result.json").exists()
