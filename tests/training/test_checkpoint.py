"""A checkpoint comes back as it was written, or not at all."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remanence.training import checkpoint
from remanence.training.checkpoint import DamagedError

TENSORS = {
    "weights": torch.arange(12.0).view(3, 4),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "step": torch.tensor(7.0),
    "generator": torch.Generator().get_state(),
    "none": torch.zeros(0),
}
PLAIN = {"update": 782, "seed": 1, "best": None, "config": {"lr": 1e-3, "words": 'says "digest": "x" and ü'}}


def test_what_is_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path / "one", TENSORS, PLAIN)
    tensors, plain = checkpoint.load(tmp_path / "one")
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)
    assert {name: plain[name] for name in PLAIN} == PLAIN
    assert plain["format"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_the_bytes_depend_on_the_content_alone():
    turned = {name: TENSORS[name] for name in reversed(TENSORS)}
    assert checkpoint.pack(turned, dict(reversed(PLAIN.items()))) == checkpoint.pack(TENSORS, PLAIN)


def test_views_are_saved_by_themselves():
    flat = torch.arange(10.0)
    packed = checkpoint.pack({"a": flat[:5], "b": flat.view(2, 5).T}, {})
    assert packed == checkpoint.pack({"a": flat[:5].clone(), "b": flat.view(2, 5).T.contiguous()}, {})


def test_others_can_read_it(tmp_path):
    from safetensors import safe_open

    checkpoint.save(tmp_path / "one", TENSORS, PLAIN)
    with safe_open(tmp_path / "one", "pt") as file:
        assert set(file.keys()) == set(TENSORS)
        assert json.loads(file.metadata()["remanence"])["update"] == 782


@settings(max_examples=300)
@given(data=st.data())
def test_any_changed_bit_is_noticed(tmp_path_factory, data):
    packed = bytearray(checkpoint.pack(TENSORS, PLAIN))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "changed"
    path.write_bytes(packed)
    with pytest.raises(DamagedError):
        checkpoint.load(path)


@pytest.mark.parametrize("size", [0, 4, 100, 1000, -1])
def test_a_cut_file_is_noticed(tmp_path, size):
    packed = checkpoint.pack(TENSORS, PLAIN)
    (tmp_path / "one").write_bytes(packed[:size])
    with pytest.raises(DamagedError, match=r"^expected an intact checkpoint, got "):
        checkpoint.load(tmp_path / "one")


def test_another_format_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.save(tmp_path / "one", TENSORS, PLAIN)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match=r"^expected a checkpoint of format 1, got format 2 in "):
        checkpoint.load(tmp_path / "one")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DamagedError, match=r"^expected a checkpoint, got .*: No such file or directory$"):
        checkpoint.load(tmp_path / "none")
