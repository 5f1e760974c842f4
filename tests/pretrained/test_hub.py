"""Model cards, and the Hugging Face Hub as far as possible without a network."""

from __future__ import annotations

import inspect
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch

import remanence as rm
from remanence.models import LanguageModel, SequenceModel
from remanence.pretrained import Pretrained
from remanence.timescales import Fixed


def rows_of(card: str) -> list[list[str]]:
    lines = [line for line in card.splitlines() if line.startswith("|")]
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines[2:]]


def saved_card(model: Pretrained, folder: Path) -> str:
    model.save_pretrained(folder)
    return (folder / "README.md").read_text("utf-8")


def test_a_card_says_how_long_units_remember_and_how_to_load_it(tmp_path: Path) -> None:
    layer = rm.LSTM(3, 3, 2, timescales=[Fixed([2.0, 30.0, 400.0]), Fixed(7.0)])
    card = saved_card(SequenceModel(layer, 2), tmp_path / "remembers")
    measured = ["sigmoid", "timescale in steps"]
    assert rows_of(card) == [["l0", "3", *measured, "30", "2 to 400"], ["l1", "3", *measured, "7", "7 to 7"]]
    assert f"with {sum(weight.numel() for weight in layer.parameters()) + 8} parameters" in card
    assert "pip install remanence-rnn" in card
    assert 'rm.models.SequenceModel.from_pretrained("remembers")' in card


def test_a_card_has_exponents_of_power_laws_and_says_where_there_is_no_gate(tmp_path: Path) -> None:
    layer = rm.PowerLawLSTM(3, 3, bidirectional=True)
    with torch.no_grad():
        layer.p_hat_l0.copy_(torch.logit(torch.tensor([0.1, 0.5, 0.9])))
        layer.p_hat_l0_reverse.copy_(torch.logit(torch.tensor([0.2, 0.2, 0.2])))
    first, second = rows_of(saved_card(layer, tmp_path / "both"))
    assert first == ["l0", "3", "power_law", "exponent p", "0.5", "0.1 to 0.9"]
    assert second == ["l0_reverse", "3", "power_law", "exponent p", "0.2", "0.2 to 0.2"]
    fixed = rm.models.LanguageModel(5, 4, 6, 2, gate=rm.gates.PowerLaw(p=0.25))
    assert [row[:1] + row[3:] for row in rows_of(saved_card(fixed, tmp_path / "fixed"))] == [
        [name, "exponent p", "0.25", "0.25 to 0.25"] for name in ("l0", "l1")
    ]
    assert rows_of(saved_card(rm.NRU(3, 4), tmp_path / "nru")) == [["l0", "4", "none", "none", "", ""]]


def test_the_present_folder_has_a_name(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rm.LSTM(3, 4).save_pretrained(".")
    assert "# here\n" in Path("README.md").read_text("utf-8")


def test_a_card_that_somebody_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert saved_card(rm.LSTM(3, 4), tmp_path) == "mine"


def test_without_huggingface_hub_one_sentence_says_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    sentence = r"^expected huggingface_hub for .*, got: .* \(pip install 'remanence-rnn\[hub\]'\)$"
    with pytest.raises(ValueError, match=sentence):
        rm.LSTM.from_pretrained("somebody/lstm")
    with pytest.raises(ValueError, match=sentence):
        rm.LSTM(3, 4).push_to_hub("somebody/lstm")


# With it.


@pytest.fixture
def hub() -> Any:
    return pytest.importorskip("huggingface_hub")


@pytest.fixture
def cached(tmp_path: Path, hub: Any) -> tuple[Path, SequenceModel]:
    """What huggingface_hub keeps of a model that it has downloaded, and the model."""
    model = SequenceModel(rm.PowerLawLSTM(3, 4), 2).eval()
    repository = tmp_path / "cache" / "models--somebody--remembers"
    commit = "0123456789abcdef0123456789abcdef01234567"
    model.save_pretrained(repository / "snapshots" / commit, repo_id="somebody/remembers")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return tmp_path / "cache", model


def test_a_downloaded_model_is_found_by_its_name(cached: tuple[Path, SequenceModel], monkeypatch: Any) -> None:
    cache, model = cached
    x = torch.randn(5, 2, 3)
    found = SequenceModel.from_pretrained("somebody/remembers", cache_dir=cache, local_files_only=True)
    assert torch.equal(found(x)[0], model(x)[0])
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    assert torch.equal(SequenceModel.from_pretrained("somebody/remembers", cache_dir=cache)(x)[0], model(x)[0])
    with pytest.raises(ValueError, match=r"^expected a folder or a model on the Hugging Face Hub, got 'somebody"):
        SequenceModel.from_pretrained("somebody/else", cache_dir=cache)


def test_methods_take_what_those_of_the_mixin_take(hub: Any) -> None:
    theirs = hub.PyTorchModelHubMixin
    for name, left_out in {
        "from_pretrained": {"model_kwargs"},
        "save_pretrained": {"config", "model_card_kwargs"},
        "push_to_hub": {"config", "model_card_kwargs", "allow_patterns", "ignore_patterns", "delete_patterns"},
    }.items():
        known = set(inspect.signature(getattr(theirs, name)).parameters)
        assert known - set(inspect.signature(getattr(Pretrained, name)).parameters) <= left_out, name


@pytest.mark.parametrize("there", [False, True], ids=["new", "with a card"])
def test_pushing_uploads_the_folder_in_one_commit(there: bool, hub: Any, tmp_path: Path, monkeypatch: Any) -> None:
    api = create_autospec(hub.HfApi, instance=True)
    api.create_repo.return_value.repo_id = "somebody/remembers"
    api.file_exists.return_value = there
    api.upload_folder.side_effect = lambda **given: shutil.copytree(given["folder_path"], tmp_path / "uploaded")
    monkeypatch.setattr(hub, "HfApi", lambda token=None: api)
    model = LanguageModel(5, 4, 6, 2)
    model.save_pretrained(tmp_path / "here", repo_id="somebody/remembers", push_to_hub=True, private=True)
    api.create_repo.assert_called_once_with(repo_id="somebody/remembers", private=True, exist_ok=True)
    assert api.upload_folder.call_args.kwargs["repo_id"] == "somebody/remembers"
    uploaded = {path.name for path in (tmp_path / "uploaded").iterdir()}
    assert uploaded == {"config.json", "model.safetensors"} | (set() if there else {"README.md"})
    found = LanguageModel.from_pretrained(tmp_path / "uploaded")
    assert torch.equal(found.decoder.bias, model.decoder.bias)


def test_the_hub_reads_the_card(hub: Any, tmp_path: Path) -> None:
    rm.LSTM(3, 4, gate="fast").save_pretrained(tmp_path, repo_id="somebody/fast")
    data = hub.ModelCard.load(tmp_path / "README.md").data
    assert (data.library_name, data.tags[-1]) == ("remanence", "fast")
