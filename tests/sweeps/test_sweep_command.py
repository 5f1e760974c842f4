"""`remanence sweep`: what it prints, where, and with which exit code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_sweeps import ID, PATIENCE, call, left_by, run_plainly, until

from remanence import sweeps
from remanence.experiments import results
from remanence.sweeps import Launcher, Sweep, lease, work
from remanence.sweeps.work import do_all
from remanence.training import Silent

TINY = ["--preset", "smoke", "--models", "plstm", "--seeds", "1,2", "--devices", "cpu"]
TINY += ["--set", "train.epochs=1", "--set", "task.train_size=64"]
RATES = ["--set", "train.lr=1e-3,1e-2"]
LONGER = [*TINY[:8], "--set", "train.epochs=60", "--workers", "2"]


@pytest.fixture
def here(monkeypatch):
    """The local launcher does everything in this process."""

    def launch(sweep, places, look):
        look()
        do_all(sweep, sweep.units, places.devices[0], "here", Silent())
        look()

    monkeypatch.setattr(sweeps, "launcher_named", lambda name: Launcher(lambda places: None, launch))


@pytest.fixture
def never(monkeypatch):
    """It is an error to start anything."""

    def launch(*_):
        raise AssertionError("nothing is to be started")

    monkeypatch.setattr(sweeps, "launcher_named", lambda name: Launcher(lambda places: None, launch))


def lines(result):
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def fail_at(monkeypatch, seed):
    usual = work.carry_out

    def carry_out(sweep, unit, *rest):
        if unit.seeds == (seed,):
            raise RuntimeError("the device is on fire")
        usual(sweep, unit, *rest)

    monkeypatch.setattr(work, "carry_out", carry_out)


def test_a_table_over_values_has_the_best_marked(tmp_path, here):
    words = ["sweep", ID, *TINY, *RATES, "--out", tmp_path]
    result = call(*words)
    assert result.exit_code == 0, result.output
    shown = lines(result)
    assert "model train.epochs task.train_size train.lr seeds failed accuracy, % updates to 99 %" in shown
    rows = [line for line in shown if line.startswith("plstm 1 64 ")]
    assert [row.split()[3] for row in rows] == ["0.001", "0.01"]
    assert sum("*" in row for row in rows) == 1
    assert shown[-1] == f"Results: {tmp_path}"
    said = result.stderr.splitlines()
    assert len(said) == 8
    assert said[0] == f"{ID} smoke plstm train.epochs=1 task.train_size=64 train.lr=0.001 seed 1: queued"
    assert said[-1].endswith("train.lr=0.01 seed 2: done")
    table = json.loads((tmp_path / "table.json").read_text())
    assert {point["set"]["train.lr"] for point in table[ID]["smoke"].values()} == {"0.001", "0.01"}


def test_the_same_command_shows_the_same_table_at_once(tmp_path, here, monkeypatch):
    words = ["sweep", ID, *TINY, "--out", tmp_path]
    first = call(*words)
    monkeypatch.setattr(work, "carry_out", None)
    again = call(*words)
    assert (again.exit_code, again.stdout) == (0, first.stdout)


def test_one_point_is_shown_beside_published_numbers(tmp_path, here):
    result = call("sweep", ID, *TINY, "--out", tmp_path)
    assert result.exit_code == 0
    assert "model seeds failed accuracy, % updates to 99 % published single runs" in lines(result)


def test_a_file_and_options_are_the_same_sweep(tmp_path, here):
    path = tmp_path / "grid.yaml"
    path.write_text(
        f"{{ids: {ID}, presets: smoke, models: plstm, seeds: [1, 2], "
        "set: {train.epochs: 1, task.train_size: 64, train.lr: [0.001, 1e-2]}}"
    )
    first = call("sweep", path, "--out", tmp_path / "sweep", "--devices", "cpu")
    assert first.exit_code == 0, first.output
    again = call("sweep", ID, *TINY, *RATES, "--out", tmp_path / "sweep")
    assert (again.exit_code, again.stdout) == (0, first.stdout)


def test_json_lines_report_every_change_and_the_results(tmp_path, here):
    result = call("sweep", ID, *TINY, "--out", tmp_path, "--json")
    assert result.exit_code == 0
    *changes, last = map(json.loads, result.stdout.splitlines())
    assert [(row["unit"][-1], row["state"]) for row in changes] == [
        ("1", "queued"),
        ("2", "queued"),
        ("1", "done"),
        ("2", "done"),
    ]
    assert set(changes[0]) == {"unit", "state", "share", "left_s", "who", "reason"}
    assert last == {"results": json.loads((tmp_path / "table.json").read_text())}
    assert result.stderr == ""


def test_what_failed_is_exit_code_1_until_it_is_tried_again(tmp_path, here, monkeypatch):
    words = ["sweep", ID, *TINY, "--out", tmp_path]
    with monkeypatch.context() as patch:
        fail_at(patch, 2)
        result = call(*words)
    unit = f"{ID} smoke plstm train.epochs=1 task.train_size=64 seed 2"
    sentence = f"remanence: {unit} failed: RuntimeError: the device is on fire"
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == sentence
    assert f"{unit}: failed: RuntimeError: the device is on fire" in result.stderr.splitlines()
    again = call(*words)
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (1, sentence)
    retried = call(*words, "--retry")
    assert retried.exit_code == 0, retried.output
    assert call(*words).exit_code == 0


def test_a_unit_that_has_its_results_has_not_failed(tmp_path, here):
    words = ["sweep", ID, *TINY, "--out", tmp_path]
    assert call(*words).exit_code == 0
    sweep = Sweep.open(tmp_path)
    sweep.fail(sweep.units[0], "its process ended 4 times")  # and another finished it meanwhile
    assert sweep.state(sweep.units[0]).name == "done"
    assert call(*words).exit_code == 0


def test_remaining_units_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "launcher_named", lambda name: Launcher(lambda places: None, lambda *_: None))
    result = call("sweep", ID, *TINY, "--out", tmp_path)
    assert result.exit_code == 1
    assert "2 units are not done; run the same command again to resume" in result.stderr


def test_a_summary_that_lacks_a_run_is_rewritten(tmp_path, here):
    """Two workers that end at the same time may each write a summary without the other's run, one over the other."""
    words = ["sweep", ID, *TINY, "--out", tmp_path]
    call(*words)
    sweep = Sweep.open(tmp_path)
    unit = sweep.units[0]
    path = results.folder_of(sweep.out(unit), unit.experiment) / "summary.json"
    before = path.read_bytes()
    lacking = json.loads(before)
    del lacking["models"]["plstm"]["seeds"]["2"]
    results.save(path, lacking)
    assert call(*words).exit_code == 0
    assert path.read_bytes() == before


