"""`torchrun -m remanence run` is one run: its results, its output, its exit."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ranked import Ranked, commands
from safetensors.torch import load_file
from small_runs import content

pytestmark = pytest.mark.long

DIGITS = ["run", "own/digits", "--preset", "smoke", "--models", "lstm", "--seeds", "1", "--device", "cpu", "--quiet"]


def torchrun(folder, *words):
    """The real thing."""
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "remanence"]
    return subprocess.Popen(
        [*two, *words, "--out", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def in_ranks(tmp_path, size, words, float64=False):
    group = Ranked(tmp_path / f"said-{size}", commands, words, float64, size=size)
    return group.end(), group.said


@pytest.mark.slow
def test_it_trains_once_and_prints_once(tmp_path):
    process = torchrun(tmp_path / "runs", *DIGITS)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert len(re.findall(r"^own/digits, preset smoke", out, re.M)) == 1
    assert out.count("Results: ") == 1
    assert len(re.findall(r"own/digits lstm seed 1: starts at update 0", err)) == 1
    folder = tmp_path / "runs" / "own" / "digits" / "smoke"
    machine = json.loads((folder / "lstm" / "seed-1" / "machine.json").read_text())
    assert machine["processes"] == 2
    codes, (said,) = in_ranks(tmp_path, 1, [*DIGITS, "--out", str(tmp_path / "runs")])  # it has ended: anyone may look
    assert codes == [0]
    assert said == out
    assert not list(folder.glob("**/.writing-*"))


def test_torchrun_reports_a_refusal(tmp_path):
    process = torchrun(tmp_path / "runs", *DIGITS, "--set", "train.batch=1")
    out, err = process.communicate(timeout=200)
    assert process.returncode != 0
    assert out == ""
    sentence = "remanence: expected training.batch to be at least the number of processes (2), got 1"
    assert err.splitlines().count(sentence) == 1
    assert re.search(r"exitcode *: 2", err)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="the system names no children")
def test_killed_and_stopped_it_resumes_bit_for_bit(tmp_path):
    words = [*DIGITS, "--set", "train.epochs=12", "--set", "train.checkpoint_every=3"]
    assert in_ranks(tmp_path, 2, [*words, "--out", str(tmp_path / "undisturbed")])[0] == [0, 0]
    checkpoints = tmp_path / "runs" / "own" / "digits" / "smoke" / "lstm" / "seed-1" / "checkpoints"

    def newest():
        return max((path.name for path in checkpoints.glob("step-*")), default="")

    for how in (signal.SIGKILL, signal.SIGTERM):
        process, before = torchrun(tmp_path / "runs", *words), newest()
        while newest() == before and process.poll() is None:
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(how)
        if how == signal.SIGKILL:  # torchrun would end its processes; as it cannot, they would go on
            for child in children:
                os.kill(int(child), how)
        _, err = process.communicate(timeout=200)
        assert process.returncode != 0, err
        assert not list(tmp_path.glob("runs/**/result.json"))
    assert "stopped by SIGTERM" in err
    process = torchrun(tmp_path / "runs", *words)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "resumes at update" in err
    assert content(tmp_path / "runs") == content(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "own/nothing"], "expected "),
        (["run", "own/digits", "--set", "nope=3"], "expected the configuration to have fields among .* got nope"),
        (["run", "own/digits", "--seeds", "one"], "expected seeds such as 1,2,3 or 1-5, got 'one'"),
        (
            ["run", "own/digits", "--devices", "cpu,cpu"],
            "expected --devices only with a training experiment, got it with torchrun",
        ),
        (["run", "own/digits", "--device", "cuda:1"], "expected cpu or cuda under torchrun, .* got cuda:1"),
        (
            ["run", "own/digits", "--preset", "smoke", "--set", "train.batch=1"],
            "expected training.batch to be at least",
        ),
        (
            ["run", "plstm/fig1-decay", "--preset", "smoke"],
            "expected one process or a training, got 2 processes and the",
        ),
    ],
    ids=["experiment", "path", "seeds", "devices", "device", "batch", "simulation"],
)
def test_all_ranks_fail_and_the_first_reports_why(tmp_path, words, sentence):
    codes, said = in_ranks(tmp_path, 2, [*words, "--out", str(tmp_path / "runs")])
    assert codes == [2, 2]
    assert re.fullmatch(f"remanence: {sentence}.*\n", said[0])
    assert said[1] == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_first_rank_alone_needs_the_folder(tmp_path):
    """Ranks on other machines may not see it."""
    codes, said = in_ranks(tmp_path, 2, [*DIGITS, "--out", str(tmp_path / "runs-{rank}")])
    assert codes == [0, 0], said
    assert "finished after" in said[0]
    assert said[1] == ""
    assert not (tmp_path / "runs-1").exists()
    again, said = in_ranks(tmp_path, 2, [*DIGITS, "--out", str(tmp_path / "runs-{rank}")])  # the first knows the result
    assert again == [0, 0]
    assert "Results: " in said[0]
    assert not (tmp_path / "runs-1").exists()


def test_a_file_in_place_of_the_folder_is_refused_by_all(tmp_path):
    (tmp_path / "runs").write_text("")
    codes, said = in_ranks(tmp_path, 2, [*DIGITS, "--out", str(tmp_path / "runs")])
    assert codes == [2, 2]
    assert said == [f"remanence: expected a folder for results, got the file {tmp_path / 'runs'}\n", ""]


def test_a_sweep_is_not_for_torchrun(tmp_path):
    codes, said = in_ranks(tmp_path, 2, ["sweep", "own/digits", "--out", str(tmp_path / "sweep")])
    assert codes == [2, 2]
    assert all(words.startswith("remanence: expected a single process, got one of 2") for words in said)
    assert not (tmp_path / "sweep").exists()


def expect_same_results(tmp_path, id):
    """Of one process and of two ranks, in float64: every weight within 1e-10."""
    words = ["run", id, "--preset", "smoke", "--seeds", "1", "--device", "cpu", "--quiet"]
    for size in (1, 2):
        codes, said = in_ranks(tmp_path, size, [*words, "--out", str(tmp_path / str(size))], float64=True)
        assert codes == [0] * size, said
    one, two = tmp_path / "1", tmp_path / "2"
    assert content(one).keys() == content(two).keys()
    found = list(one.rglob("*.safetensors"))
    assert found
    for path in found:
        expected, other = load_file(path), load_file(two / path.relative_to(one))
        assert any(value.dtype == torch.float64 for value in expected.values())
        assert expected.keys() == other.keys()
        for name, value in expected.items():
            if name == "metrics":  # a text
                continue
            torch.testing.assert_close(other[name], value, rtol=0, atol=1e-10, msg=f"{path} {name}")


@pytest.mark.parametrize(
    "id", ["own/digits", *(pytest.param(id, marks=pytest.mark.slow) for id in ("own/demo", "mts/dyck2"))]
)
def test_two_ranks_train_what_one_process_trains(tmp_path, id):
    """A classification, a regression, and strings of unequal lengths."""
    expect_same_results(tmp_path, id)


@pytest.mark.slow
def test_two_ranks_train_the_language_model_that_one_process_trains(tmp_path, real_data):
    """Carried states, chunks of random lengths, dropout of words, outputs and weights, penalties."""
    with real_data("ptb"):
        expect_same_results(tmp_path, "mts/ptb")
