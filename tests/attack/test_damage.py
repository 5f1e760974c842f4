"""Random damage to the files of a run: it is restored, or refused in one sentence; a result never changes silently."""

from __future__ import annotations

import json
import operator
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch

from remanence.experiments import find, load_model, plan, results
from remanence.experiments.sections import gather
from remanence.experiments.sections.run_folders import RunFolder
from remanence.training import Silent, train

EXPERIMENT = find(
    "plstm/copy-200",
    "smoke",
    ["train.epochs=3", "train.evaluate_every=2", "task.train_size=64", "task.validation_size=16", "task.delay=3"],
)
MODEL = "plstm"
MADE_ANEW = {"machine.json", "times.jsonl", "SHA256SUMS", "lock"}


class Crash(Silent):
    """Ends the work at an update, as a crash would."""

    def wants_loss(self):
        return True

    def step(self, update, loss=None):
        if update == 5:
            raise KeyboardInterrupt


def the_run(folder):
    ((run,),) = plan(EXPERIMENT, folder, [MODEL], [1]).values()
    return run


def seen(folder):
    """What somebody is told of a run, and how."""
    path = the_run(folder).directory
    run = RunFolder.read(path)
    if run.ended:
        results.outcome(path, 1, EXPERIMENT.report, EXPERIMENT.models[MODEL])
    return {
        "description": run.description,
        "result": run.files.result,
        "metrics": run.files.metrics,
        "machine": run.machine,
        "times": run.times,
        "problems": list(run.problems),
    }


def weights(folder):
    return {name: value.clone() for name, value in load_model(the_run(folder).directory).state_dict().items()}


def kept(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in MADE_ANEW and "tfevents" not in path.name
    }


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """A finished run and one that waits to go on."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    train([the_run(folder / "finished")])
    with pytest.raises(KeyboardInterrupt):
        train([the_run(folder / "half")], progress=Crash())
    yield folder
    torch.set_num_threads(before)


def harm(path: Path, chance: random.Random) -> str:
    """Damage a file in a random way."""
    content = bytearray(path.read_bytes())
    kind = chance.choice(["flip", "flip", "flip", "cut", "removed bytes", "zeros", "deleted"])
    at = chance.randrange(len(content)) if content else 0
    if kind == "deleted" or not content:
        path.unlink()
        return "deleted"
    if kind == "flip":
        content[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del content[at:]
    elif kind == "removed bytes":
        del content[at : at + chance.randint(1, 40)]
    else:
        content[at : at + 40] = bytes(len(content[at : at + 40]))
    path.write_bytes(bytes(content))
    return kind


def refusal(error: Exception, folder: Path) -> str:
    """What is said, if it is a sentence that names a file."""
    text = str(error)
    assert isinstance(error, ValueError), repr(error)
    assert text.startswith("expected "), text
    assert str(folder) in text, text
    assert "\n" not in text
    return text


def is_part_of(found, whole):
    return found == whole[: len(found)]


def attack(states: Path, number: int, tmp_path: Path) -> str:
    """One case: what became of it."""
    chance = random.Random(number)
    state = chance.choice(["finished", "half"])
    folder = tmp_path / str(number)
    shutil.copytree(states / state, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    path = chance.choice(files)
    kind = harm(path, chance)
    what = f"case {number}: {kind} in {path.name} of a {state} run"
    ends = []
    try:
        # Who looks.
        whole = seen(states / state)
        try:
            found = seen(folder)
            assert found["description"] == whole["description"], what
            ended = state == "finished" and path.name != "result.json"
            assert found["result"] == (whole["result"] if ended or found["result"] else None), what
            agree = operator.eq if found["result"] is not None else is_part_of  # of what grows, as far as it is there
            assert agree(found["metrics"], whole["metrics"]), what
            if not found["problems"]:
                assert found["machine"] == whole["machine"], what
                assert agree(found["times"], whole["times"]), what
            else:
                ends.append("told")
        except ValueError as error:
            refusal(error, folder)
            ends.append("refused")
        try:
            gather([folder])
        except ValueError as error:
            refusal(error, folder)
        # Who takes the weights: those of the run, or none.
        try:
            found_weights, expected = weights(folder), weights(states / state)
            if state == "finished" or path.name != "best.safetensors":
                assert all(torch.equal(found_weights[name], expected[name]) for name in expected), what
        except ValueError as error:
            refusal(error, folder)
            ends.append("refused")
        # Who goes on.
        try:
            (result,) = train([the_run(folder)])
            assert result == json.loads((the_run(states / "finished").directory / "result.json").read_text()), what
            if state == "half" or path.name == "result.json":
                assert kept(folder) == kept(states / "finished"), what
            ends.append("went on")
        except ValueError as error:
            refusal(error, folder)
            ends.append("refused")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(what) from error
    shutil.rmtree(folder)
    return f"{state} run, {ends[-1]}"


def attacked(states, numbers, tmp_path):
    found = Counter(attack(states, number, tmp_path) for number in numbers)
    assert sum(found.values()) == len(numbers)
    return found


def test_random_damage_is_restored_or_refused(states, tmp_path):
    attacked(states, range(15), tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_a_thousand_times_random_damage(states, tmp_path, capsys):
    found = attacked(states, range(1000, 2000), tmp_path)
    with capsys.disabled():
        print(dict(found))
