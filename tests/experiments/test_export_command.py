"""`remanence export`: every model that `remanence inspect` accepts is exported, or refused in one sentence."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import remanence as rm
from remanence.cli.main import app
from remanence.experiments import Way, find, results, run
from remanence.experiments.checkpoints import open_checkpoint
from remanence.models import LanguageModel, SequenceModel, exporting

TINY = ["train.epochs=1", "task.train_size=64", "task.delay=3"]
pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' own


def call(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)], env={"COLUMNS": "200"})


def refused(*words):
    """The error message of a wrong call."""
    answer = call(*words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("remanence: expected ")
    return answer.stderr


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small language model, and a small model for sequences as a folder."""
    folder = tmp_path_factory.mktemp("saved")
    LanguageModel(11, 6, 8, 2).save(folder / "words.safetensors")
    SequenceModel(rm.GRU(3, 4), 2).save_pretrained(folder / "sequences")
    return folder


@pytest.mark.long
def test_a_run_becomes_a_program_that_torch_loads(tmp_path):
    experiment = find("plstm/copy-200", "smoke", TINY)
    run(experiment, Way(tmp_path, torch.device("cpu")), ["plstm"], [1])
    folder = results.folder_of(tmp_path, experiment) / "plstm" / "seed-1"
    answer = call(folder, "--to", "pt2", "--out", tmp_path / "model.pt2", "--with", "state")
    assert answer.exit_code == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("plstm/copy-200, smoke, plstm, seed 1: ")
    assert lines[1].split() == ["inputs", "inputs,", "state"]
    program = torch.export.load(tmp_path / "model.pt2").module()
    trained = open_checkpoint(folder).model
    x = torch.randn(9, 2, trained.layer.input_size)
    with torch.no_grad():
        _, state = trained(x)
        torch.testing.assert_close(program(inputs=x, state=state), trained(x, state=state))


@pytest.mark.parametrize("name", ["words.safetensors", "sequences"])
def test_a_saved_model_is_exported_and_described_as_json(name, saved, tmp_path, monkeypatch):
    monkeypatch.setitem(exporting.KNOWN, "pt2", written)
    answer = call(saved / name, "--to", "pt2", "--out", tmp_path / "model.pt2", "--json")
    assert answer.exit_code == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["file"] == str(tmp_path / "model.pt2")
    assert found["inputs"] == (["tokens"] if "words" in name else ["inputs"])
    assert found["difference"] <= found["tolerance"] == exporting.TOLERANCE
    assert (tmp_path / "model.pt2").read_bytes() == b"a program"


def written(model, given, shapes, path):
    path.write_bytes(b"a program")
    return lambda inputs: torch.utils._pytree.tree_leaves(model(**inputs))


def test_what_is_wrong_is_answered_by_one_sentence(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = saved / "words.safetensors"
    assert "expected --to to be one of onnx, pt2, got 'onx'; did you mean 'onnx'?" in refused(words, "--to", "onx")
    assert "ends in .pt2, got model.onnx" in refused(words, "--to", "pt2", "--out", "model.onnx")
    assert "which does not exist" in refused("nowhere", "--to", "pt2")
    assert "(state), got 'dt'" in refused(words, "--to", "pt2", "--with", "state,dt")
    Path("notes.txt").write_text("no checkpoint")
    assert "which is none of these" in refused("notes.txt", "--to", "pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