def test_a_run_over_devices_ends_with_the_table_of_a_plain_run(tmp_path, here):
    words = ["run", ID, *TINY[:6], *TINY[-4:]]
    plain = call(*words, "--device", "cpu", "--quiet", "--out", tmp_path / "plain")
    result = call(*words, "--devices", "cpu,cpu", "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert result.stdout.replace(str(tmp_path / "runs"), str(tmp_path / "plain")) == plain.stdout
    assert result.stderr.splitlines()[-1] == f"{ID} smoke plstm train.epochs=1 task.train_size=64 seed 2: done"


def test_what_failed_in_a_run_over_devices_is_exit_code_1_and_tried_again(tmp_path, here, monkeypatch):
    words = ["run", ID, *TINY[:6], *TINY[-4:], "--devices", "cpu,cpu", "--out", tmp_path]
    with monkeypatch.context() as patch:
        fail_at(patch, 2)
        result = call(*words)
    unit = f"{ID} smoke plstm train.epochs=1 task.train_size=64 seed 2"
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == f"remanence: {unit} failed: RuntimeError: the device is on fire"
    assert call(*words).exit_code == 0


# --status


def test_the_status_is_shown_and_nothing_is_done(tmp_path, never, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "launcher_named", lambda name: Launcher(lambda places: None, lambda *_: None))
        call("sweep", ID, *TINY, "--out", tmp_path)
    sweep = Sweep.open(tmp_path)
    lease.take(sweep.lease(sweep.units[1]), "somebody")
    before = sorted(tmp_path.rglob("*"))
    result = call("sweep", "--status", "--out", tmp_path)
    assert result.exit_code == 0
    assert lines(result)[0] == f"{tmp_path}: 1 queued, 1 running, 0 done, 0 failed"
    assert lines(result)[-1] == f"{sweep.units[1]} running 0 % somebody"
    plain = call("sweep", "--status", "--json", "--out", tmp_path)
    assert [json.loads(line)["state"] for line in plain.stdout.splitlines()] == ["queued", "running"]
    assert sorted(tmp_path.rglob("*")) == before


def test_no_sweep_has_no_status(tmp_path):
    result = call("sweep", "--status", "--out", tmp_path / "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("remanence: expected a sweep in ")
    assert result.stderr.count("\n") == 1


# Bad input.


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "expected experiments from `remanence list`, or a YAML file with the grid, got none"),
        (["plstm/copy-20"], "did you mean 'plstm/copy-200'?"),
        ([ID, "--preset", "tiny"], "got 'tiny'"),
        ([ID, "--models", "plsmt"], "did you mean 'plstm'?"),
        ([ID, "--seeds", "3-1"], "expected seeds such as 1,2,3 or 1-5, got '3-1'"),
        ([ID, "--set", "train.lr"], "expected --set PATH=VALUE,.., such as train.lr=1e-3,3e-4, got 'train.lr'"),
        ([ID, "--set", "train.lr="], "expected values for every path of a sweep"),
        ([ID, "--set", "train.ler=1"], "ler"),
        ([ID, "--set", "train.lr=[1"], "[1"),
        ([ID, "--launcher", "rey"], "expected launcher to be one of local, ray, slurm, got 'rey'; did you mean 'ray'?"),
        ([ID, "--devices", "tpu"], "expected device to be cpu, cuda or cuda:N, got 'tpu'"),
        ([ID, "--devices", "cuda:99"], "expected a device of this machine, got 'cuda:99'"),
        (
            [ID, "--launcher", "ray", "--devices", "tpu"],
            "expected --devices cpu or cuda with --launcher ray",
        ),
        ([ID, "--option", "address"], "expected --option NAME=VALUE, got 'address'"),
        (["nowhere.yaml"], "expected a YAML file with a grid, got nowhere.yaml"),
        (["broken.yaml"], "broken.yaml"),
        (["empty.yaml"], "expected a sweep to be a mapping with ids, got NoneType"),
        (["good.yaml", "--seeds", "1"], "expected a grid in good.yaml or in options, got both"),
        (["good.yaml", "--out", "good.yaml"], "expected a folder for the sweep, got the file good.yaml"),
        (["good.yaml", "--out", "good.yaml/below"], "good.yaml"),
        (["good.yaml", "--out", "."], "which has other files"),
    ],
)
def test_bad_input_is_answered_by_one_sentence_and_exit_code_2(tmp_path, monkeypatch, words, answer):
    monkeypatch.chdir(tmp_path)
    for launcher in ("local", "ray", "slurm"):
        monkeypatch.setattr(f"remanence.sweeps.launchers.{launcher}.expect", lambda places: None)
        monkeypatch.setattr(f"remanence.sweeps.launchers.{launcher}.launch", None)  # nothing is to be started
    Path("good.yaml").write_text(f"ids: {ID}")
    Path("broken.yaml").write_text("ids: [")
    Path("empty.yaml").write_text("")
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    result = call("sweep", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("remanence: expected ")
    assert answer in result.stderr
    assert result.stderr.count("\n") == 1
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_cuda_where_there_is_none_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = call("sweep", ID, "--devices", "cuda", "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert result.stderr.startswith("remanence: expected a CUDA device of this machine, got 'cuda'")
    assert not (tmp_path / "new").exists()


def test_another_sweep_in_the_same_folder_is_refused(tmp_path, never, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "launcher_named", lambda name: Launcher(lambda places: None, lambda *_: None))
        call("sweep", ID, *TINY, "--out", tmp_path)
    result = call("sweep", ID, *TINY, *RATES, "--out", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("remanence: expected set to be {")
    assert "; give another folder (--out)\n" in result.stderr
    assert result.stderr.count("\n") == 1


# Processes.


def begin(*words):
    command = [sys.executable, "-m", "remanence", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "NO_COLOR": "1"})


def workers_of(folder):
    """Processes that work on a sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"remanence.sweeps.work" in words and str(folder).encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_the_same_command_goes_on(tmp_path, number):
    folder = tmp_path / "sweep"
    words = ["sweep", ID, *LONGER, "--out", folder]
    process = begin(*words)
    until(lambda: process.poll() is not None or any(folder.rglob("checkpoints/step-*")))
    assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert said.endswith("remanence: stopped; run the same command again to resume\n")
    sweep = Sweep.open(folder)
    assert not all(map(sweep.is_done, sweep.units))
    assert [sweep.state(unit).name for unit in sweep.units if not sweep.is_done(unit)].count("queued") > 0
    assert list((folder / "leases").iterdir()) == []
    if Path("/proc").exists():
        assert workers_of(folder) == []
    again = begin(*words)
    table, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    assert "Results: " in table
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.long
def test_two_commands_on_one_folder_do_every_unit_once(tmp_path):
    folder = tmp_path / "sweep"
    words = ["sweep", ID, *TINY[:2], "--devices", "cpu", *RATES, "--out", folder, "--workers", "1"]
    processes = [begin(*words) for _ in range(2)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert all("expected" not in words and "Traceback" not in words for words in said), said
    assert [process.returncode for process in processes] == [0, 0], said
    sweep = Sweep.open(folder)
    assert len(sweep.units) == 12
    assert all(map(sweep.is_done, sweep.units))
    starts = [path.read_text().count('"start"') for path in folder.rglob("times.jsonl")]
    assert starts == [1] * 12
    logs = [path.read_text() for path in (folder / "logs").iterdir()]
    assert all("starts at" in words for words in logs)
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.long
def test_an_analysis_waits_for_what_another_worker_trains(tmp_path):
    words = ["plstm/kt-and-p", ID, "--preset", "smoke", "--models", "plstm", "--devices", "cpu", "--workers", "2"]
    process = begin("sweep", *words, "--out", tmp_path)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
