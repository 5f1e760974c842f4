"""User-defined gates on every engine: kernels are derived from their equation and match the loop."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import simulation
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_gates import OWN, Cauchy, Constant, Handed, Mixture, Steep, TwoClocks

import remanence as rm
import remanence.engines.cuda as clusters
from remanence import engines
from remanence.cells import GatedCell, GRUCell, JANETCell, LSTMCell
from remanence.engines import choice, comparison, samples
from remanence.engines.cpp import engine as host
from remanence.engines.cuda import plan
from remanence.engines.kernels import contract
from remanence.engines.kernels.derive import derived, why_not
from remanence.engines.kernels.run import unsuited
from remanence.engines.machine import float32_products
from remanence.gates import Forgetting, Gate
from remanence.gates.sound import expect_sound

CPU = torch.device("cpu")
compiles = pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler")

MAKERS: dict[str, Callable[[Gate], GatedCell]] = {
    "lstm": lambda gate: LSTMCell(gate, coupled=False),
    "coupled": lambda gate: LSTMCell(gate, coupled=True),
    "gru": GRUCell,
    "janet": JANETCell,
}
every_cell = pytest.mark.parametrize("cell", MAKERS)
every_gate = pytest.mark.parametrize("gate", OWN, ids=lambda gate: gate.name)


def assert_like_the_loop(engine: str, cell: GatedCell, precision: Any, sizes: Any = None, **special: Any) -> None:
    """Values and every gradient, from an initial state: full sequences, and unequal ones in reverse with dt."""
    sizes = sizes or samples.Sizes(5, 6, 3, 9)
    tasks = [samples.make_task(cell, sizes, precision.dtype, CPU, **special)]
    if not special:
        more = {"unequal": True, "reverse": True, "irregular": cell.takes_dt}
        tasks.append(samples.make_task(cell, sizes, precision.dtype, CPU, seed=1, **more))
    for task in tasks:
        assert engines.KNOWN[engine].refuses(task) is None
        found = comparison.errors_of(engines.KNOWN[engine], task)
        assert not isinstance(found, str), found
        assert found.beyond(precision.tolerance) is None


@every_cell
@every_gate
@pytest.mark.parametrize("precision", [comparison.FLOAT64, comparison.FLOAT32], ids=lambda precision: precision.name)
def test_on_the_engine_cpu(gate: Gate, cell: str, precision: Any) -> None:
    assert_like_the_loop("cpu", MAKERS[cell](gate), precision)


@compiles
@pytest.mark.parametrize(
    "cell", [cell if cell in ("lstm", "gru") else pytest.param(cell, marks=pytest.mark.long) for cell in MAKERS]
)
@every_gate
def test_on_the_engine_cpp(gate: Gate, cell: str) -> None:
    assert_like_the_loop("c++", MAKERS[cell](gate), comparison.FLOAT32)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning")
@every_cell
@every_gate
def test_on_the_engine_triton_interpreted(gate: Gate, cell: str) -> None:
    assert_like_the_loop("triton", MAKERS[cell](gate), comparison.FLOAT32)


@settings(deadline=None, max_examples=25)
@given(
    gate=st.sampled_from(OWN),
    cell=st.sampled_from(sorted(MAKERS)),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4), st.integers(1, 19)),
    unequal=st.booleans(),
    reverse=st.booleans(),
    irregular=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_size_on_the_engines_of_the_cpu(gate, cell, sizes, unequal, reverse, irregular, seed) -> None:
    made = MAKERS[cell](gate)
    special = {"unequal": unequal, "reverse": reverse, "irregular": irregular and gate.takes_dt, "seed": seed}
    assert_like_the_loop("cpu", made, comparison.FLOAT64, samples.Sizes(*sizes), **special)
    if host.lacks() is None:
        few = replace(comparison.FLOAT32, tolerance=1e-3)  # for a single value: slopes of a tanh cancel there
        assert_like_the_loop("c++", made, few, samples.Sizes(*sizes), **special)


@pytest.mark.parametrize("engine", ["cpu", pytest.param("c++", marks=compiles)])
def test_layers_side_by_side(engine: str) -> None:
    """Each layer has its own weights of the gate."""
    torch.manual_seed(0)
    layers = [rm.LSTM(3, 9, gate=TwoClocks(), engine=engine) for _ in range(3)]
    inputs = torch.randn(3, 4, 2, 3)
    together = rm.engines.run(engine, [task_of(layer, own) for layer, own in zip(layers, inputs, strict=True)])
    for result, layer, own in zip(together, layers, inputs, strict=True):
        torch.testing.assert_close(result.output, layer(own)[0])


def task_of(layer: rm.nn.Recurrent, inputs: torch.Tensor) -> rm.engines.EngineTask:
    weights = {name.removesuffix("_l0"): weight for name, weight in layer.named_parameters()}
    zeros = rm.engines.Zeros(tuple(layer.cell.widths(9, 9).values()))
    return rm.engines.EngineTask(layer.cell, weights, inputs, zeros)


# On a simulated GPU. Each of these compiles kernels, which takes some seconds.

SIMULATED: dict[str, tuple[GatedCell, int, int, int, plan.LaunchShape]] = {
    "four blocks of three rows": (JANETCell(Mixture()), 5, 32, 11, plan.LaunchShape(4, 2, 1)),
    "two carried": (LSTMCell(TwoClocks(), coupled=True), 5, 20, 9, plan.LaunchShape(4, 2, 1)),
    "two carried, whole": (LSTMCell(TwoClocks(), coupled=True), 5, 20, 9, plan.make_whole(20, backward=False)),
    "two carried, wide": (LSTMCell(TwoClocks()), 17, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
    "two carried, a part apart": (GRUCell(TwoClocks()), 3, 16, 3, plan.LaunchShape(4, 1, 1)),
    "handed on": (LSTMCell(Handed()), 5, 30, 5, plan.LaunchShape(4, 2, 1)),
    "a weight unused": (GRUCell(Steep()), 5, 20, 9, plan.make_whole(20, backward=False)),
    "weights that must not be zero": (JANETCell(OWN[6]), 5, 20, 9, plan.LaunchShape(4, 2, 1)),
}
SOON = ("two carried", "handed on")
"""The subset that `make test` runs."""


@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "special",
    [pytest.param(False, id="plain", marks=[pytest.mark.long, pytest.mark.slow]), pytest.param(True, id="special")],
)
@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.long) for name in SIMULATED]
)
def test_on_a_simulated_gpu(name: str, special: bool, simulated: pytest.MonkeyPatch) -> None:
    from test_simulated import errors, force

    cell, inputs, units, rows, sizes = SIMULATED[name]
    force(sizes, simulated)
    precision = comparison.TF32 if sizes.whole or sizes.wide or not special else comparison.FULL
    found = errors(cell, inputs, units, rows, sizes, precision, special)
    assert not isinstance(found, str), found
    assert found.beyond(precision.tolerance) is None


@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "whole", [pytest.param(False, id="clusters", marks=pytest.mark.long), pytest.param(True, id="whole")]
)
def test_replicas_on_a_simulated_gpu(whole: bool, simulated: pytest.MonkeyPatch) -> None:
    """Each layer uses its own weights of the gate and its own carried values."""
    from test_simulated import force

    force(plan.make_whole(20, backward=False) if whole else plan.LaunchShape(4, 2, 1), simulated)
    cell = LSTMCell(TwoClocks(), coupled=True)
    tasks = [samples.make_task(cell, samples.Sizes(4, 3, 3, 20), torch.float32, CPU, seed=seed) for seed in range(3)]
    leaves = [[*task.weights.values(), *task.first_state] for task in tasks]
    for leaf in (leaf for own in leaves for leaf in own):
        leaf.requires_grad_()
    with float32_products(True):
        together = clusters.run(engines.stacked(tasks))
        total = together.output.square().sum() + sum(part.square().sum() for part in together.state)
        slopes = torch.autograd.grad(total, [leaf for own in leaves for leaf in own])
        for number, task in enumerate(tasks):
            alone = clusters.run(task)
            torch.testing.assert_close(together.output[number], alone.output)
            for whole_part, part in zip(together.state, alone.state, strict=True):
                torch.testing.assert_close(whole_part[number], part)
            total = alone.output.square().sum() + sum(part.square().sum() for part in alone.state)
            expected = torch.autograd.grad(total, leaves[number])
            many = len(expected)
            for found, true in zip(slopes[number * many : (number + 1) * many], expected, strict=True):
                torch.testing.assert_close(found, true, rtol=1e-4, atol=1e-4)


# In layers.


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the gates, with no warning issued yet."""
    monkeypatch.setattr(rm.gates, "KNOWN", rm.gates.KNOWN | {gate.name: type(gate) for gate in OWN})
    monkeypatch.setattr(choice, "_told", set())


