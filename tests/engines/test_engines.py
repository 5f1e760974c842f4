"""Every engine held to the loop engine through the layers: values, final states and every gradient."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import remanence as rm
from remanence import engines
from remanence.engines import EngineResult, EngineTask, Zeros
from remanence.engines.cpp import engine as host
from remanence.engines.cuda.device import GENERATIONS
from remanence.gates import Forgetting, Gate, PowerLaw


@dataclass(frozen=True)
class Contender:
    """An engine, where it runs and in what."""

    engine: str
    device: str
    dtypes: tuple[torch.dtype, ...]


def has_clusters() -> bool:
    """Whether the CUDA device has what the engine "cuda" needs."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] in GENERATIONS


ENGINES = [
    pytest.param(Contender("cpu", "cpu", (torch.float64, torch.float32)), id="cpu"),
    pytest.param(
        Contender("c++", "cpu", (torch.float32,)),
        id="compiled",
        marks=pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler"),
    ),
    pytest.param(
        Contender("cuda", "cuda", (torch.float32,)),
        id="cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters")],
    ),
    pytest.param(
        Contender("triton", "cuda", (torch.float32,)),
        id="triton",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
    pytest.param(
        Contender("triton", "cpu", (torch.float32,)),
        id="interpreted",
        marks=[
            pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted"),
            # The interpreter computes both sides of a `where` in NumPy, which tells of the one not taken.
            pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
            pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
        ],
    ),
]
EVERY_ENGINE = pytest.mark.parametrize("contender", ENGINES)

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
"""Largest difference to the loop engine in float64, relative to the largest number of a tensor or to one. Rounding is
1e-16 and 6e-8; gradients through the age of a power law multiply it by up to p eps^(p-1), a thousand at the default."""

CELLS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "lstm": lambda *sizes, **options: rm.LSTM(*sizes, input_gate="separate", **options),
    "lstm-coupled": lambda *sizes, **options: rm.LSTM(*sizes, input_gate="coupled", **options),
    "gru": rm.GRU,
    "janet": rm.JANET,
    "janet-convex": lambda *sizes, **options: rm.JANET(*sizes, beta=0.0, **options),
}
GATES: dict[str, str | Gate] = {
    **{name: name for name in rm.gates.KNOWN},
    "power_law-fixed": PowerLaw(p=0.4),
    "power_law-small-eps": PowerLaw(eps=1e-5),
    "power_law-no-eps": PowerLaw(eps=0.0),
}
EVERY_CELL = pytest.mark.parametrize("cell", CELLS)
EVERY_GATE = pytest.mark.parametrize("gate", GATES)


@dataclass(frozen=True)
class Case:
    """A layer and what it is run on. T steps, B sequences, I features, H units."""

    cell: str = "lstm"
    gate: str = "sigmoid"
    steps: int = 6
    batch: int = 3
    features: int = 2
    units: int = 4
    layers: int = 1
    bidirectional: bool = False
    bias: bool = True
    weight_drop: float = 0.0
    lengths: tuple[int, ...] | None = None
    state: bool = True
    dt: bool = False
    scale: float = 1.0
    """What the inputs are multiplied by."""
    seed: int = 0

    @property
    def timed(self) -> bool:
        return self.gate.startswith("power_law")

    def layer(self, engine: str, device: str, dtype: torch.dtype) -> rm.nn.Recurrent:
        torch.manual_seed(self.seed)
        layer = CELLS[self.cell](
            self.features,
            self.units,
            self.layers,
            bias=self.bias,
            bidirectional=self.bidirectional,
            gate=GATES[self.gate],
            weight_drop=self.weight_drop,
            engine=engine,
        )
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(2)  # far enough from the start for gates to open and close
        return layer.to(device, dtype)

    def numbers(self, layer: rm.nn.Recurrent, dtype: torch.dtype) -> dict[str, Tensor]:
        """Inputs, and where asked for the first state and dt, rounded to float32."""
        random = torch.Generator().manual_seed(self.seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random).to(dtype)

        numbers = {"inputs": draw(self.steps, self.batch, self.features) * self.scale}
        if self.dt:
            numbers["dt"] = draw(self.steps, self.batch).square()  # some far below eps, some far above one
        if self.state:
            for name in layer.cell.widths(self.units, self.units):
                part = draw(len(layer.places), self.batch, self.units)
                numbers[f"state {name}"] = part.square() if name == "age" else part
        return numbers


Results = dict[str, Tensor]


