"""Saved models: round trips, and invalid or unsafe folders are refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import remanence as rm
from remanence import pretrained
from remanence.gates import Forgetting, Gate
from remanence.language import Vocabulary
from remanence.models import LanguageModel, SequenceModel
from remanence.timescales import Chrono, Fixed, InverseGamma

LAYERS: dict[str, Any] = {
    "LSTM": lambda: rm.LSTM(3, 4, 2, bidirectional=True, batch_first=True, dropout=0.1, weight_drop=0.2),
    "LSTM with everything": lambda: rm.LSTM(3, 4, proj_size=2, gate="refine", input_gate="coupled", recompute=2),
    "LSTM with timescales": lambda: rm.LSTM(3, 4, 3, timescales=[Fixed([1.0, 2, 3, 4], freeze=True), None, Chrono(9)]),
    "LSTM with timescales in a tensor": lambda: rm.LSTM(3, 4, timescales=Fixed(torch.tensor([2.0, 3, 4, 5]))),
    "LSTM without biases": lambda: rm.LSTM(3, 4, bias=False, gate="softsign"),
    "PowerLawLSTM": lambda: rm.PowerLawLSTM(3, 4, eps=1e-5),
    "PowerLawLSTM fixed": lambda: rm.PowerLawLSTM(3, 4, p=0.3, input_gate="separate"),
    "GRU": lambda: rm.GRU(3, 4, gate=rm.gates.PowerLaw(p=0.5), engine="loop"),
    "JANET": lambda: rm.JANET(3, 4, beta=0.5),
    "JANET chrono": lambda: rm.JANET(3, 4, t_max=20),
    "NRU": lambda: rm.NRU(3, 8, memory_size=8, heads=2),
    "PhasedLSTM": lambda: rm.PhasedLSTM(3, 4, leak=1e-2),
    "mts": lambda: rm.make("mts", 3, 8),
    "ExpRNN": lambda: rm.ExpRNN(3, 4, start_angles="henaff"),
    "UnitaryRNN": lambda: rm.UnitaryRNN(3, 8, 2),
    "EURNN": lambda: rm.EURNN(3, 8, capacity=2),
    "EURNN, as an FFT": lambda: rm.EURNN(3, 8, fft=True),
    "GORU": lambda: rm.GORU(3, 4, capacity=2, gate="fast"),
    "SRU": lambda: rm.SRU(3, 4),
}
WORDS = Vocabulary(["the", "end", "<eos>", "<unk>"], "<unk>", "word")


class Cauchy(Gate):
    """A gate of one's own."""

    name: ClassVar[str] = "saved-cauchy"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        share = torch.atan(pre[0]) / torch.pi
        return Forgetting(0.5 + share, 0.5 - share)


@dataclass(frozen=True)
class Wider(Cauchy):
    """One with a setting."""

    width: float = 2.0
    name: ClassVar[str] = "saved-wider"


class Undescribed(Cauchy):
    """One whose setting is no field."""

    name: ClassVar[str] = "saved-undescribed"

    def __init__(self, width: float) -> None:
        self.width = width


def assert_same(model: Any, other: Any, *given: Tensor) -> None:
    assert type(other) is type(model)
    assert other.pretrained_arguments().keys() == model.pretrained_arguments().keys()
    assert pretrained.describe(other) == pretrained.describe(model)
    saved = model.state_dict()
    assert list(other.state_dict()) == list(saved)
    for name, weight in other.state_dict().items():
        assert weight.dtype == saved[name].dtype
        assert torch.equal(weight, saved[name])
    assert {n: p.requires_grad for n, p in other.named_parameters()} == {
        n: p.requires_grad for n, p in model.named_parameters()
    }
    torch.testing.assert_close(other(*given), model.eval()(*given), rtol=0, atol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    layer = LAYERS[name]()
    layer.save_pretrained(tmp_path / "layer")
    before = torch.get_rng_state()
    other = type(layer).from_pretrained(tmp_path / "layer")
    assert torch.equal(torch.get_rng_state(), before)
    assert not other.training
    assert_same(layer, other, torch.randn(5, 2, 3))
    assert {path.name for path in (tmp_path / "layer").iterdir()} == {"config.json", "model.safetensors", "README.md"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_keep_their_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    model = SequenceModel(rm.PowerLawLSTM(3, 4, dtype=dtype, engine="loop"), 2)
    model.save_pretrained(tmp_path)
    assert_same(model, SequenceModel.from_pretrained(tmp_path), torch.randn(5, 2, 3, dtype=dtype))


def test_models_for_sequences(tmp_path: Path) -> None:
    model = SequenceModel(rm.GRU(3, 4, gate="fast"), 2, readout="last", dropout=0.3, symbols=7)
    model.save_pretrained(tmp_path)
    assert_same(model, SequenceModel.from_pretrained(str(tmp_path)), torch.randint(7, (5, 2)))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, rm.PowerLawLSTM])
