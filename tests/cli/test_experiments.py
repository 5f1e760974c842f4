"""`remanence list`, `show` and `run`: what they print, where, and with which exit code."""

import json
import os
import re
import subprocess
import sys

import pytest
import typer
import yaml
from typer.testing import CliRunner

from remanence.cli import list as listing
from remanence.cli import run, show
from remanence.cli.answers import read_seeds
from remanence.experiments import IDS, find

app = typer.Typer(pretty_exceptions_enable=False)
for name, module in (("list", listing), ("show", show), ("run", run)):
    app.command(name)(module.command)

TINY = ["--preset", "smoke", "--device", "cpu", "--models", "plstm", "--seeds", "1", "--quiet"]
TINY += ["--set", "train.epochs=1", "--set", "task.train_size=64"]


def call(*words, **environment):
    return CliRunner().invoke(app, list(words), env={"NO_COLOR": "1", **environment})


def lines(result):
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


# list


def test_list_shows_every_id_in_full_in_a_pipe():
    result = call("list", COLUMNS="40")
    assert result.exit_code == 0
    shown = [line.split()[0] for line in result.stdout.splitlines() if "/" in line.split(" ")[0]]
    assert shown == list(IDS)
    for experiment in map(find, IDS):
        (line,) = (line for line in result.stdout.splitlines() if line.startswith(f"{experiment.id} "))
        assert experiment.title in line
        assert experiment.reproduces in line


def test_list_fits_a_narrow_terminal_and_keeps_ids_whole():
    pty = pytest.importorskip("pty")
    script = "from remanence.cli.list import command; command()"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "70", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=theirs, env=environment) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            parts.append(part)
        assert process.wait() == 0
    os.close(ours)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", b"".join(parts).decode()).splitlines()
    assert max(map(len, shown)) <= 70
    for id in IDS:
        assert any(id in line for line in shown), id


# show


def test_show_describes_the_experiment():
    result = call("show", "plstm/freq-async", "--preset", "paper")
    assert result.exit_code == 0
    shown = lines(result)
    assert any(line.startswith("reproduces Table 3 and Figure A.5 (Chien et al. 2021") for line in shown)
    assert "plstm plstm 110 37,292 eps 1e-05, task.time_input no, task.periods log-uniform" in shown
    assert "accuracy plstm 92.57 +- 0.5" in shown
    assert "seeds 1, 2, 3, 4, 5" in shown
    assert (
        "- Without time as an input pLSTM is clearly best; it sees the time between samples through its gate." in shown
    )
    assert "remanence run plstm/freq-async --preset paper" in shown


@pytest.mark.parametrize("id", IDS)
def test_show_works_for_every_id(id):
    result = call("show", id)
    assert result.exit_code == 0
    assert find(id).title in result.stdout


@pytest.mark.parametrize("id", ["plstm/copy-200", "plstm/kt-and-p", "fastgate/fig2-toy", "mts/ptb", "own/digits"])
def test_show_prints_the_resolved_configuration_as_yaml(id):
    result = call("show", id, "--preset", "smoke", "--yaml")
    assert result.exit_code == 0
    shown = yaml.safe_load(result.stdout)
    assert (shown["id"], shown["preset"]) == (id, "smoke")


def test_show_applies_overrides():
    result = call("show", "plstm/copy-200", "--yaml", "--set", "train.lr=3e-4")
    assert yaml.safe_load(result.stdout)["models"]["plstm"]["training"]["optimiser"]["lr"] == 3e-4


# run


def test_run_prints_a_table_and_prints_it_again_without_training(tmp_path):
    words = ["run", "plstm/copy-200", *TINY, "--out", str(tmp_path)]
    first = call(*words)
    assert first.exit_code == 0, first.output
    assert "not converged after 2 updates" in first.stderr
    assert "model seeds failed accuracy, % updates to 99 % published single runs" in lines(first)
    assert f"Results: {tmp_path}/plstm/copy-200/smoke" in first.stdout
    again = call(*words)
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "starts" not in again.stderr


def test_run_stops_when_its_budget_is_spent_and_resumes(tmp_path):
    words = ["run", "plstm/copy-200", *TINY, "--out", str(tmp_path)]
    stopped = call(*words, "--budget", "0.000001")
    assert stopped.exit_code == 0
    assert stopped.stdout == ""
    assert "run the same command again to resume" in stopped.stderr
    assert call(*words).exit_code == 0
    assert (
        json.loads((tmp_path / "plstm/copy-200/smoke/plstm/seed-1/result.json").read_text())["status"]
        == "not converged"
    )


