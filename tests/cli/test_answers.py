"""What commands print instead of a traceback: for odd values, names, folders, streams and disks."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import remanence
from remanence import files
from remanence.cli.main import app
from remanence.engines import machine
from remanence.printable import printable

TRAINS = [
    "run",
    "plstm/copy-200",
    "--preset",
    "smoke",
    "--models",
    "plstm",
    "--seeds",
    "1",
    "--device",
    "cpu",
    "--quiet",
]
SMALL = ["--set", "train.epochs=1", "--set", "task.train_size=64", "--set", "task.delay=3"]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words):
    """The sentence that is printed instead of a traceback."""
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("remanence: expected "), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    assert run(*TRAINS, *SMALL, "--out", out).exit_code == 0
    return out


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of a finished run without digests, as if its files had been written manually."""
    import shutil

    out = tmp_path / "runs"
    shutil.copytree(finished, out)
    path = out / "plstm/copy-200/smoke/plstm/seed-1"
    (path / "SHA256SUMS").unlink()
    return path


def again(folder):
    return refused(*TRAINS, *SMALL, "--out", folder.parents[4])


# Values.

DEEP = "[" * 5000
MANY = "9" * 400


@pytest.mark.parametrize(
    "value",
    [f"train.lr={DEEP}", f"train.lr={MANY}", f"train.batch={MANY}", "train.lr=2024-99-99", f"report.digits={MANY}"],
    ids=["deep", "many digits", "many digits of a whole number", "a date that is none", "digits"],
)
def test_an_invalid_value_gives_one_sentence(tmp_path, value):
    said = refused(*TRAINS, "--set", value, "--out", tmp_path / "runs")
    assert len(said) < 300
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["report.score", "train.best_by"])
def test_an_unknown_score_is_refused_before_training(tmp_path, name):
    said = refused(*TRAINS, *SMALL, "--set", f"{name}=zz", "--out", tmp_path / "runs")
    assert "to be one of loss, accuracy, sequence_accuracy, got 'zz'" in said
    assert not (tmp_path / "runs").exists()


def test_a_known_score_is_accepted(tmp_path):
    done = run(*TRAINS, *SMALL, "--set", "report.score=sequence_accuracy", "--out", tmp_path / "runs")
    assert done.exit_code == 0
    assert "sequence_accuracy" in done.stdout


# Files.


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", DEEP.encode(), b"layer: 2024-99-99", b"- 1", b""])
def test_a_broken_configuration_gives_one_sentence(folder, content):
    (folder / "config.yaml").write_bytes(content)
    assert "config.yaml" in refused("inspect", folder)
    again(folder)


@pytest.mark.parametrize("content", ['{"status": NaN}', "[]", "{", DEEP, '"words"', ""])
def test_a_broken_result_gives_one_sentence(folder, content):
    (folder / "result.json").write_text(content)
    assert "result.json" in again(folder)
    assert "result.json" in refused("report", folder, "--out", folder / "report.html")


@pytest.mark.parametrize("content", ["[]", "7", '"words"', "{", DEEP])
def test_table_and_report_work_with_a_malformed_machine_file(folder, content):
    (folder / "machine.json").write_text(content)
    assert run(*TRAINS, *SMALL, "--out", folder.parents[4]).exit_code == 0
    assert run("report", folder, "--out", folder / "report.html").exit_code == 0
    assert "machine.json, got a file that cannot be read" in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "metrics.jsonl"])