def run(case: Case, engine: str, device: str, dtype: torch.dtype, layer: Any = None) -> Results:
    """Outputs, final states and gradients of everything, by name, in float64 on the CPU."""
    layer = layer or case.layer(engine, device, dtype)
    given = {name: value.to(device).requires_grad_() for name, value in case.numbers(layer, dtype).items()}
    state = tuple(value for name, value in given.items() if name.startswith("state")) or None
    inputs: Tensor | PackedSequence = given["inputs"]
    if case.lengths is not None:
        inputs = pack_padded_sequence(given["inputs"], torch.tensor(case.lengths), enforce_sorted=False)
    torch.manual_seed(case.seed)  # weight drop
    output, after = layer(inputs, state[0] if state is not None and len(state) == 1 else state, given.get("dt"))
    results = {"output": output.data if isinstance(output, PackedSequence) else output}
    after = (after,) if isinstance(after, Tensor) else after
    results |= {f"state {index}": part for index, part in enumerate(after)}

    random = torch.Generator().manual_seed(case.seed + 1)
    loss = torch.zeros((), dtype=dtype, device=device)
    for value in results.values():
        loss = loss + (value * torch.randn(value.shape, generator=random).to(value)).sum()
    loss.backward()
    results |= {f"gradient of {name}": value.grad for name, value in given.items()}
    results |= {f"gradient of {name}": value.grad for name, value in layer.named_parameters()}
    return {name: value.detach().double().cpu() for name, value in results.items()}


def assert_same(found: Results, truth: Results, tolerance: float) -> None:
    assert found.keys() == truth.keys()
    for name, value in truth.items():
        assert found[name].shape == value.shape, name
        if value.numel():
            assert torch.isfinite(found[name]).all(), name
            error = (found[name] - value).abs().max() / value.abs().max().clamp(min=1)
            assert error <= tolerance, f"{name}: {error:.1e}"


def assert_taken(case: Case, contender: Contender) -> None:
    """That the engine runs the case: fused ones run every gate that has a name."""
    layer = case.layer(contender.engine, contender.device, contender.dtypes[0])
    weights = {name.removesuffix("_l0"): value for name, value in layer.named_parameters() if name.endswith("_l0")}
    inputs = torch.zeros(case.steps, case.batch, case.features, dtype=contender.dtypes[0], device=contender.device)
    zeros = Zeros(tuple(layer.cell.widths(case.units, case.units).values()))
    assert engines.KNOWN[contender.engine].refuses(EngineTask(layer.cell, weights, inputs, zeros)) is None