LAYERS = {"lstm": rm.LSTM, "gru": rm.GRU, "janet": rm.JANET}


@pytest.mark.parametrize("layer", LAYERS)
@every_gate
def test_a_registered_gate_works_like_a_built_in_one(gate: Gate, layer: str, named: None) -> None:
    """No KeyError, no warning (which would be an error here), and no slow engine."""
    made = LAYERS[layer](3, 5, gate=gate.name, bidirectional=True)
    inputs = torch.randn(4, 2, 3)
    dt = torch.rand(4, 2) if gate.takes_dt else None
    output, _ = made(inputs, None, dt)
    output.sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())
    found = rm.engines.explain(made, dt=gate.takes_dt)
    assert found.engine == ("c++" if host.lacks() is None else "cpu")
    assert found.not_derived is None
    assert "gate_forward" in found.sources["c++"]
    assert "def gate_forward" in found.sources["triton"]


def test_check_takes_a_gate_by_name_and_as_an_object(named: None) -> None:
    by_name = rm.engines.check("cpu", ["cpu"], gate="cauchy")
    as_object = rm.engines.check("cpu", ["cpu"], gate=Cauchy())
    assert by_name == as_object
    assert len(by_name) == 2 * (len(MAKERS) + 1)  # and a phased LSTM
    assert all(row.ok and row.gate == "cauchy" for row in by_name)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's tracer reads it for every tensor
