"""The folder of a sweep: errors, and the states of its units."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_sweeps import ID, TINY, small

from remanence.experiments import results
from remanence.sweeps import Grid, Sweep, lease
from remanence.sweeps.grid import one_point

GRID = Grid([ID], ["smoke"], ["plstm"], [1, 2], {"train.lr": ["1e-3", "1e-2"]})


def metrics(sweep, unit, epochs, result=False):
    """As if the seeds of a unit had come so far."""
    for seed, epoch in zip(unit.seeds, epochs, strict=True):
        folder = results.run_folder(sweep.out(unit), unit.experiment, unit.model, seed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_text(f'{{"epoch": 0.1}}\n{{"epoch": {epoch}}}\n')
        if result:
            (folder / "result.json").write_text('{"status": "finished", "updates": 1}')


def test_a_sweep_is_found_again_in_its_folder(tmp_path):
    folder = tmp_path / "some" / "where"
    Sweep(folder, GRID, 1).make()
    found = Sweep.open(folder)
    assert found.grid.plain() == GRID.plain()
    assert found.together == 1
    assert found.units == Sweep(folder, GRID, 1).units
    assert [path.name for path in folder.iterdir()] == ["sweep.yaml"]


def test_the_same_sweep_is_taken_however_its_numbers_are_written(tmp_path):
    Sweep(tmp_path, GRID, 1).make()
    before = (tmp_path / "sweep.yaml").read_bytes()
    Sweep(tmp_path, Grid([ID], ["smoke"], ["plstm"], [1, 2], {"train.lr": [0.001, "0.01"]}), 1).make()
    assert (tmp_path / "sweep.yaml").read_bytes() == before


def test_a_sweep_over_devices_keeps_its_runs_outside_its_own_folder(tmp_path):
    def over(devices, together=None, **values):
        sets = [f"{name.replace('__', '.')}={value}" for name, value in values.items()]
        return Sweep.over_devices(tmp_path, one_point(ID, "smoke", ["plstm"], [1, 2], sets), devices, together)

    asked = [over(["cpu", "cpu"]), over(["cuda:0"]), over(["cpu"], 2), over(["cpu"], train__lr="[1,2]")]
    assert [sweep.together for sweep in asked] == [1, None, 2, 1]
    assert [sweep.grid.set for sweep in asked[-2:]] == [{}, {"train.lr": ["[1,2]"]}]
    assert len({sweep.folder for sweep in asked}) == 4
    assert {sweep.folder.parent for sweep in asked} == {tmp_path / ".sweeps"}
    assert {sweep.out(unit) for sweep in asked[:3] for unit in sweep.units} == {tmp_path}
    asked[0].make()
    assert Sweep.open(over(["cpu", "cpu"]).folder).runs == tmp_path


@pytest.mark.parametrize(
    ("grid", "together", "name"),
    [
        (Grid([ID], ["smoke"], ["plstm"], [1, 2, 3], GRID.set), 1, "seeds"),
        (Grid([ID], ["short"], ["plstm"], [1, 2], GRID.set), 1, "presets"),
        (Grid([ID], ["smoke"], ["lstm"], [1, 2], GRID.set), 1, "models"),
        (Grid([ID], ["smoke"], ["plstm"], [1, 2], {"train.lr": [0.001]}), 1, "set"),
        (Grid(["plstm/copy-500"], ["smoke"], ["plstm"], [1, 2], GRID.set), 1, "ids"),
        (GRID, 2, "together"),
    ],
)
def test_another_sweep_in_the_same_folder_is_refused(tmp_path, grid, together, name):
    Sweep(tmp_path, GRID, 1).make()
    before = (tmp_path / "sweep.yaml").read_bytes()
    with pytest.raises(
        ValueError, match=rf"^expected {name} to be .* as in .*sweep\.yaml, got .*; give another folder"
    ):
        Sweep(tmp_path, grid, together).make()
    assert (tmp_path / "sweep.yaml").read_bytes() == before


def test_a_file_in_the_way_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"^expected a folder for the sweep, got the file .*file$"):
        Sweep(path, GRID).make()
    with pytest.raises(ValueError, match=r"^expected a writable folder, .*file"):
        Sweep(path / "below", GRID).make()
    assert path.read_text() == "mine"


def test_a_folder_of_others_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"^expected a new folder or the folder of this sweep, got .*, which has other files$"
    ):
        Sweep(tmp_path, GRID).make()
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_folder_that_another_process_is_about_to_create_is_accepted(tmp_path):
    (tmp_path / ".writing-01234567-sweep.yaml").write_text("ids: [")  # killed, or right now
    Sweep(tmp_path, GRID, 1).make()
    assert Sweep.open(tmp_path).units == Sweep(tmp_path, GRID, 1).units


def test_many_processes_may_create_the_same_sweep_at_once(tmp_path):
    barrier = threading.Barrier(8)

    def make(folder):
        barrier.wait()
        Sweep(folder, GRID, 1).make()

    for round_ in range(10):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, [tmp_path / f"sweep-{round_}"] * 8))


@pytest.mark.parametrize(
    "grid", [Grid([]), Grid(["plstm/nothing"]), Grid([ID], models=["rnn"]), Grid([ID], set={"train.ler": [1]})]
)
def test_nothing_is_written_for_what_cannot_run(tmp_path, grid):
    with pytest.raises(ValueError, match=r"^expected "):
        Sweep(tmp_path / "new", grid).make()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"ids: [", b"[]", b"{seeds: [1]}"])
def test_a_folder_without_a_sweep_is_answered_by_one_sentence(tmp_path, content):
    if content is not None:
        (tmp_path / "sweep.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=r"^expected [^\n]*$"):
        Sweep.open(tmp_path)


def test_every_point_has_its_runs_in_a_separate_folder(tmp_path):
    sweep = Sweep(tmp_path, GRID, 1)
    assert [sweep.out(unit).relative_to(tmp_path).as_posix() for unit in sweep.units] == [
        *["points/train.lr=0.001"] * 2,
        *["points/train.lr=0.01"] * 2,
    ]


# States.


def test_a_unit_is_queued_until_a_process_takes_it(tmp_path):
    sweep = small(tmp_path)
    first, second = sweep.units
    assert sweep.state(first).name == "queued"
    held = lease.take(sweep.lease(first), "somebody")
    assert (sweep.state(first).name, sweep.state(first).who) == ("running", "somebody")
    assert sweep.state(second).name == "queued"
    held.give_back()
    assert sweep.state(first).name == "queued"


def test_a_unit_with_an_expired_lease_is_queued_again(tmp_path):
    sweep = small(tmp_path)
    unit = sweep.units[0]
    lease.take(sweep.lease(unit), "gone")
    long_ago = time.time() - 2 * lease.EXPIRES
    os.utime(sweep.lease(unit), (long_ago, long_ago))
    assert sweep.state(unit).name == "queued"


def test_progress_and_remaining_time_of_a_unit(tmp_path):
    sweep = small(tmp_path, together=2, train__epochs=[8])
    (unit,) = sweep.units
    assert (sweep.state(unit).share, sweep.state(unit).left) == (0.0, None)
    metrics(sweep, unit, (4, 2))
    assert (sweep.state(unit).name, sweep.state(unit).share, sweep.state(unit).left) == ("queued", 3 / 8, None)
    lease.take(sweep.lease(unit), "somebody")
    assert sweep.state(unit).left in (None, 0.0)  # nobody said when it began
    sweep.beginning(unit).write_text(json.dumps({"at": time.time() - 30, "share": 1 / 8}))
    state = sweep.state(unit)
    assert 30 <= state.seconds < 60
    assert state.left == pytest.approx(state.seconds * 5 / 2)  # two eighths since then, and five to go


def test_a_half_written_line_is_no_error(tmp_path):
    sweep = small(tmp_path, train__epochs=[8])
    unit = sweep.units[0]
    metrics(sweep, unit, (4,))
    path = results.run_folder(sweep.out(unit), unit.experiment, "plstm", 1) / "metrics.jsonl"
    path.write_text('{"epo')
    assert sweep.share(unit) == 0.0
    path.write_text("")
    assert sweep.share(unit) == 0.0


def test_a_unit_is_done_when_all_of_its_seeds_are(tmp_path):
    sweep = small(tmp_path, together=2)
    (unit,) = sweep.units
    metrics(sweep, unit, (1, 1), result=True)
    assert (sweep.state(unit).name, sweep.state(unit).share, sweep.state(unit).left) == ("done", 1.0, None)
    (results.run_folder(sweep.out(unit), unit.experiment, "plstm", 2) / "result.json").unlink()
    assert not sweep.is_done(unit)
    assert sweep.state(unit).name == "queued"


def test_a_unit_that_failed_says_why_until_it_is_forgiven(tmp_path):
    sweep = small(tmp_path)
    first, second = sweep.units
    sweep.fail(first, "it is too lärge")
    assert (sweep.failure(first), sweep.failure(second)) == ("it is too lärge", None)
    assert (sweep.state(first).name, sweep.state(first).reason) == ("failed", "it is too lärge")
    again = Sweep.open(tmp_path)
    assert [again.state(unit).name for unit in again.units] == ["failed", "queued"]
    assert again.forgive() == 1
    assert again.forgive() == 0
    assert sweep.state(first).name == "queued"


def test_failures_are_written_in_readable_form(tmp_path):
    sweep = small(tmp_path)
    sweep.fail(sweep.units[0], "it is too large")
    (path,) = (tmp_path / "ended").iterdir()
    values = " ".join(f"{name}={value[0]}" for name, value in TINY.items())
    assert json.loads(path.read_text()) == {
        "unit": f"{ID} smoke plstm {values} seed 1",
        "reason": "it is too large",
    }


def test_a_half_written_failure_is_ignored(tmp_path):
    sweep = small(tmp_path)
    sweep.fail(sweep.units[0], "it is too large")
    (path,) = (tmp_path / "ended").iterdir()
    path.write_text('{"unit"')
    assert sweep.failure(sweep.units[0]) is None