def assert_like_the_loop(case: Case, contender: Contender) -> None:
    truth = run(case, "loop", "cpu", torch.float64)
    for dtype in contender.dtypes:
        drawn_elsewhere = case.weight_drop > 0 and contender.device != "cpu"  # masks depend on device and dtype
        reference = run(case, "loop", contender.device, dtype) if drawn_elsewhere else truth
        assert_same(run(case, contender.engine, contender.device, dtype), reference, TOLERANCE[dtype])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    case = Case(
        cell=draw(st.sampled_from(list(CELLS))),
        gate=draw(st.sampled_from(list(GATES))),
        steps=draw(st.integers(1, 9)),
        batch=draw(st.integers(0, 5)),
        features=draw(st.integers(1, 4)),
        units=draw(st.integers(1, 9)),
        layers=draw(st.integers(1, 2)),
        bidirectional=draw(st.booleans()),
        bias=draw(st.booleans()),
        state=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
    if case.batch > 0 and draw(st.booleans()):
        lengths = draw(st.lists(st.integers(1, case.steps), min_size=case.batch, max_size=case.batch))
        case = replace(case, lengths=tuple(lengths), steps=max(lengths))
    return replace(case, dt=case.timed and draw(st.booleans()))


# What every engine must do like the loop.


@EVERY_ENGINE
@EVERY_CELL
@EVERY_GATE
def test_every_cell_with_every_gate_is_the_loops(contender: Contender, cell: str, gate: str) -> None:
    assert_taken(Case(cell, gate), contender)
    assert_like_the_loop(Case(cell, gate), contender)


EXAMPLES = 10 if os.environ.get("TRITON_INTERPRET") == "1" else 100  # an interpreted step takes milliseconds


@pytest.mark.long
@EVERY_ENGINE
@settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_any_size_and_form_of_input_is_the_loops(contender: Contender, case: Case) -> None:
    assert_taken(case, contender)
    assert_like_the_loop(case, contender)


@EVERY_ENGINE
@EVERY_CELL
@pytest.mark.parametrize("gate", ["power_law", "power_law-fixed", "power_law-small-eps", "power_law-no-eps"])
@pytest.mark.parametrize("lengths", [None, (2, 4, 1)], ids=["whole", "packed"])
def test_dt_and_its_gradient_are_the_loops(
    contender: Contender, cell: str, gate: str, lengths: tuple[int, ...] | None
) -> None:
    assert_like_the_loop(Case(cell, gate, steps=4, dt=True, lengths=lengths, bidirectional=True), contender)


@EVERY_ENGINE
@EVERY_CELL
def test_dropped_weights_are_the_same_for_the_same_seed(contender: Contender, cell: str) -> None:
    assert_like_the_loop(Case(cell, weight_drop=0.5, layers=2), replace(contender, dtypes=contender.dtypes[:1]))


@EVERY_ENGINE
def test_random_numbers_are_left_alone(contender: Contender) -> None:
    layer = Case().layer(contender.engine, contender.device, contender.dtypes[0])
    before = torch.get_rng_state()
    layer(torch.ones(3, 2, 2, dtype=contender.dtypes[0], device=contender.device))[0].sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@EVERY_ENGINE
@EVERY_CELL
@EVERY_GATE
@pytest.mark.parametrize("scale", [1e2, 1e6])
def test_saturated_gates_give_no_nan(contender: Contender, cell: str, gate: str, scale: float) -> None:
    assert_taken(Case(cell, gate), contender)
    for dtype in contender.dtypes:
        case = Case(cell, gate, steps=3, scale=scale, dt=gate.startswith("power_law"))
        found = run(case, contender.engine, contender.device, dtype)
        truth = run(case, "loop", contender.device, dtype)
        for name, value in truth.items():
            assert torch.isfinite(found[name])[torch.isfinite(value)].all(), name


@EVERY_ENGINE
@EVERY_CELL
def test_without_gradients_the_values_are_the_same(contender: Contender, cell: str) -> None:
    case = Case(cell, "power_law", state=False)
    layer = case.layer(contender.engine, contender.device, contender.dtypes[0])
    inputs = case.numbers(layer, contender.dtypes[0])["inputs"].to(contender.device)
    expected, states = layer(inputs)
    with torch.no_grad():
        output, after = layer(inputs)
    assert torch.equal(output, expected)
    assert all(torch.equal(a, b) for a, b in zip(after, states, strict=True))
    assert not output.requires_grad


@EVERY_ENGINE
@EVERY_CELL
def test_pieces_with_carried_state_are_the_whole(contender: Contender, cell: str) -> None:
    case, dtype = Case(cell, "power_law", steps=9, state=False), contender.dtypes[0]
    layer = case.layer(contender.engine, contender.device, dtype)
    inputs = case.numbers(layer, dtype)["inputs"].to(contender.device)
    whole, last = layer(inputs)
    state, outputs = None, []
    for piece in inputs.split([4, 1, 4]):
        output, state = layer(piece, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), whole)
    for part, expected in zip(state, last, strict=True):
        torch.testing.assert_close(part, expected)


# Manners.


@EVERY_ENGINE
@EVERY_CELL
def test_runs_repeat_to_the_last_bit(contender: Contender, cell: str) -> None:
    case = Case(cell, "power_law", steps=12, batch=16, units=32, dt=True, lengths=(12, 3, 7, 5) * 4)
    for dtype in contender.dtypes:
        first = run(case, contender.engine, contender.device, dtype)
        again = run(case, contender.engine, contender.device, dtype)
        assert all(torch.equal(first[name], again[name]) for name in first)


@EVERY_ENGINE
@EVERY_CELL
def test_a_retained_graph_gives_the_same_gradients_again(contender: Contender, cell: str) -> None:
    case, dtype = Case(cell, "power_law", state=False), contender.dtypes[0]
    layer = case.layer(contender.engine, contender.device, dtype)
    inputs = case.numbers(layer, dtype)["inputs"].to(contender.device).requires_grad_()
    loss = layer(inputs)[0].square().sum()
    wanted = [inputs, *layer.parameters()]
    first = torch.autograd.grad(loss, wanted, retain_graph=True)
    again = torch.autograd.grad(loss, wanted)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@EVERY_ENGINE