def test_run_runs_a_simulation(tmp_path):
    result = call("run", "plstm/fig1-decay", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert "they cross after 35.4 steps" in result.stdout
    assert "200 0.002261 0.2037" in lines(result)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["show", "plstm/copy-20"], "did you mean 'plstm/copy-200'?"),
        (
            ["show", "plstm/copy-200", "--preset", "tiny"],
            "expected preset to be one of smoke, short, paper, got 'tiny'",
        ),
        (["run", "plstm/copy-20"], "did you mean 'plstm/copy-200'?"),
        (["run", "plstm/copy-200", "--preset", "tiny"], "expected preset to be one of smoke, short, paper, got 'tiny'"),
        (["run", "plstm/copy-200", "--models", "lstm,lstn"], "expected model of plstm/copy-200 to be one of lstm,"),
        (["run", "plstm/copy-200", "--seeds", "1-a"], "expected seeds such as 1,2,3 or 1-5, got '1-a'"),
        (["run", "plstm/copy-200", "--seeds", "5-1"], "expected seeds such as 1,2,3 or 1-5, got '5-1'"),
        (["run", "plstm/copy-200", "--seeds", "1-1000000"], "expected at most 10000 seeds, each below 2**32"),
        (["run", "plstm/copy-200", "--seeds", "9" * 30], "expected at most 10000 seeds, each below 2**32"),
        (
            ["run", "plstm/copy-200", "--set", "train.lr=-1"],
            "expected training.optimiser.lr to be at least 0, got -1.0",
        ),
        (
            ["run", "plstm/copy-200", "--set", f"train.batch=1{'0' * 400}"],
            "expected training.batch to be a whole number",
        ),
        (["run", "plstm/copy-200", "--set", "report.digits=-1"], "expected report.digits to be at least 0, got -1"),
        (["run", "plstm/fig1-decay", "--set", "arguments.steps=a"], "expected arguments.steps to be a whole number"),
        (
            ["run", "fastgate/fig2-toy", "--set", "arguments.gates=3"],
            "expected arguments.gates to be a list (each text)",
        ),
        (["run", "plstm/copy-200", "--device", "tpu"], "expected device to be cpu, cuda or cuda:N, got 'tpu'"),
        (["run", "plstm/copy-200", "--budget", "soon"], "expected a budget such as 90s, 9m or 1h30m, got 'soon'"),
        (["run", "plstm/copy-200", "--logger", "paper"], "expected logger to be one of mlflow, wandb, got 'paper'"),
        (["run", "plstm/copy-200", "--set", "train.lrr=3"], "got training.lrr"),
        (["run", "plstm/copy-200", "--set", "task.delay=long"], "expected task.delay to be a whole number, got 'long'"),
        (["run", "plstm/copy-200", "--set", "models.plstm.p=-1"], "expected models.plstm.p to be a positive number"),
        (
            ["run", "fastgate/smnist", "--models", "nru"],
            "expected models of preset short, got 'nru', which it leaves out",
        ),
        (["run", "plstm/fig1-decay", "--models", "lstm"], "expected no models for plstm/fig1-decay, which trains none"),
        (["run", "plstm/fig1-decay", "--set", "arguments.rate=2"], "expected rate between 0 and 1, got 2"),
        (
            ["run", "plstm/kt-and-p", "--unless-in", "results"],
            "expected --unless-in only where no analysis reads the weights, got plstm/kt-and-p",
        ),
        (
            ["run", "mts/ptb", "--unless-in", "results"],
            "expected --unless-in only where no analysis reads the weights, got mts/ptb",
        ),
        (
            ["run", "plstm/copy-200", "--unless-in", "results", "--devices", "cpu,cpu"],
            "expected --devices only with a training experiment, got it with --unless-in",
        ),
        (
            ["run", "plstm/copy-200", "--unless-in", "no-such-folder"],
            "expected a folder of results, got no-such-folder, which is not there",
        ),
    ],
)
def test_bad_input_is_answered_by_one_sentence_and_exit_code_2(words, answer, tmp_path):
    if words[0] == "run":
        words = [*words, "--out", str(tmp_path / "runs")]
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("remanence: expected ")
    assert answer in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_exit_code_2(tmp_path):
    (tmp_path / "file").write_text("")
    result = call("run", "plstm/fig1-decay", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr == f"remanence: expected a folder for results, got the file {tmp_path / 'file'}\n"
    below = call("run", "plstm/fig1-decay", "--out", str(tmp_path / "file" / "below"))
    assert (
        below.stderr
        == f"remanence: expected a folder for results, got {tmp_path / 'file' / 'below'}: Not a directory\n"
    )
    long = call("run", "plstm/fig1-decay", "--out", str(tmp_path / ("x" * 300)))
    assert (long.exit_code, long.stderr.count("\n")) == (2, 1)


def test_another_configuration_in_the_same_folder_is_exit_code_2(tmp_path):
    words = ["run", "plstm/copy-200", *TINY, "--out", str(tmp_path)]
    assert call(*words).exit_code == 0
    other = call(*words, "--set", "train.lr=0.5")
    assert other.exit_code == 2
    assert other.stderr.count("\n") == 1
    assert "expected training.optimiser.lr to be 0.001 as in" in other.stderr


def test_what_has_finished_in_another_folder_is_left_out(tmp_path):
    words = ["run", "plstm/copy-200", *TINY]
    assert call(*words, "--out", str(tmp_path / "one")).exit_code == 0
    again = call(*words, "--out", str(tmp_path / "two"), "--unless-in", str(tmp_path / "one"))
    assert again.exit_code == 0
    assert f"left out, because they have finished in {tmp_path / 'one'}: 1" in again.stderr
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("words", "seeds"),
    [(None, []), ("3", [3]), ("1,2,3", [1, 2, 3]), ("1-5", [1, 2, 3, 4, 5]), ("1-3,7,2", [1, 2, 3, 7])],
)
def test_seeds(words, seeds):
    assert read_seeds(words) == seeds


def test_running_out_of_memory_gives_one_sentence(tmp_path, monkeypatch):
    import torch

    from remanence import experiments

    def run(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")

    monkeypatch.setattr(experiments, "run", run)
    result = call("run", "plstm/copy-200", "--preset", "smoke", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "fewer seeds at a time" in result.stderr
    assert "Traceback" not in result.stderr