def test_layers_are_copied_pickled_recorded_and_compiled() -> None:
    torch.manual_seed(0)
    layer = rm.LSTM(3, 5, gate=TwoClocks())
    inputs = torch.randn(4, 2, 3)
    expected, _ = layer(inputs)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.compile(layer, backend="eager")):
        assert torch.equal(twin(inputs)[0], expected)
    recorded = rm.record(layer, inputs)
    torch.testing.assert_close(recorded["hidden"], expected)


def test_a_gate_without_a_timescale_raises() -> None:
    with pytest.raises(ValueError, match="expected a gate with a timescale, got cauchy"):
        rm.timescales.of(rm.LSTM(3, 5, gate=Cauchy()))


# Kernels of one gate are not those of another.


def key_of(gate: Gate) -> str | None:
    return contract.derivation(LSTMCell(gate)).key


def test_gates_with_different_settings_have_different_kernels() -> None:
    slow, fast = TwoClocks(0.1), TwoClocks(0.4)
    assert key_of(slow) != key_of(fast)
    assert key_of(slow) == key_of(TwoClocks(0.1))
    for gate in (slow, fast):
        assert_like_the_loop("cpu", LSTMCell(gate), comparison.FLOAT64)
        if host.lacks() is None:
            assert_like_the_loop("c++", LSTMCell(gate), comparison.FLOAT32)


class Wider(Steep):
    """The same formula with an additional weight that nothing depends on."""

    per_unit = ("slope", "unused", "another")


class Narrow(Steep):
    """The same formula with one weight less."""

    per_unit = ("slope",)