@EVERY_CELL
@pytest.mark.parametrize("units", [6, 16])
@pytest.mark.parametrize("count", [1, 2])
def test_every_gradient_has_its_own_memory(contender: Contender, cell: str, units: int, count: int) -> None:
    # Else what is done in place, such as clipping or adding up over batches, would happen twice.
    case, dtype = Case(cell, "fast", units=units, state=False), contender.dtypes[0]
    layers = [case.layer(contender.engine, contender.device, dtype) for _ in range(count)]
    inputs = case.numbers(layers[0], dtype)["inputs"].to(contender.device)
    results = rm.together(layers, inputs) if count > 1 else [layers[0](inputs)]
    sum(output.square().sum() for output, _ in results).backward()
    gradients = [parameter.grad for layer in layers for parameter in layer.parameters()]
    assert len({gradient.data_ptr() for gradient in gradients}) == len(gradients)


@EVERY_ENGINE
@EVERY_CELL
def test_a_second_derivative_is_that_of_the_loop(contender: Contender, cell: str) -> None:
    dtype = contender.dtypes[0]
    found = []
    for engine in (contender.engine, "loop"):
        layer = Case(cell).layer(engine, contender.device, dtype)
        weights = list(layer.parameters())
        loss = layer(torch.ones(3, 2, 2, dtype=dtype, device=contender.device))[0].square().sum()
        first = torch.autograd.grad(loss, weights, create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in first), weights))
    torch.testing.assert_close(*found, rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-5)


@EVERY_ENGINE
def test_given_tensors_are_not_changed_and_outputs_may_be(contender: Contender) -> None:
    case, dtype = Case("lstm-coupled", "power_law", dt=True), contender.dtypes[0]
    layer = case.layer(contender.engine, contender.device, dtype)
    given = {name: value.to(contender.device) for name, value in case.numbers(layer, dtype).items()}
    before = {name: value.clone() for name, value in given.items()}
    weights = {name: value.clone() for name, value in layer.state_dict().items()}
    state = tuple(value for name, value in given.items() if name.startswith("state"))
    output, after = layer(given["inputs"], state, given["dt"])
    assert all(torch.equal(given[name], before[name]) for name in given)
    (output.sum() + after[0].sum()).backward()
    assert all(torch.equal(given[name], before[name]) for name in given)
    assert all(torch.equal(value, weights[name]) for name, value in layer.state_dict().items())
    with torch.no_grad():
        output, after = layer(given["inputs"], state, given["dt"])
        last = after[0].clone()
        output.zero_()
    assert torch.equal(after[0], last)


@EVERY_ENGINE
def test_an_output_changed_in_place_is_noticed_or_right(contender: Contender) -> None:
    dtype = contender.dtypes[0]
    layer = Case().layer(contender.engine, contender.device, dtype)
    output, _ = layer(torch.ones(3, 2, 2, dtype=dtype, device=contender.device))
    output.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@EVERY_ENGINE
@EVERY_CELL
def test_a_loss_of_the_last_state_alone_has_the_loops_gradients(contender: Contender, cell: str) -> None:
    dtype = contender.dtypes[0]
    found = {}
    for engine, device, wide in (("loop", "cpu", torch.float64), (contender.engine, contender.device, dtype)):
        layer = Case(cell, "power_law").layer(engine, device, wide)
        inputs = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 2, 2).to(device, wide)
        _, state = layer(inputs)
        state[-1].sum().backward()
        found[engine] = {name: parameter.grad.double().cpu() for name, parameter in layer.named_parameters()}
    assert_same(found[contender.engine], found["loop"], TOLERANCE[dtype])


@EVERY_ENGINE
def test_only_wanted_gradients_are_given(contender: Contender) -> None:
    dtype = contender.dtypes[0]
    layer = Case("lstm-coupled", "power_law").layer(contender.engine, contender.device, dtype).requires_grad_(False)
    inputs = torch.ones(3, 2, 2, dtype=dtype, device=contender.device, requires_grad=True)
    layer(inputs)[0].sum().backward()
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in layer.parameters())