def test_models_around_torchs_layers_with_missing_values(kind: Any, tmp_path: Path) -> None:
    layer = kind(7, 4, 2, batch_first=True, bidirectional=True)
    model = SequenceModel(layer, 2, missing="forward", mask_input=True, dt_input=True)
    model.save_pretrained(tmp_path)
    other = SequenceModel.from_pretrained(tmp_path)
    assert type(other.layer) is kind
    inputs, dt, mask = torch.randn(2, 5, 3), torch.rand(2, 5), torch.rand(2, 5, 3) < 0.5
    assert_same(model, other, inputs, torch.tensor([5, 3]), dt, None, None, mask)


@pytest.mark.parametrize(
    "model",
    [
        LanguageModel(WORDS, 6, 8, 3, timescales=[Fixed(3.0, freeze=True), InverseGamma(0.56, freeze="all"), None]),
        LanguageModel(4, 6, 8, 2, gate=rm.gates.PowerLaw(p=0.3), frozen_recurrent=True),
        LanguageModel(4, None, [8, 6], 2, tie=False, layer="gru", gate="fast"),
    ],
    ids=["vocabulary", "gate", "one-hot"],
)
def test_language_models(model: LanguageModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    other = LanguageModel.from_pretrained(tmp_path)
    assert_same(model, other, torch.randint(4, (5, 2)))
    assert (other.vocabulary is None) == (model.vocabulary is None)
    if other.vocabulary is not None:
        assert other.vocabulary.decode([0, 1]) == ["the", "end"]


def test_a_vocabulary_can_be_given_again(tmp_path: Path) -> None:
    LanguageModel(4, 6, 8, 2).save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path, vocabulary=WORDS).vocabulary is WORDS
    with pytest.raises(ValueError, match=r"^expected a vocabulary of 4 words, as the saved model has, got 1$"):
        LanguageModel.from_pretrained(tmp_path, vocabulary=Vocabulary(["a"], None, "word"))


def test_arguments_can_be_changed(tmp_path: Path) -> None:
    rm.LSTM(3, 4, 2).save_pretrained(tmp_path)
    changed = rm.LSTM.from_pretrained(tmp_path, dropout=0.5, engine="loop")
    assert (changed.dropout, changed.engine) == (0.5, "loop")
    with pytest.raises(ValueError, match=r"^expected an argument of LSTM \(input_size, .*, engine\), got 'units'$"):
        rm.LSTM.from_pretrained(tmp_path, units=5)
    with pytest.raises(ValueError, match=r"^expected weight_ih_l0 of shape \(20, 3\) as in a LSTM of these arguments"):
        rm.LSTM.from_pretrained(tmp_path, hidden_size=5)


def test_a_model_is_loaded_by_its_class_or_one_above(tmp_path: Path) -> None:
    rm.PowerLawLSTM(3, 4).save_pretrained(tmp_path)
    assert type(rm.LSTM.from_pretrained(tmp_path)) is rm.PowerLawLSTM
    assert type(rm.nn.Recurrent.from_pretrained(tmp_path)) is rm.PowerLawLSTM
    with pytest.raises(ValueError, match=r"^expected a saved GRU, got .* with a PowerLawLSTM$"):
        rm.GRU.from_pretrained(tmp_path)


