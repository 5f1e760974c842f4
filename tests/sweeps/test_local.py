"""Local workers: the same results as plain runs, whatever happens to them."""

import os
import subprocess
import sys
import time

import pytest
from small_sweeps import left_by, run_plainly, small, until

from remanence.sweeps import Places, lease
from remanence.sweeps.launchers import launcher_named, local
from remanence.sweeps.work import do
from remanence.training import Silent

LONGER = {"train__epochs": [60], "task__train_size": [256]}
"""Values of a run that takes seconds."""


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(local, "MOMENT", 0.02)


def states(sweep):
    return [sweep.state(unit).name for unit in sweep.units]


def ending(code):
    """A process that ends."""
    return subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({code})"])


def recorded(monkeypatch):
    """Workers, as they are started."""
    usual, workers = local.start, []

    def start(*words):
        workers.append(usual(*words))
        return workers[-1]

    monkeypatch.setattr(local, "start", start)
    return workers


def test_launchers_have_names():
    assert [launcher_named(name).launch.__module__.rpartition(".")[2] for name in ("local",)] == ["local"]
    with pytest.raises(
        ValueError, match=r"^expected launcher to be one of local, ray, slurm, got 'loca'; did you mean"
    ):
        launcher_named("loca")


def test_nothing_is_started_if_no_units_are_left(tmp_path, monkeypatch, quickly):
    sweep = small(tmp_path, seeds=[1, 2])
    do(sweep, sweep.units[0], "cpu", "me", Silent())
    sweep.fail(sweep.units[1], "it is too large")
    monkeypatch.setattr(local, "start", None)
    looks = []
    local.launch(sweep, Places(["cpu"], 2), lambda: looks.append(states(sweep)))
    assert looks == [["done", "failed"]]


def test_there_are_as_many_workers_as_places_and_no_more_than_units(tmp_path, monkeypatch, quickly):
    def started(devices, workers, seeds):
        found = []

        def start(sweep, device, threads):
            found.append((device, threads))
            return local.Worker(device, f"worker-{len(found)}", ending(0))

        monkeypatch.setattr(local, "start", start)
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        sweep = small(tmp_path / f"{len(devices)}-{workers}-{len(seeds)}", seeds=seeds)
        local.launch(sweep, Places(devices, workers), lambda: None)
        return found

    assert started(["cpu"], 2, [1, 2, 3]) == [("cpu", 4)] * 2
    assert started(["cuda:0", "cuda:1"], 1, [1, 2, 3]) == [("cuda:0", 4), ("cuda:1", 4)]
    assert started(["cpu"], 16, [1, 2]) == [("cpu", 1)] * 2


def test_a_unit_whose_process_always_dies_has_failed_after_some_tries_and_others_go_on(tmp_path, monkeypatch, quickly):
    sweep = small(tmp_path, seeds=[1, 2])
    doomed, other = sweep.units
    starts = []

    def start(sweep, device, threads):
        owner = f"worker-{len(starts)}"
        starts.append(owner)
        assert len(starts) < 20
        if sweep.failure(doomed) is None:
            assert lease.take(sweep.lease(doomed), owner) is not None  # what died before it has let go
            return local.Worker(device, owner, ending(9))
        do(sweep, other, "cpu", owner, Silent())
        return local.Worker(device, owner, ending(0))

    monkeypatch.setattr(local, "start", start)
    local.launch(sweep, Places(["cpu"], 1), lambda: None)
    assert states(sweep) == ["failed", "done"]
    assert len(starts) == local.AGAIN + 2
    log = local.log_of(sweep, starts[local.AGAIN])
    assert sweep.failure(doomed) == f"its process died {local.AGAIN + 1} times, with code 9; see {log}"


def test_workers_that_die_before_they_do_anything_are_not_started_for_ever(tmp_path, monkeypatch, quickly):
    sweep = small(tmp_path, seeds=[1, 2])
    starts = []

    def start(sweep, device, threads):
        starts.append(device)
        if len(starts) > 50:
            raise KeyboardInterrupt
        return local.Worker(device, f"worker-{len(starts)}", ending(1))

    monkeypatch.setattr(local, "start", start)
    try:
        local.launch(sweep, Places(["cpu"], 1), lambda: None)
    except ValueError as error:
        assert str(error).startswith("expected ")  # noqa: PT017  or it fails what is left
    except KeyboardInterrupt:
        pass
    assert len(starts) <= 50