@compiles
def test_weights_that_a_formula_does_not_use_are_counted_too() -> None:
    made = [LSTMCell(kind()) for kind in (Narrow, Steep, Wider)]
    assert len({contract.derivation(cell).key for cell in made}) == len(made)
    for cell in made:
        assert_like_the_loop("c++", cell, comparison.FLOAT32)


@dataclass
class Unhashable(Gate):
    """A mutable dataclass, which is therefore not hashable."""

    name: ClassVar[str] = "unhashable"
    steepness: float = 1.0

    def __call__(self, pre, carried, weights, dt):
        return Forgetting(torch.sigmoid(self.steepness * pre[0]), torch.sigmoid(-self.steepness * pre[0]))


@pytest.mark.parametrize("engine", ["cpu", pytest.param("c++", marks=compiles)])
def test_a_mutable_gate_has_the_kernels_of_its_current_settings(engine: str) -> None:
    gate = Unhashable()
    with pytest.raises(TypeError):
        hash(gate)
    precision = comparison.FLOAT64 if engine == "cpu" else comparison.FLOAT32
    for steepness in (1.0, 2.0):
        gate.steepness = steepness
        assert_like_the_loop(engine, LSTMCell(gate), precision)


class Slotted(Gate):
    """An instance without `__dict__`."""

    __slots__ = ("by",)
    name: ClassVar[str] = "slotted"

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, pre, carried, weights, dt):
        return Forgetting(torch.sigmoid(pre[0] + self.by), torch.sigmoid(-pre[0] - self.by))


def test_a_gate_with_slots() -> None:
    for by in (-1.0, 1.0):
        assert_like_the_loop("cpu", GRUCell(Slotted(by)), comparison.FLOAT64)


# Gates that cannot be traced into a formula.