@pytest.mark.long
def test_a_fresh_process_reads_it(tmp_path: Path) -> None:
    model = SequenceModel(rm.PowerLawLSTM(3, 4), 2)
    model.save_pretrained(tmp_path / "model")
    x = torch.randn(5, 2, 3)
    with torch.no_grad():
        save_file({"x": x, "y": model.eval()(x)[0]}, tmp_path / "known.safetensors")
    code = (
        "import sys, torch, remanence as rm; from safetensors.torch import load_file; known = load_file(sys.argv[2]);"
        "model = rm.models.SequenceModel.from_pretrained(sys.argv[1]);"
        "torch.testing.assert_close(model(known['x'])[0], known['y']); assert 'huggingface_hub' not in sys.modules"
    )
    words = [sys.executable, "-c", code, tmp_path / "model", tmp_path / "known.safetensors"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Gates and classes of one's own.


def test_a_gate_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"KNOWN\['saved-cauchy'\] = Cauchy, here and before loading$"):
        rm.LSTM(3, 4, gate=Cauchy()).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"^expected a registered gate, which loading can find by name, got C"):
        LanguageModel(4, 6, 8, 2, gate=Cauchy()).save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_registered_gate_is_found_again_with_its_settings(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(rm.gates.KNOWN, "saved-wider", Wider)
    layer = rm.LSTM(3, 4, gate=Wider(3.0))
    layer.save_pretrained(tmp_path)
    assert rm.LSTM.from_pretrained(tmp_path).gate == Wider(3.0)
    monkeypatch.delitem(rm.gates.KNOWN, "saved-wider")
    with pytest.raises(ValueError, match=r"^expected gate to be one of sigmoid, .*, got 'saved-wider'"):
        rm.LSTM.from_pretrained(tmp_path)


def test_a_gate_whose_settings_are_unknown_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(rm.gates.KNOWN, "saved-undescribed", Undescribed)
    with pytest.raises(ValueError, match=r"^expected a gate with settings to be a dataclass, .* Undescribed with w"):
        rm.LSTM(3, 4, gate=Undescribed(1.0)).save_pretrained(tmp_path / "model")


class Own(rm.LSTM):
    """A layer of one's own."""


def test_a_class_of_ones_own_is_registered_or_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected a model of one of the classes LSTM, .* got Own; .*register"):
        Own(3, 4).save_pretrained(tmp_path)
    monkeypatch.setattr(pretrained.mixin, "KNOWN", dict(pretrained.KNOWN))
    pretrained.register(Own)
    layer = Own(3, 4)
    layer.save_pretrained(tmp_path)
    assert_same(layer, Own.from_pretrained(tmp_path), torch.randn(5, 2, 3))


def test_weights_that_would_not_be_read_again_are_not_written(tmp_path: Path) -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(rm.LSTM(3, 4), "weight_hh_l0")
    with pytest.raises(ValueError, match=r"^expected weights without parametrizations, got a ParametrizedLSTM with "):
        layer.save_pretrained(tmp_path / "model")
    model = SequenceModel(rm.LSTM(3, 4), 2)
    model.head = torch.nn.Linear(4, 2, bias=False)
    with pytest.raises(ValueError, match=r"^expected head.bias of shape \(2,\) as in a SequenceModel .*, got None in "):
        model.save_pretrained(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Folders that are something else, or damaged.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rm.LSTM(3, 4).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def changed(folder: Path, **what: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | what))


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return sys.exit, ("unpickled",)


def test_pickles_are_never_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"model.safetensors, got pytorch_model.bin: pickles, which are never loaded$"):
        rm.LSTM.from_pretrained(folder)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"^expected weights as safetensors in .*, got: "):
        rm.LSTM.from_pretrained(folder)


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ({"class": "Peephole"}, "expected class of a saved model to be one of LSTM, .*, got 'Peephole'"),
        ({"class": ["LSTM"]}, r"expected class of a saved model to be one of LSTM, .*, got \['LSTM'\]"),
        (
            {"format": 2, "version": "9.0"},
            "expected a model of format 1, got format 2 in .*, which remanence 9.0 w",
        ),
        (
            {"library": "transformers"},
            "expected a model written by remanence's save_pretrained, got .*config.json",
        ),
        ({"arguments": {"input_size": 3}}, "expected the description of a model in .*, got an invalid one"),
        ({"arguments": None}, "expected the description of a model in .*, got an invalid one"),
        ({"arguments": {"input_size": 3, "hidden_size": 10**7}}, r"expected weight_ih_l0 of shape \(40000000, 3\)"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused(what: dict[str, Any], answer: str, folder: Path) -> None:
    changed(folder, **what)
    with pytest.raises(ValueError, match=f"^{answer}"):
        rm.LSTM.from_pretrained(folder)


@pytest.mark.parametrize("content", ["no JSON", "[" * 100_000, "[]", ""])
def test_a_configuration_that_cannot_be_read_is_refused(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"^expected (JSON in|a model written by)"):
        rm.LSTM.from_pretrained(folder)


def test_weights_of_something_else_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "more": torch.zeros(2)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"^expected more of shape None as in a LSTM .*, got \(2,\) in "):
        rm.LSTM.from_pretrained(folder)
    save_file({name: weight.int() for name, weight in weights.items()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"^expected weights to be floating-point numbers, got bias_hh_l0 of "):
        rm.LSTM.from_pretrained(folder)


def test_what_is_no_folder_is_refused(folder: Path) -> None:
    for place in (folder / "nowhere", str(folder / "nowhere"), "./nowhere"):
        with pytest.raises(ValueError, match=r"^expected the folder of a saved model, got .*, which does not exist$"):
            rm.LSTM.from_pretrained(place)
    with pytest.raises(ValueError, match=r"^expected the folder of a saved model, got the file "):
        rm.LSTM.from_pretrained(folder / "config.json")
    with pytest.raises(ValueError, match=r"^expected a saved model with config.json, got .*: No such file"):
        rm.LSTM.from_pretrained(folder.parent)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match=r"^expected a folder for a remanence model, got .* of another library$"):
        rm.LSTM(3, 4).save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_whoever_is_stopped_while_writing_leaves_no_model(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("remanence.files.os.replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        rm.LSTM(3, 4).save_pretrained(folder)
    assert not (folder / "config.json").exists()
    with pytest.raises(ValueError, match=r"^expected a saved model with config.json"):
        rm.LSTM.from_pretrained(folder)


def stopped(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_folder_that_cannot_be_written_is_answered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^expected to write .*, got: "):
        rm.LSTM(3, 4).save_pretrained(tmp_path / "file" / "model")