def test_a_folder_in_place_of_a_file_gives_one_sentence(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    assert name in again(folder)


@pytest.mark.parametrize("name", ["machine.json", "times.jsonl", "metrics.jsonl", "checkpoints", "SHA256SUMS"])
def test_a_folder_or_file_in_the_way_of_a_run_gives_one_sentence(tmp_path, name):
    path = tmp_path / "plstm/copy-200/smoke/plstm/seed-1" / name
    if name == "checkpoints":
        path.parent.mkdir(parents=True)
        path.write_text("")
    else:
        path.mkdir(parents=True)
    assert str(path.parent) in refused(*TRAINS, *SMALL, "--out", tmp_path)


def test_a_finished_run_on_a_read_only_disk_shows_its_table(finished, monkeypatch):
    def read_only(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    first = run(*TRAINS, *SMALL, "--out", finished)
    monkeypatch.setattr(files, "whole", read_only)
    second = run(*TRAINS, *SMALL, "--out", finished)
    assert second.exit_code == 0
    assert second.stdout == first.stdout
    assert "summary.json, got: Read-only file system" in second.stderr


def test_leftovers_of_killed_processes_are_removed_eventually(tmp_path):
    left, young = tmp_path / ".writing-00000000-other.json", tmp_path / ".writing-11111111-other.json"
    for path in (left, young):
        path.write_text("half of it")
    os.utime(left, (1, 1))
    files.write(tmp_path / "summary.json", b"all of it")
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, "summary.json"]


# Names.

RED = "\x1b[31mred\x1b]0;title\x07"


def test_control_characters_are_escaped():
    assert printable(f"{RED}\n\tß █ \u202e") == "\\x1b[31mred\\x1b]0;title\\x07\n\tß █ \\u202e"


@pytest.mark.parametrize(
    "words",
    [
        ["run", f"plstm/{RED}"],
        ["show", RED],
        ["inspect", f"/nowhere/{RED}"],
        ["report", f"/nowhere/{RED}"],
        ["data", RED],
        ["run", "plstm/copy-200", "--set", f"{RED}=1"],
    ],
    ids=lambda words: words[0],
)
def test_escape_sequences_in_names_do_not_reach_a_terminal(words):
    done = run(*words)
    assert done.exit_code == 2
    assert "\x1b" not in done.output + done.stderr
    assert "\x07" not in done.output + done.stderr


def test_escape_sequences_of_a_configuration_do_not_reach_a_terminal(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("model: plstm", 'model: "\\e[31mred"'))
    done = run("inspect", folder)
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "\\x1b[31mred" in done.stdout


# Devices.


class Busy:
    def __init__(self, times, message="CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore"):
        self.times, self.message = times, message

    def __call__(self):
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError(self.message)
        return "ready"


def test_a_device_that_is_busy_for_a_moment_is_waited_for(monkeypatch):
    slept = []
    monkeypatch.setattr(machine.time, "sleep", slept.append)
    device = torch.device("cuda", 0)
    assert machine._patiently(Busy(2), device) == "ready"
    assert slept == list(machine.PAUSES[:2])
    with pytest.raises(ValueError, match=r"^expected cuda:0 to be ready, got: CUDA error: .* unavailable; nvidia-smi"):
        machine._patiently(Busy(99), device)
    slept.clear()
    with pytest.raises(ValueError, match="expected cuda:0 to be ready, got: no driver"):
        machine._patiently(Busy(1, "no driver"), device)
    assert slept == []


# Streams, of real processes.


def process(words, redirected):
    """A shell command."""
    command = f'"$@" {redirected}'
    environment = os.environ | {"PYTHONPATH": str(Path(remanence.__file__).parents[1])}
    arguments = ["sh", "-c", command, "sh", sys.executable, "-m", "remanence", *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        *(pytest.param(w, marks=pytest.mark.slow) for w in (["show", "plstm/copy-200", "--yaml"], ["--version"])),
    ],
    ids=lambda w: w[0],
)
def test_a_full_stdout_gives_one_sentence(words):
    done = process(words, "> /dev/full")
    assert done.returncode == 2
    assert done.stderr == "remanence: expected to write to standard output, got: No space left on device\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "closed", [*(pytest.param(some, marks=pytest.mark.slow) for some in (">&-", ">&- 2>&-")), "<&- >&- 2>&-"]
)
def test_training_works_with_closed_standard_streams(tmp_path, closed, finished):
    done = process([*TRAINS, *SMALL, "--out", tmp_path], closed)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    name = "plstm/copy-200/smoke/plstm/seed-1/result.json"
    assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_log_on_a_full_disk_does_not_stop_training(tmp_path):
    done = process([*TRAINS, *SMALL, "--out", tmp_path], "2> /dev/full")
    assert done.returncode == 0
    assert "plstm" in done.stdout