@pytest.mark.long
@EVERY_ENGINE
@pytest.mark.parametrize("cell", ["lstm-coupled", "gru"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's tracer looks at every tensor's
def test_compiled_layers_give_the_same(contender: Contender, cell: str) -> None:
    case, dtype = Case(cell, "power_law"), contender.dtypes[0]
    truth = run(case, contender.engine, contender.device, dtype)
    layer = case.layer(contender.engine, contender.device, dtype)
    torch.compiler.reset()
    compiled = Compiled(layer)
    assert_same(run(case, contender.engine, contender.device, dtype, compiled), truth, TOLERANCE[dtype])


class Compiled:
    """A compiled layer that answers like the layer. The backend needs no compiler: what is tested is the tracing."""

    def __init__(self, layer: rm.nn.Recurrent) -> None:
        self._layer = layer
        self._compiled = torch.compile(layer, backend="eager")

    def __call__(self, *arguments: Any) -> Any:
        return self._compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


# Choosing and refusing.


class Centred(Gate):
    """A gate of which no kernel can be derived: its units see each other."""

    name: ClassVar[str] = "centred"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        centred = pre[0] - pre[0].mean(-1, keepdim=True)
        return Forgetting(torch.sigmoid(centred), torch.sigmoid(-centred))


REFUSED_BY_CPU: dict[str, tuple[Callable[[str], rm.nn.Recurrent], str]] = {
    "nru": (
        lambda engine: rm.NRU(2, 3, memory_size=4, heads=1, engine=engine),
        "one recurrent matmul .* nru is not one",
    ),
    "gate": (
        lambda engine: rm.LSTM(2, 3, gate=Centred(), engine=engine),
        "no formula for gate 'centred': .* torch.mean",
    ),
    "bfloat16": (lambda engine: rm.LSTM(2, 3, dtype=torch.bfloat16, engine=engine), "float32 and float64"),
    "float16": (lambda engine: rm.LSTM(2, 3, dtype=torch.float16, engine=engine), "float32 and float64"),
    "device": (lambda engine: rm.LSTM(2, 3, device="meta", engine=engine), "on the CPU, and the input is on meta"),
}


@pytest.mark.parametrize("reason", REFUSED_BY_CPU)
@pytest.mark.filterwarnings("ignore:no kernel can be derived for gate 'centred'")  # said once
def test_the_cpu_engine_says_why_it_refuses_and_auto_goes_on(reason: str) -> None:
    make, sentence = REFUSED_BY_CPU[reason]
    layer = make("cpu")
    parameter = next(layer.parameters())
    inputs = torch.zeros(2, 1, 2, dtype=parameter.dtype, device=parameter.device)
    with pytest.raises(ValueError, match=f"engine='cpu' can run, but .*{sentence}"):
        layer(inputs)
    assert make("auto")(inputs)[0].shape[:2] == (2, 1)


@EVERY_CELL
@EVERY_GATE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_auto_takes_an_engine_of_this_package_on_the_cpu(
    cell: str, gate: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines.KNOWN["c++" if dtype == torch.float32 and host.lacks() is None else "cpu"]
    tasks: list[EngineTask] = []

    def watched(task: EngineTask) -> EngineResult:
        tasks.append(task)
        return original(task)

    original = engine.run
    monkeypatch.setattr(engine, "run", watched)
    layer = Case(cell, gate).layer("auto", "cpu", dtype)
    layer(torch.zeros(2, 1, 2, dtype=dtype))  # the first time the engine may check itself
    tasks.clear()
    layer(torch.zeros(2, 1, 2, dtype=dtype))
    assert len(tasks) == 1


@pytest.mark.parametrize("cell", [rm.LSTM, rm.PowerLawLSTM, rm.SRU])
def test_auto_sets_up_no_engine_for_a_single_step(cell: type[rm.nn.Recurrent], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = cell(2, 3), torch.randn(1, 40, 2)
    expected = layer(x)[0]  # with gradients
    for name in ("c++", "cpu"):
        monkeypatch.setattr(engines.KNOWN[name], "run", None)
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], expected)


# The CPU engine works through long sequences in stretches.


@EVERY_CELL
@pytest.mark.parametrize("gate", ["sigmoid", "power_law"])
def test_stretches_of_any_length_match_the_loop(cell: str, gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(cell, gate, steps=7, lengths=(7, 2, 5), bidirectional=True, dt=gate == "power_law")
    truth = run(case, "loop", "cpu", torch.float64)
    for steps in (1, 2, 3, 6):
        monkeypatch.setattr("remanence.engines.cpu.buffers.PLANE", steps * case.batch * case.units)
        assert_same(run(case, "cpu", "cpu", torch.float64), truth, TOLERANCE[torch.float64])
        with torch.no_grad():
            layer = case.layer("cpu", "cpu", torch.float64)
            inputs = case.numbers(layer, torch.float64)["inputs"]
            torch.testing.assert_close(layer(inputs)[0], case.layer("loop", "cpu", torch.float64)(inputs)[0])