def underivable(word: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> Gate:
    """A gate that applies `compute` before its sigmoid."""

    def call(self, pre, carried, weights, dt):
        z = compute(pre[0])
        return Forgetting(torch.sigmoid(z), torch.sigmoid(-z))

    return type(word, (Gate,), {"name": word, "__call__": call})()


UNDERIVABLE = {
    "mean": (underivable("centred", lambda z: z - z.mean(-1, keepdim=True)), r"torch\.mean"),
    "cumsum": (underivable("summed", lambda z: z.cumsum(-1)), r"torch\.cumsum"),
    "if": (underivable("deciding", lambda z: z if z.abs().max() > 0.01 else 2 * z), r"torch\.max|reads the value"),
    "a tensor": (
        underivable("noisy", lambda z: z + torch.linspace(0, 1, z.shape[-1])),
        r"torch\.linspace|not one of its arguments",
    ),
    "the number of units": (underivable("scaled", lambda z: z / z.shape[-1]), "more than the operations"),
    "detached": (underivable("detached", lambda z: z + z.detach()), "differs from autograd"),
}


@pytest.mark.parametrize("name", UNDERIVABLE)
def test_a_gate_that_cannot_be_derived_runs_on_the_loop_with_one_warning(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_told", set())
    gate, sentence = UNDERIVABLE[name]
    layer = rm.LSTM(3, 5, gate=gate)
    inputs = torch.randn(4, 2, 3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        output, _ = layer(inputs)
        layer(inputs)
        rm.GRU(3, 5, gate=gate)(inputs)
        explained = rm.engines.explain(layer)
    assert len(told) == 1
    assert str(told[0].message).startswith(f"no kernel can be derived for gate {gate.name!r}: ")
    with pytest.warns(UserWarning, match=sentence):
        warnings.warn(told[0].message, stacklevel=1)
    assert explained.engine == "loop"
    assert explained.not_derived == why_not(gate)
    assert explained.not_derived in str(explained)
    assert not explained.sources
    torch.testing.assert_close(output, rm.LSTM.__call__(layer, inputs)[0])


class Single(Gate):
    """A formula in float32 but not in float64, where a part of it stays in float32."""

    name: ClassVar[str] = "single"

    def __call__(self, pre, carried, weights, dt):
        z = pre[0] + (pre[0] > 0) * 0.1
        return Forgetting(torch.sigmoid(z), torch.sigmoid(-z))


def test_an_engine_refuses_a_gate_without_a_formula_in_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_told", set())
    gate = Single()
    assert why_not(gate) is None
    assert why_not(gate, False, torch.float64) is not None
    layer = rm.LSTM(3, 5, gate=gate, dtype=torch.float64)
    with pytest.warns(UserWarning, match="no kernel can be derived for gate 'single'"):
        layer(torch.randn(4, 2, 3, dtype=torch.float64))


AROUND: dict[str, Callable[..., torch.Tensor]] = {
    "inference mode": lambda run, x: torch.inference_mode()(run)(x),
    "no gradients": lambda run, x: torch.no_grad()(run)(x),
    "autocast": lambda run, x: torch.autocast("cpu", dtype=torch.bfloat16)(run)(x),
    "vmap": lambda run, x: torch.func.vmap(run)(x[None])[0],
    "a checkpoint": lambda run, x: torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_gate_is_derived_wherever_it_is_first_used(name: str) -> None:
    class New(Cauchy):
        """A gate that has not been used before."""

    gate = New()

    def run(inputs: torch.Tensor) -> torch.Tensor:
        expect_sound(gate)
        assert why_not(gate) is None
        return gate((inputs,), (), {}, None).forget

    found = AROUND[name](run, torch.randn(4, 3, requires_grad=name == "a checkpoint"))
    assert found.shape == (4, 3)
    if found.requires_grad:
        found.sum().backward()
    assert derived(gate, False).digest == derived(Cauchy(), False).digest


class Rooted(Gate):
    """Its slope is NaN at zero."""

    name: ClassVar[str] = "rooted"

    def __call__(self, pre, carried, weights, dt):
        root = pre[0].abs().sqrt()
        return Forgetting((-root).exp(), -(-root).expm1())


class Quotient(Gate):
    """Its value is NaN at zero."""

    name: ClassVar[str] = "quotient"
    carries: ClassVar[tuple[str, ...]] = ("total",)

    def __call__(self, pre, carried, weights, dt):
        total = carried[0] + pre[0].abs()
        return Forgetting(torch.sigmoid(pre[0] / total), torch.sigmoid(-pre[0] / total), (total,))


@pytest.mark.parametrize("gate", [Rooted(), Quotient()], ids=lambda gate: gate.name)
def test_kernels_that_pad_refuse_a_gate_that_is_not_finite_at_zero(gate: Gate) -> None:
    """Zero times NaN would spread to all units; engines that do not pad accept it."""
    task = samples.make_task(LSTMCell(gate), samples.SIZES, torch.float32, CPU)
    assert str(unsuited(task)).endswith("at zero is not finite")
    assert unsuited(task, pads=False) is None
    assert_like_the_loop("cpu", LSTMCell(gate), comparison.FLOAT64)
    if host.lacks() is None:
        assert_like_the_loop("c++", LSTMCell(gate), replace(comparison.FLOAT32, tolerance=1e-4))


@every_gate
def test_kernels_pad_other_gates(gate: Gate) -> None:
    task = samples.make_task(LSTMCell(gate), samples.SIZES, torch.float32, CPU, irregular=gate.takes_dt)
    assert unsuited(task) is None


@pytest.mark.parametrize("name", rm.gates.KNOWN)
def test_kernels_pad_the_gates_of_the_package(name: str) -> None:
    assert unsuited(samples.make_task(LSTMCell(rm.gates.KNOWN[name]()), samples.SIZES, torch.float32, CPU)) is None


def test_a_gate_of_a_weight_alone_has_no_gradient_for_its_rows() -> None:
    formulas = derived(Constant(), False)
    assert formulas.derivatives()["z0"].is_constant(0.0)
