"""`remanence inspect`: all kinds of checkpoints, and other files."""

import re
import shutil

import pytest
import torch
import typer
from typer.testing import CliRunner

import remanence as rm
from remanence.cli import inspect as command
from remanence.experiments import Way, find, results, run
from remanence.experiments.checkpoints import open_checkpoint
from remanence.models import LanguageModel
from remanence.training import checkpoint

TINY = ["train.epochs=1", "task.train_size=64", "task.delay=3"]
ESCAPE = re.compile("\x1b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Finished runs of two models."""
    out = tmp_path_factory.mktemp("runs")
    experiment = find("plstm/copy-200", "smoke", TINY)
    run(experiment, Way(out, torch.device("cpu")), ["plstm", "lstm"], [1])
    return results.folder_of(out, experiment)


@pytest.fixture
def plstm(folder):
    return folder / "plstm" / "seed-1"


def call(*words):
    app = typer.Typer()
    app.command()(command.command)
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def refused(*words):
    """The error message of a wrong call."""
    answer = call(*words)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("remanence: expected ")
    return answer.stderr


def test_a_run_is_shown_without_colour_codes_in_a_pipe(plstm):
    answer = call(plstm)
    assert answer.exit_code == 0
    assert not ESCAPE.search(answer.stdout)
    lines = answer.stdout.splitlines()
    assert lines[0] == "plstm/copy-200, smoke, plstm, seed 1"
    p = torch.sigmoid(open_checkpoint(plstm).model.layer.p_hat_l0.double()).sort().values.tolist()
    row = next(line for line in lines[lines.index("exponents p of the power law") :] if line.startswith("l0"))
    quantiles = [f"{p[round((len(p) - 1) * part)]:.3g}" for part in (0.05, 0.25, 0.5, 0.75, 0.95)]
    assert row.split()[2:] == [str(len(p)), *quantiles]
    assert "ages at rest (steps)" in lines
    assert "layer l0, exponents p" in lines
    assert sum(int(line.split()[-1]) for line in lines[lines.index("layer l0, exponents p") + 1 :]) == len(p)


def test_checkpoints_of_a_run_are_shown_each_with_its_weights(folder, plstm):
    best = plstm / "checkpoints" / "best.safetensors"
    (last, *_) = sorted((plstm / "checkpoints").glob("step-*"), reverse=True)
    for path in (best, last):
        tensors, _ = checkpoint.load(path)
        expected = tensors.get("model/layer.p_hat_l0", tensors.get("layer.p_hat_l0"))
        found = open_checkpoint(path)
        assert torch.equal(found.model.layer.p_hat_l0, expected)
        assert not found.model.training
        assert call(path).exit_code == 0
    assert open_checkpoint(plstm / "checkpoints").title == open_checkpoint(plstm).title
    timescales = call(folder / "lstm" / "seed-1").stdout
    assert "timescales from biases (steps)" in timescales
    assert "exponents" not in timescales


def test_the_best_weights_can_be_taken_out_of_their_folder(plstm, tmp_path):
    alone = tmp_path / "mine.safetensors"
    alone.write_bytes((plstm / "checkpoints" / "best.safetensors").read_bytes())
    assert open_checkpoint(alone).title == "plstm/copy-200, smoke, plstm, seed 1"
    (last, *_) = sorted((plstm / "checkpoints").glob("step-*"), reverse=True)
    lost = tmp_path / "step.safetensors"
    lost.write_bytes(last.read_bytes())
    assert "without a config.yaml next to it" in refused(lost)


def test_a_saved_language_model_is_shown(tmp_path):
    path = tmp_path / "model.safetensors"
    LanguageModel(9, 4, 5, 2, timescales=rm.timescales.Fixed(3.0)).save(path)
    answer = call(path)
    assert answer.exit_code == 0
    rows = [line.split() for line in answer.stdout.splitlines() if line.startswith(("l0 ", "l1 "))]
    assert rows[0] == ["l0", "sigmoid", "5", *["3"] * 5]
    assert rows[1] == ["l1", "sigmoid", "4", *["3"] * 5]
    assert "expected a run, which has a task" in refused(path, "--sequences", "3")


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_picture_is_written_beside_the_tables(plstm, tmp_path, ending):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    out = tmp_path / f"units.{ending}"
    answer = call(plstm, "--sequences", 6, "--steps", 30, "--out", out, "--theme", "dark")
    assert answer.exit_code == 0, answer.stderr
    assert "what is left when the input is switched off, over 6 sequences" in answer.stdout
    assert answer.stdout.splitlines()[-1] == f"{'Page' if ending == 'html' else 'Picture'}: {out}"
    assert out.stat().st_size > 1000


def test_other_files_are_refused_in_one_sentence(tmp_path, plstm):
    text = tmp_path / "notes.txt"
    text.write_text("not a checkpoint")
    empty = tmp_path / "empty.safetensors"
    empty.write_bytes(b"")
    assert "which does not exist" in refused(tmp_path / "nowhere")
    assert "which is none of these" in refused(text)
    assert "which is none of these" in refused(empty)
    assert "a folder without config.yaml" in refused(tmp_path)
    assert "got 'blue'" in refused(plstm, "--theme", "blue")


@pytest.mark.parametrize("place", [100, -20])
def test_a_damaged_checkpoint_is_answered_in_a_sentence(plstm, tmp_path, place):
    content = bytearray((plstm / "checkpoints" / "best.safetensors").read_bytes())
    content[place] ^= 1
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    refused(damaged)
    half = tmp_path / "half.safetensors"
    half.write_bytes(content[: len(content) // 2])
    refused(half)


def test_a_damaged_language_model_is_answered_in_a_sentence(tmp_path):
    path = tmp_path / "model.safetensors"
    LanguageModel(9, 4, 5, 2).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert "which has none" in refused(path)


def test_a_model_without_timescales_is_answered_in_a_sentence(tmp_path):
    path, out = tmp_path / "model.safetensors", tmp_path / "units.png"
    LanguageModel(9, 4, [4, 4], 2, layer="nru").save(path)
    assert "expected a layer with a forget gate, got NRU" in refused(path, "--out", out)
    assert not out.exists()


def test_a_file_that_cannot_be_written_is_answered_before_anything_is_shown(plstm, tmp_path):
    pytest.importorskip("matplotlib")
    assert "expected a file that ends in .png, .svg or .html" in refused(plstm, "--out", tmp_path / "units.pdf")
    assert "expected to write" in refused(plstm, "--out", tmp_path / "no folder" / "units.png")
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_makes_no_model_is_answered_in_a_sentence(plstm, tmp_path):
    copied = tmp_path / "run"
    shutil.copytree(plstm, copied)
    config = copied / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("make: plstm", "make: plsm"))
    assert "config.yaml to match " in refused(copied)
    (copied / "SHA256SUMS").unlink()
    assert "plsm" in refused(copied)
    config.write_text(text.replace("  make: plstm\n", ""))
    assert "builds no model" in refused(copied)
    config.write_text("- just\n- words\n")
    refused(copied)
    config.write_text(text.replace("hidden_size: ", "hidden_size: 1"))
    assert "expected weights that fit the configuration" in refused(copied)


def test_weights_that_are_not_finite_are_answered_in_a_sentence(tmp_path):
    model = LanguageModel(9, 4, 5, 2)
    with torch.no_grad():
        model.layers[0].bias_hh_l0[3] = float("nan")
    model.save(tmp_path / "model.safetensors")
    assert "expected finite weights" in refused(tmp_path / "model.safetensors")