def test_workers_are_stopped_when_the_launcher_is(tmp_path, monkeypatch, quickly):
    sweep = small(tmp_path, seeds=[1, 2])
    found = []

    def start(sweep, device, threads):
        process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        found.append(local.Worker(device, f"worker-{len(found)}", process))
        return found[-1]

    def look():
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "start", start)
    with pytest.raises(KeyboardInterrupt):
        local.launch(sweep, Places(["cpu"], 2), look)
    assert [worker.process.poll() for worker in found] == [-15, -15]


@pytest.mark.long
@pytest.mark.slow
def test_results_are_those_of_a_plain_run(tmp_path):
    sweep = small(tmp_path / "sweep", ("lstm", "plstm"), (1, 2), 1, train__lr=["1e-3", "1e-2"])
    local.launch(sweep, Places(["cpu"], 2), lambda: None)
    assert states(sweep) == ["done"] * 8
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")
    assert list((sweep.folder / "leases").iterdir()) == []
    logs = [path.read_text() for path in (sweep.folder / "logs").iterdir()]
    assert len(logs) == 2
    assert sum(words.count("not converged after") for words in logs) == 8


@pytest.mark.slow
@pytest.mark.long
def test_workers_that_are_killed_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "MOMENT", 0.05)
    workers = recorded(monkeypatch)
    sweep = small(tmp_path / "sweep", ("lstm", "plstm"), (1, 2), 1, **LONGER)
    killed, came = [], {}

    def look():
        """Kill who is in the middle of a unit."""
        for unit in sweep.units:
            held = lease.look(sweep.lease(unit))
            if len(killed) < 3 and held is not None and came.get(unit, 0) < sweep.share(unit) < 0.9:
                (worker,) = [worker for worker in workers if worker.owner == held[0]]
                if worker.process.poll() is None and not sweep.is_done(unit):
                    worker.process.kill()
                    worker.process.wait()
                    killed.append(unit)
                    came[unit] = sweep.share(unit)
                    return

    local.launch(sweep, Places(["cpu"], 2), look)
    assert len(killed) == 3
    assert len(workers) == 5
    assert states(sweep) == ["done"] * 4
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")
    starts = [path.read_text().count('"start"') for path in sorted(sweep.folder.rglob("times.jsonl"))]
    assert sum(starts) >= 4 + 3


@pytest.mark.long
@pytest.mark.slow
def test_workers_that_are_stopped_save_and_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "MOMENT", 0.05)
    workers = recorded(monkeypatch)
    sweep = small(tmp_path / "sweep", ("plstm",), (1,), 1, **LONGER)
    (unit,) = sweep.units
    asked = []

    def look():
        if not asked and sweep.share(unit) > 0:
            workers[0].process.terminate()
            asked.append(unit)

    local.launch(sweep, Places(["cpu"], 1), look)
    assert workers[0].process.returncode == 143
    assert states(sweep) == ["done"]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


@pytest.mark.long
@pytest.mark.slow
def test_units_of_a_dead_owner_are_run_as_well(tmp_path):
    sweep = small(tmp_path, seeds=[1, 2])
    path = sweep.lease(sweep.units[0])
    lease.take(path, "gone")
    moment = time.time() - lease.EXPIRES + 8  # it expires in so many seconds
    os.utime(path, (moment, moment))
    local.launch(sweep, Places(["cpu"], 2), lambda: None)
    assert states(sweep) == ["done", "done"]


@pytest.mark.long
def test_a_unit_that_raises_has_failed_and_others_go_on(tmp_path):
    sweep = small(tmp_path, seeds=[1, 2])
    unit = sweep.units[0]
    folder = sweep.out(unit) / unit.id / "smoke" / "plstm" / "seed-1"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    local.launch(sweep, Places(["cpu"], 1), lambda: None)
    assert states(sweep) == ["failed", "done"]
    assert "\n" not in sweep.failure(unit)


@pytest.mark.long
def test_a_worker_does_not_get_signals_of_the_terminal(tmp_path, monkeypatch):
    workers = recorded(monkeypatch)
    sweep = small(tmp_path, seeds=[1])
    groups = []

    def look():
        if workers[0].process.poll() is None:
            groups.append(os.getpgid(workers[0].process.pid))

    local.launch(sweep, Places(["cpu"], 1), look)
    until(lambda: groups)
    assert os.getpgid(0) not in groups
