"""Which engine "auto" selects."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import remanence as rm
from remanence.cells import GRUCell, LSTMCell
from remanence.engines import EngineTask, Zeros, choice
from remanence.engines.machine import float32_products
from remanence.engines.triton.tiling import Chip
from remanence.gates import Sigmoid


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
    monkeypatch.setattr(choice, "self_check", lambda *_: "it disagrees")
    choice._told.clear()
    layers = [rm.LSTM(3, 4, gate="fast") for _ in range(count)]
    x = torch.randn(5, 2, 3)
    with pytest.warns(UserWarning, match="it disagrees; another engine is used"):
        outputs = rm.together(layers, x)
    for layer, (output, _) in zip(layers, outputs, strict=True):
        layer.engine = "cpu"
        assert torch.equal(output, layer(x)[0])


@pytest.mark.parametrize(
    ("units", "tf32", "several", "second"),
    [
        (128, True, False, "torch"),
        (128, True, True, "triton"),
        (129, True, False, "triton"),
        (256, False, False, "triton"),
        (257, False, False, "torch"),
        (257, False, True, "torch"),
        (257, True, False, "triton"),
    ],
)
def test_cudnn_is_tried_before_triton_where_it_is_faster(units, tf32, several, second):
    inputs = SimpleNamespace(is_cuda=True, dtype=torch.float32)
    task = EngineTask(LSTMCell(Sigmoid()), {}, inputs, Zeros((units, units)))
    with float32_products(tf32):
        assert [engine.name for engine in choice._preferred(task, several)][:2] == ["cuda", second]


@pytest.mark.parametrize(("steps", "training", "single"), [(1, False, True), (2, False, False), (1, True, False)])
def test_a_single_step_in_inference_sets_up_no_engine_on_a_cpu(steps, training, single):
    inputs = torch.zeros(steps, 40, 4, requires_grad=training)
    names = [
        engine.name for engine in choice._preferred(EngineTask(GRUCell(Sigmoid()), {}, inputs, Zeros((9,))), False)
    ]
    assert (names == ["torch", "loop"]) is single


@pytest.mark.parametrize(
    ("x86", "units", "training", "dtype", "first"),
    [
        (True, 300, False, torch.float32, "torch"),
        (True, 300, True, torch.float32, "cuda"),
        (True, 256, False, torch.float32, "cuda"),
        (True, 300, False, torch.float64, "cuda"),
        (False, 300, False, torch.float32, "cuda"),
    ],
)
def test_torch_is_tried_first_for_inference_with_wide_layers_on_x86(monkeypatch, x86, units, training, dtype, first):
    monkeypatch.setattr(choice, "X86", x86)
    for cell, expected in ((LSTMCell(Sigmoid()), first), (GRUCell(Sigmoid()), "cuda")):
        inputs = torch.zeros(3, 2, 4, dtype=dtype, requires_grad=training)
        task = EngineTask(cell, {}, inputs, Zeros((units, units)))
        assert choice._preferred(task, several=False)[0].name == expected
        projected = replace(task, weights={"weight_hr": torch.zeros(units, units)})
        assert choice._preferred(projected, several=False)[0].name == "cuda"


@pytest.mark.parametrize(("units", "left", "first"), [(512, 128, "torch"), (512, 256, "cuda"), (256, 16, "cuda")])
def test_torch_is_tried_first_for_small_projections_of_wide_layers(units, left, first):
    weights = {"weight_hr": torch.zeros(left, units)}
    task = EngineTask(LSTMCell(Sigmoid()), weights, torch.zeros(3, 2, 4, requires_grad=True), Zeros((left, units)))
    assert choice._preferred(task, several=False)[0].name == first


def test_torch_is_tried_first_without_gradients_of_what_has_some_on_x86(monkeypatch):
    monkeypatch.setattr(choice, "X86", True)
    task = EngineTask(LSTMCell(Sigmoid()), {}, torch.zeros(3, 2, 4, requires_grad=True), Zeros((300, 300)))
    with torch.no_grad():
        assert choice._preferred(task, several=False)[0].name == "torch"


@pytest.mark.parametrize(
    ("units", "rows", "blocks", "dtype", "several", "first"),
    [
        (768, 128, 3, torch.bfloat16, False, "cuda"),
        (769, 128, 3, torch.bfloat16, False, "triton"),
        (1024, 128, 3, torch.bfloat16, False, "triton"),
        (1024, 128, 3, torch.bfloat16, True, "cuda"),
        (1024, 56, 3, torch.bfloat16, False, "cuda"),
        (1024, 57, 3, torch.bfloat16, False, "triton"),
        (1024, 256, 3, torch.bfloat16, False, "cuda"),  # not all rows at once
        (1024, 128, 4, torch.bfloat16, False, "cuda"),  # not all of the matrix
        (1024, 64, 3, torch.float32, False, "cuda"),
        (1152, 64, 3, torch.bfloat16, False, "cuda"),  # many rows per thread block
    ],
)
def test_triton_is_tried_before_clusters_where_it_has_the_matrix_on_chip(
    units, rows, blocks, dtype, several, first, monkeypatch
):
    monkeypatch.setattr(choice.tiling, "chip", lambda device: Chip(processors=132, shared=227 * 1024))
    inputs = SimpleNamespace(is_cuda=True, dtype=dtype, itemsize=dtype.itemsize, shape=(5, rows, 3), device=None)
    weights = {"weight_hh": torch.empty(blocks * units, units, device="meta")}
    task = EngineTask(LSTMCell(Sigmoid()), weights, inputs, Zeros((units, units)))
    with float32_products(True):
        assert choice._preferred(task, several)[0].name == first
