"""Second derivatives: every engine with its own backward pass matches the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import remanence as rm
from remanence.engines.cpp.engine import lacks

STEPS, ROWS, INPUTS, UNITS = 4, 3, 2, 3
LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    "LSTM refine": lambda *sizes, **more: rm.LSTM(*sizes, gate="refine", **more),
    "LSTM projected": lambda *sizes, **more: rm.LSTM(*sizes, proj_size=2, **more),
    "PowerLawLSTM": rm.PowerLawLSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "PhasedLSTM": rm.PhasedLSTM,
    "NRU": lambda *sizes, **more: rm.NRU(*sizes, memory_size=4, heads=1, **more),
    "ExpRNN": rm.ExpRNN,
    "in pieces": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", recompute=2, **more),
}
QUICK = ("LSTM refine", "GRU")
compiles = pytest.mark.skipif(lacks() is not None, reason="no C++ compiler")
interprets = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
KERNELS = [
    pytest.param("c++", "cpu", id="compiled", marks=compiles),
    pytest.param("triton", "cpu", id="interpreted", marks=interprets),
    pytest.param("triton", "cuda", id="triton", marks=on_gpu),
    pytest.param("auto", "cuda", id="auto", marks=on_gpu),
]


def numbers(*shape: int, like: Tensor | None = None) -> Tensor:
    found = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
    return found if like is None else found.to(like)


def made(name: str, **keywords: Any) -> rm.nn.Recurrent:
    torch.manual_seed(1)
    return LAYERS[name](INPUTS, UNITS, **keywords)


def parts(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def everything(layer: rm.nn.Recurrent, lengths: Tensor | None = None) -> tuple[Callable[..., Any], list[Tensor]]:
    """The layer as a function of all its differentiable inputs, and values for these."""
    like = next(layer.parameters())
    x = numbers(STEPS, ROWS, INPUTS, like=like)
    _, state = layer(x)
    widths = [part.shape for part in parts(state)]
    names, weights = zip(*layer.named_parameters(), strict=True)
    given = [x, *(numbers(*shape, like=like).abs() / 2 for shape in widths), *(w.detach().clone() for w in weights)]
    timed = layer.cell.takes_dt
    if timed:
        given.append(numbers(STEPS, ROWS, like=like).abs() + 0.5)

    def function(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        before, others = rest[: len(widths)], rest[len(widths) :]
        state = before[0] if len(before) == 1 else tuple(before)
        own = dict(zip(names, others, strict=False))
        keywords = {"dt": others[-1]} if timed else {}
        call = torch.func.functional_call
        output, state = call(layer, own, (x, state), keywords | ({} if lengths is None else {"lengths": lengths}))
        return output, *parts(state)

    return function, [value.requires_grad_() for value in given]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in LAYERS]
)
@pytest.mark.parametrize("engine", ["auto", "cpu"])
def test_gradgradcheck(name: str, engine: str) -> None:
    if engine == "cpu" and name == "NRU":
        pytest.skip("it has no kernels on CPUs")
    layer = made(name, dtype=torch.float64, engine=engine).eval()
    function, given = everything(layer)
    assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["LSTM", "GRU", "PowerLawLSTM"])
def test_gradgradcheck_of_padded_sequences_in_both_directions(name: str) -> None:
    layer = made(name, dtype=torch.float64, bidirectional=True)
    function, given = everything(layer, torch.tensor([2, 4, 1]))
    assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


def twice(layer: rm.nn.Recurrent, lengths: Tensor | None = None) -> Sequence[Tensor]:
    function, given = everything(layer, lengths)
    outputs = function(*given)
    loss = sum((part.float() * part.detach().float().cos()).square().sum() for part in outputs)
    first = torch.autograd.grad(loss, given, create_graph=True)
    again = sum((slope * slope).sum() for slope in first)
    return [*(slope.detach() for slope in first), *torch.autograd.grad(again, given)]


@pytest.mark.parametrize("lengths", [None, [2, 4, 1]], ids=["whole", "padded"])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("engine", "device"), KERNELS)
def test_kernels_match_the_loop(name: str, engine: str, device: str, lengths: list[int] | None) -> None:
    if name == "LSTM projected" and lengths is not None:
        pytest.skip("with proj_size it does not take an initial state together with sequences of unequal length")
    if name == "NRU" and engine == "c++":
        pytest.skip("it has no kernels on CPUs")
    steps = None if lengths is None else torch.tensor(lengths, device=device)
    bidirectional = engine != "c++" or name in QUICK
    expected = twice(made(name, engine="loop", device=device, bidirectional=bidirectional), steps)
    found = twice(made(name, engine=engine, device=device, bidirectional=bidirectional), steps)
    for value, other in zip(found, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-7)


def test_a_third_derivative() -> None:
    x = numbers(STEPS, ROWS, INPUTS).requires_grad_()

    def third(engine: str) -> Tensor:
        torch.manual_seed(1)
        layer = rm.LSTM(INPUTS, UNITS, gate="fast", dtype=torch.float64, engine=engine)
        value = layer(x)[0].sum()
        for _ in range(3):
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            value = slope.square().sum()
        return slope.detach()

    torch.testing.assert_close(third("cpu"), third("loop"))


@pytest.mark.parametrize("engine", ["cpu", pytest.param("c++", marks=compiles)])
def test_a_state_that_was_made_with_the_same_weights_counts_once(engine: str) -> None:
    """The second call depends on the weights directly, and through a state computed with them."""

    def slopes(engine: str) -> Sequence[Tensor]:
        layer = made("PowerLawLSTM", engine=engine)
        x = numbers(2 * STEPS, ROWS, INPUTS).float()
        _, state = layer(x[:STEPS])
        loss = layer(x[STEPS:], state)[0].square().sum()
        weights = list(layer.parameters())
        first = torch.autograd.grad(loss, weights, create_graph=True)
        return [*first, *torch.autograd.grad(sum(one.square().sum() for one in first), weights)]

    torch.testing.assert_close(slopes(engine), slopes("loop"), rtol=1e-3, atol=1e-5)
