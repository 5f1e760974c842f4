"""Exported models match the original before the file is written, and run in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.utils import _pytree as tree

import remanence as rm
from remanence.models import LanguageModel, SequenceModel, export, exporting

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' own

MODELS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "padded, timed, stateful": (
        lambda: SequenceModel(rm.PowerLawLSTM(3, 4), 2, readout="last"),
        ("state", "lengths", "dt"),
    ),
    "torch's own layer, missing values, the batch first": (
        lambda: SequenceModel(
            torch.nn.LSTM(7, 4, batch_first=True), 2, missing="forward", mask_input=True, dt_input=True
        ),
        ("dt", "mask", "lengths"),
    ),
    "a matrix that is built": (lambda: SequenceModel(rm.ExpRNN(3, 4), 2), ("state",)),
    "a unitary matrix, a start that is learned": (lambda: SequenceModel(rm.UnitaryRNN(3, 8), 2, readout="last"), ()),
    "symbols": (lambda: SequenceModel(rm.GRU(3, 4), 2, symbols=7), ()),
    "words": (lambda: LanguageModel(11, 6, 8, 2), ("state",)),
    "characters": (lambda: rm.models.language_model("text8-plstm", 5, hidden_size=4), ()),
}
BY_HAND = ("symbols", "characters", "a matrix that is built", "padded, timed, stateful", "words")
ONNX = """
import json, sys
import onnxruntime
from safetensors.numpy import load_file
session, known = onnxruntime.InferenceSession(sys.argv[1]), load_file(sys.argv[2])
assert "remanence" not in sys.modules and "torch" not in sys.modules
given = {one.name: known[one.name] for one in session.get_inputs()}
for one, found in zip(session.get_outputs(), session.run(None, given), strict=True):
    assert found.shape == known[one.name].shape
    assert abs(found - known[one.name]).max() < 1e-4, one.name
print("the same")
"""
PT2 = """
import json, sys
import torch, remanence
from safetensors.torch import load_file
from torch.utils import _pytree as tree
program, known = torch.export.load(sys.argv[1]), load_file(sys.argv[2])
inputs, outputs = (name.split(",") for name in sys.argv[3:])
arguments, keywords = tree.tree_unflatten([known[name] for name in inputs], program.call_spec.in_spec)
for name, found in zip(outputs, tree.tree_leaves(program.module()(*arguments, **keywords)), strict=True):
    torch.testing.assert_close(found, known[name])
