"""What is special about the fused GPU engine: tiles and exchange, precisions, launches, graphs, layers side by side.

Needs a CUDA device. What can be interpreted on a CPU is in `test_engines.py`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

import remanence as rm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter cannot exchange"),
]

SIZES = {  # T, B, H: one program and many, whole and broken tiles, one launch and several, resident and streamed
    "one-unit": (4, 3, 1),
    "one-tile": (5, 16, 32),
    "broken-tiles": (6, 17, 33),
    "copy": (8, 128, 128),
    "several-chunks": (5, 70, 200),
    "pixels": (4, 100, 512),
    "characters": (3, 40, 716),
    "words": (3, 20, 1150),
    "streamed": (3, 5, 2048),
    "several-launches": (3, 300, 512),
}


def numbers(layer: rm.nn.Recurrent, x: Tensor, engine: str, dt: Tensor | None = None) -> dict[str, Tensor]:
    """Outputs, final states and gradients, in float64."""
    layer.engine = engine
    layer.zero_grad()
    x = x.detach().requires_grad_()
    output, state = layer(x, None, dt)
    found = {"output": output} | {
        f"state {i}": part for i, part in enumerate(state if isinstance(state, tuple) else [state])
    }
    weight = torch.linspace(-1, 1, output.numel(), device=x.device).view_as(output)
    loss = (output * weight.to(output.dtype)).sum() + sum(part.float().sin().sum() for part in found.values())
    loss.backward()
    found["gradient of x"] = x.grad
    found |= {f"gradient of {name}": parameter.grad for name, parameter in layer.named_parameters()}
    return {name: value.detach().double() for name, value in found.items()}


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    return {name: float((found[name] - value).norm() / (value.norm() + 1e-30)) for name, value in truth.items()}


def pair(maker: Any, features: int, units: int, dtype: torch.dtype, **keywords: Any) -> tuple[Any, Any]:
    """A layer on the GPU, and the same in float64."""
    torch.manual_seed(0)
    layer = maker(features, units, device="cuda", dtype=dtype, **keywords)
    exact = maker(features, units, device="cuda", dtype=torch.float64, **keywords)
    exact.load_state_dict(layer.state_dict())
    return layer, exact


def compare(maker: Any, size: tuple[int, int, int], dtype: torch.dtype, **keywords: Any) -> dict[str, float]:
    steps, batch, units = size
    layer, exact = pair(maker, 3, units, dtype, **keywords)
    x = torch.randn(steps, batch, 3, device="cuda", dtype=dtype)
    return errors(numbers(layer, x, "triton"), numbers(exact, x.double(), "loop"))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_power_law_of_any_size_is_the_loops_in_full_float32(size):
    assert max(compare(rm.PowerLawLSTM, size, torch.float32).values()) < 1e-5


@pytest.mark.parametrize("maker", [rm.LSTM, rm.GRU, rm.JANET])
@pytest.mark.parametrize("size", [SIZES["several-chunks"], SIZES["characters"]], ids=["several-chunks", "characters"])
def test_fast_gate_in_every_cell_is_the_loops_across_tiles(maker, size):
    assert max(compare(maker, size, torch.float32, gate="fast").values()) < 1e-5


@pytest.mark.parametrize("gate", ["fast", "power_law"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 4e-3)], ids=["bf16", "fp16"])
def test_half_precision_rounds_products_only(gate, dtype, tolerance):
    # A few roundings of 2^-9 and 2^-12; gates, state and age are float32.
    assert max(compare(rm.LSTM, SIZES["several-chunks"], dtype, gate=gate).values()) < tolerance


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
@pytest.mark.parametrize("units", [128, 512])
def test_float32_error_is_no_worse_than_that_of_torch(precision, units):
    torch.backends.cudnn.rnn.fp32_precision = precision
    torch.backends.cuda.matmul.fp32_precision = precision
    layer, exact = pair(rm.LSTM, 8, units, torch.float32)
    x = torch.randn(60, 64, 8, device="cuda")
    theirs = torch.nn.LSTM(8, units, device="cuda")
    theirs.load_state_dict(layer.state_dict())
    truth = numbers(exact, x.double(), "loop")
    ours = errors(numbers(layer, x, "triton"), truth)
    reference = rm.LSTM.from_torch(theirs)
    cudnn = errors(numbers(reference, x, "torch"), truth)
    # Both are sums of many roundings: allow the noise between two of them.
    assert sum(ours.values()) < 1.25 * sum(cudnn.values())


def test_long_sequences_with_many_rows_need_more_than_32_bits_of_address():
    layer = rm.LSTM(1, 128, gate="fast", engine="triton", device="cuda", dtype=torch.bfloat16)
    x = torch.randn(40_000, 128, 1, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        whole, last = layer(x)  # 40,000 x 128 x 512 pre-activations are 2.6e9
        _, state = layer(x[:20_000])
        second, again = layer(x[20_000:], state)
    assert torch.equal(whole[-1], second[-1])
    assert torch.equal(last[1], again[1])


def test_a_hundred_thousand_steps():
    layer = rm.PowerLawLSTM(1, 16, engine="triton", device="cuda")
    x = torch.randn(100_000, 2, 1, device="cuda", requires_grad=True)
    output, (_, _, age) = layer(x)
    output[-1].sum().backward()
    assert torch.isfinite(output).all()
    assert torch.isfinite(age).all()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("maker", [rm.PowerLawLSTM, rm.GRU])
def test_layers_side_by_side_are_the_layers_one_by_one(maker):
    layers = [maker(3, 40, num_layers=2, bidirectional=True, engine="triton", device="cuda") for _ in range(3)]
    xs = [torch.randn(7, 20, 3, device="cuda") for _ in layers]
    alone = [numbers(layer, x, "triton") for layer, x in zip(layers, xs, strict=True)]
    for layer in layers:
        layer.zero_grad()
    xs = [x.requires_grad_() for x in xs]
    for (output, _), x, expected in zip(rm.together(layers, xs), xs, alone, strict=True):
        torch.testing.assert_close(output.double(), expected["output"], rtol=1e-5, atol=1e-6)
        weight = torch.linspace(-1, 1, output.numel(), device=x.device).view_as(output)
        assert torch.autograd.grad((output * weight).sum(), x, retain_graph=True)[0].abs().sum() > 0


def test_side_by_side_gradients_are_those_one_by_one():
    layers = [rm.PowerLawLSTM(3, 40, engine="triton", device="cuda") for _ in range(8)]
    x = torch.randn(7, 20, 3, device="cuda")
    sum(output.square().sum() for output, _ in rm.together(layers, x)).backward()
    found = [layer.weight_hh_l0.grad.clone() for layer in layers]
    for layer, gradient in zip(layers, found, strict=True):
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
        torch.testing.assert_close(gradient, layer.weight_hh_l0.grad)


def test_runs_inside_a_cuda_graph():
    layer = rm.LSTM(3, 64, gate="fast", engine="auto", device="cuda")
    x = torch.randn(9, 20, 3, device="cuda")
    with torch.no_grad():
        expected = layer(x)[0].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output, _ = layer(x)
        output.zero_()
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(output, expected)


@pytest.mark.parametrize("gate", ["fast", "power_law"])
def test_compiled_layers_give_the_same(gate):
    layer = rm.LSTM(3, 64, gate=gate, engine="triton", device="cuda")
    x = torch.randn(9, 20, 3, device="cuda")
    expected = numbers(layer, x, "triton")
    compiled = torch.compile(layer, backend="aot_eager")
    x = x.requires_grad_()
    output, _ = compiled(x)
    torch.testing.assert_close(output.double(), expected["output"])
    output.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_auto_takes_the_fused_engine():
    x = torch.randn(3, 2, 3, device="cuda")
    layer = rm.LSTM(3, 8, gate="fast", device="cuda")
    auto, _ = layer(x)
    layer.engine = "triton"
    assert torch.equal(auto, layer(x)[0])


def test_autocast_runs_fused_with_a_float32_state():
    layer = rm.PowerLawLSTM(3, 64, engine="triton", device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output, (hidden, cell, age) = layer(torch.randn(5, 20, 3, device="cuda"))
    assert output.dtype == hidden.dtype == torch.bfloat16
    assert cell.dtype == age.dtype == torch.float32
    output.float().sum().backward()
    assert layer.weight_hh_l0.grad.dtype == torch.float32
