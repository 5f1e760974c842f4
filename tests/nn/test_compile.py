"""torch.compile: one graph without breaks, forward and backward, and no recompilation for every length."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.gates import Forgetting, Gate

INPUTS, UNITS = 3, 4
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


class Cauchy(Gate):
    """A custom gate for which kernels can be derived."""

    name: ClassVar[str] = "compiled-cauchy"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        angle = torch.atan(pre[0]) / torch.pi
        return Forgetting(0.5 + angle, 0.5 - angle)


class Sorted(Gate):
    """A custom gate for which no kernel can be derived."""

    name: ClassVar[str] = "compiled-sorted"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        forget = torch.sigmoid(pre[0] - pre[0].mean(-1, keepdim=True))
        return Forgetting(forget, 1 - forget)


LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    **{
        f"LSTM {gate}": lambda *sizes, gate=gate, **more: rm.LSTM(*sizes, gate=gate, **more)
        for gate in ("fast", "softsign", "refine", "ur", "power_law")
    },
    "LSTM projected": lambda *sizes, **more: rm.LSTM(*sizes, proj_size=2, **more),
    "LSTM in pieces": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", recompute=2, **more),
    "LSTM with dropout": lambda *sizes, **more: rm.LSTM(*sizes, num_layers=2, weight_drop=1e-9, **more),
    "LSTM frozen": lambda *sizes, **more: rm.LSTM(
        *sizes, timescales=rm.timescales.Fixed([2.0] * UNITS, freeze=True), **more
    ),
    "PowerLawLSTM": rm.PowerLawLSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "ExpRNN": rm.ExpRNN,
    "UnitaryRNN": rm.UnitaryRNN,
    "SRU": rm.SRU,
    "own gate": lambda *sizes, **more: rm.LSTM(*sizes, gate=Cauchy(), **more),
    "own gate in a GRU": lambda *sizes, **more: rm.GRU(*sizes, gate=Cauchy(), **more),
    "gate without kernels": lambda *sizes, **more: rm.LSTM(*sizes, gate=Sorted(), **more),
}
QUICK = ("LSTM fast", "NRU")  # an engine's own operators, and the one for all engines
BY_HAND = ("LSTM softsign", "LSTM ur", "LSTM power_law")  # as LSTM, LSTM refine and PowerLawLSTM
MARKS = dict.fromkeys(QUICK, ()) | dict.fromkeys(BY_HAND, (pytest.mark.long, pytest.mark.slow))
every_layer = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.long)) for name in LAYERS]
)
told = pytest.mark.filterwarnings("ignore:no kernel can be derived")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


def made(name: str, **keywords: Any) -> rm.nn.Recurrent:
    torch.manual_seed(1)
    return LAYERS[name](INPUTS, UNITS, **keywords)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def results(run: Callable[..., Any], layer: nn.Module, x: Tensor, *more: Any, **keywords: Any) -> list[Any]:
    x = x.detach().clone().requires_grad_()
    output, state = run(x, *more, **keywords)
    parts = [state] if isinstance(state, Tensor) else list(state)
    total = sum(part.cos().sum() for part in (output, *parts))
    return [output, *parts, *torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True)]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for value, other in zip(found, expected, strict=True):
        assert (value is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


@told
@every_layer
@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=(pytest.mark.long, pytest.mark.slow))], ids=str
)
def test_one_graph_for_all_lengths(name: str, dtype: torch.dtype) -> None:
    layer = made(name, dtype=dtype)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for steps, rows in ((4, 2), (6, 3), (9, 5)):
        x = numbers(steps, rows, INPUTS, dtype=dtype)
        assert_same(results(compiled, layer, x), results(layer, layer, x))
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"]
    # The first has the sizes of the first call, the second any.
    assert counters["stats"]["unique_graphs"] <= 2


@told
@every_layer
def test_one_graph_for_inference(name: str) -> None:
    layer = made(name).eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for steps, rows in ((4, 2), (6, 3), (9, 5)):
            x = numbers(steps, rows, INPUTS)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["PowerLawLSTM", "PhasedLSTM"])
def test_states_times_and_lengths(name: str) -> None:
    layer = made(name, bidirectional=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps, rows in ((6, 5), (8, 7)):  # all sizes differ, because torch specialises on sizes that are equal at first
        x, dt = numbers(steps, rows, INPUTS), numbers(steps, rows).abs()
        _, state = layer(x)
        state, lengths = tuple(part.detach() for part in state), torch.arange(1, rows + 1)
        found = results(compiled, layer, x, state, dt, lengths=lengths)
        assert_same(found, results(layer, layer, x, state, dt, lengths=lengths))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["LSTM fast", "NRU"])
def test_inductor(name: str) -> None:
    layer = made(name, num_layers=2)
    compiled = torch.compile(layer, fullgraph=True)
    for steps, rows in ((4, 2), (6, 3), (9, 5)):
        x = numbers(steps, rows, INPUTS)
        assert_same(results(compiled, layer, x), results(layer, layer, x))


@pytest.mark.long
def test_a_model_trains_in_one_graph() -> None:
    torch.manual_seed(1)
    model = rm.models.SequenceModel(rm.GRU(INPUTS, UNITS, gate="refine", bidirectional=True), 2)
    twin = copy.deepcopy(model)
    x, lengths = numbers(6, 3, INPUTS), torch.tensor([6, 2, 4])
    for one, run in ((model, model), (twin, torch.compile(twin, fullgraph=True, backend="aot_eager"))):
        optimiser = torch.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            run(x, lengths)[0].square().sum().backward()
            optimiser.step()
    for value, other in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["loop", "cpu", "torch"])
def test_an_engine_by_name(engine: str) -> None:
    layer = made("LSTM", engine=engine)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = numbers(5, 2, INPUTS)
    assert_same(results(compiled, layer, x), results(layer, layer, x))