print("the same")
"""


def made(name: str) -> tuple[Any, tuple[str, ...]]:
    torch.manual_seed(1)
    maker, also = MODELS[name]
    return maker().eval(), also


def in_a_fresh_process(code: str, model: Any, exported: exporting.Exported, also: tuple[str, ...], folder: Path) -> str:
    given = exporting.example(model, exporting.expect_inputs(model, also), 23, 4)
    with torch.no_grad():
        expected = tree.tree_leaves(model(**given))
    leaves = tree.tree_leaves(given)
    inputs, outputs = exported.inputs, exported.outputs
    if code == PT2:
        assert inputs == tuple(given)  # the keywords
        inputs = tuple(f"in{number}" for number in range(len(leaves)))
        outputs = tuple(f"out{number}" for number in range(len(expected)))
    known = zip([*inputs, *outputs], [*leaves, *expected], strict=True)
    save_file({name: value.contiguous() for name, value in known}, folder / "known.safetensors")
    words = [",".join(inputs), ",".join(outputs)] if code == PT2 else []
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, exported.path, folder / "known.safetensors", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in MODELS if n not in BY_HAND])
def test_a_fresh_process_runs_a_program_for_other_lengths(name: str, tmp_path: Path) -> None:
    model, also = made(name)
    found = export(model, tmp_path / "model.pt2", "pt2", also)
    assert found.difference <= 1e-6
    assert in_a_fresh_process(PT2, model, found, also, tmp_path) == "the same\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n in BY_HAND else ()) for n in MODELS],
)
def test_a_process_without_torch_runs_onnx_for_other_lengths(name: str, tmp_path: Path) -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    model, also = made(name)
    found = export(model, tmp_path / "model.onnx", "onnx", also)
    assert found.difference <= 1e-5
    assert in_a_fresh_process(ONNX, model, found, also, tmp_path) == "the same\n"


def test_names_of_states_are_those_of_their_parts() -> None:
    model, also = made("padded, timed, stateful")
    given = exporting.example(model, exporting.expect_inputs(model, also), 4, 2)
    names = list(exporting.input_names(model, given))
    assert names == ["inputs", "lengths", "dt", "hidden_in", "cell_in", "age_in"]
    assert exporting.output_names(made("words")[0])[:3] == ["logits", "layer0_hidden_out", "layer0_cell_out"]


def test_the_model_and_the_generator_of_numbers_stay_as_they_are(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(exporting.KNOWN, "pt2", faithful)
    model = SequenceModel(rm.LSTM(3, 4, dtype=torch.float64, engine="cuda"), 2)
    before = torch.get_rng_state()
    export(model, tmp_path / "model.pt2", "pt2")
    assert model.training
    assert model.layer.engine == "cuda"
    assert next(model.parameters()).dtype == torch.float64
    assert torch.equal(torch.get_rng_state(), before)


def faithful(model: Any, given: Any, shapes: Any, path: Path, off: float = 0.0) -> Any:
    path.write_bytes(b"a program")
    return lambda inputs: [part + off for part in tree.tree_leaves(model(**inputs))]


@pytest.mark.parametrize("off", [1e-3, float("nan")])
def test_a_program_that_is_not_the_model_is_not_written(off: float, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(exporting.KNOWN, "pt2", lambda *given: faithful(*given, off=off))
    model, _ = made("symbols")
    with pytest.raises(ValueError, match=r"^expected a program that matches the model to 0.0001, got a difference of"):
        export(model, tmp_path / "model.pt2", "pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "to", "also", "answer"),
    [
        ("model.pt2", "tflite", (), "expected format to be one of onnx, pt2, got 'tflite'"),
        ("model.bin", "pt2", (), r"expected a file name that ends in \.pt2, got .*model\.bin"),
        ("no/model.pt2", "pt2", (), "expected a file in a folder that exists, got .*: no such folder"),
        (
            "model.pt2",
            "pt2",
            ("tokens",),
            r"expected inputs of a SequenceModel \(lengths, dt, state, mask\), got 'tokens'",
        ),
        (
            "model.pt2",
            "pt2",
            ("dt",),
            "expected a model that uses the time between steps, got --with dt for one that does not",
        ),
        ("model.pt2", "pt2", ("mask",), "expected a model with missing='zero' or missing='forward', got --with mask"),
    ],
)
def test_what_cannot_be_exported_is_refused(path: str, to: str, also: Any, answer: str, tmp_path: Path) -> None:
    model, _ = made("symbols")
    with pytest.raises(ValueError, match=f"^{answer}"):
        export(model, tmp_path / path, to, also)
    assert list(tmp_path.iterdir()) == []


def test_other_modules_and_larger_files_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(TypeError, match=r"^expected a SequenceModel or a LanguageModel, got LSTM$"):
        export(rm.LSTM(3, 4), tmp_path / "model.pt2", "pt2")  # type: ignore[arg-type]
    monkeypatch.setattr(exporting, "ONE_FILE", 100)
    monkeypatch.setattr(exporting, "expect_installed", lambda to: None)
    with pytest.raises(ValueError, match=r"^expected weights below 2 GiB, the limit of an ONNX file"):
        export(made("symbols")[0], tmp_path / "model.onnx", "onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named(package: str, tmp_path: Path, monkeypatch: Any) -> None:
    find = exporting.importlib.util.find_spec
    monkeypatch.setattr(exporting.importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(
        ValueError,
        match=rf"^expected {package} to be installed for ONNX, got none \(pip install 'remanence",
    ):
        export(made("symbols")[0], tmp_path / "model.onnx", "onnx")
