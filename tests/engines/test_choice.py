"""Which engine "auto" takes."""

from importlib import import_module

import pytest
import torch

import remanence as rm
from remanence.engines import choice


class Suspect:
    """A fused engine that runs everything and has failed its check."""

    SIDE_BY_SIDE = True

    def __init__(self, name):
        self.name = name

    def refuses(self, task):
        return None

    def run(self, task):
        raise AssertionError("it must not run")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("suspects", [("triton",), ("cuda",), ("cuda", "triton")], ids="-".join)
def test_an_engine_that_disagrees_with_the_loop_is_not_used_alone_or_for_several_layers(monkeypatch, count, suspects):
    for name in suspects:
        monkeypatch.setitem(choice.KNOWN, name, Suspect(name))
    monkeypatch.setattr(import_module("remanence.engines.check"), "self_check", lambda engine, device: "it disagrees")
    choice._told.clear()
    layers = [rm.LSTM(3, 4, gate="fast") for _ in range(count)]
    x = torch.randn(5, 2, 3)
    with pytest.warns(UserWarning, match="it disagrees; another engine is used"):
        outputs = rm.together(layers, x)
    for layer, (output, _) in zip(layers, outputs, strict=True):
        layer.engine = "cpu"
        assert torch.equal(output, layer(x)[0])
