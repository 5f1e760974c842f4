"""Single-step cells against torch's and against layers, and the fast path of a layer against the general one."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import remanence as rm
from remanence.engines import cpp, equation, streaming
from remanence.engines.cpp import one_step as on_cpus
from remanence.engines.kernels import one_step as compiled
from remanence.nn import RecurrentCell
from remanence.timescales import Fixed

KINDS: dict[str, tuple[type[rm.nn.Recurrent], type[RecurrentCell]]] = {
    "lstm": (rm.LSTM, rm.LSTMCell),
    "gru": (rm.GRU, rm.GRUCell),
    "janet": (rm.JANET, rm.JANETCell),
}
GATES = list(rm.gates.KNOWN)


@dataclass(frozen=True)
class Cauchy(rm.gates.Gate):
    """A custom gate."""

    name = "cauchy"

    def __call__(self, pre: Any, carried: Any, weights: Any, dt: Any) -> rm.gates.Forgetting:
        share = torch.atan(pre[0]) / torch.pi
        return rm.gates.Forgetting(0.5 + share, 0.5 - share)


@dataclass(frozen=True)
class TwoOfEach(rm.gates.Gate):
    """Two rows, two carried values, two weights per unit, and dt."""

    name = "two_of_each"
    rows = ("forget", "more")
    carries = ("long", "short")
    takes_dt = True
    per_unit = ("rate", "shift")

    def __call__(self, pre: Any, carried: Any, weights: Any, dt: Any) -> rm.gates.Forgetting:
        time = 1.0 if dt is None else dt
        long = torch.tanh(0.9 * carried[0] + pre[1] * time)
        short = 0.5 * carried[1] + torch.sigmoid(weights["rate"]) * time
        logit = pre[0] + long - short + weights["shift"]
        return rm.gates.Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit), (long, short))

    def parameters(self, units: int) -> dict[str, Tensor]:
        return {name: torch.linspace(-1, 1, units, dtype=torch.float64) for name in self.per_unit}


COMBINED: dict[str, tuple[type[rm.nn.Recurrent], type[RecurrentCell], dict[str, Any]]] = {
    **{f"{kind} {gate}": (*KINDS[kind], {"gate": gate}) for kind in KINDS for gate in GATES},
    **{f"{kind} own gate": (*KINDS[kind], {"gate": Cauchy()}) for kind in KINDS},
    **{f"{kind} two of each": (*KINDS[kind], {"gate": TwoOfEach()}) for kind in KINDS},
    "lstm coupled": (rm.LSTM, rm.LSTMCell, {"input_gate": "coupled"}),
    "lstm power_law separate": (rm.LSTM, rm.LSTMCell, {"gate": "power_law", "input_gate": "separate"}),
    "lstm without biases": (rm.LSTM, rm.LSTMCell, {"bias": False, "gate": "fast"}),
    "gru without biases": (rm.GRU, rm.GRUCell, {"bias": False}),
    "lstm projected": (rm.LSTM, rm.LSTMCell, {"proj_size": 3, "gate": "fast"}),
    "lstm frozen": (rm.LSTM, rm.LSTMCell, {"timescales": Fixed(7.0, freeze=True)}),
    "janet beta 0": (rm.JANET, rm.JANETCell, {"beta": 0.0}),
    "power law": (rm.PowerLawLSTM, rm.PowerLawLSTMCell, {"p": 0.3}),
}
EVERY = pytest.mark.parametrize("name", COMBINED)
NEAR = {torch.float32: 1e-5, torch.float64: 1e-12}


def pair(name: str, inputs: int = 3, units: int = 5, **keywords: Any) -> tuple[rm.nn.Recurrent, RecurrentCell]:
    """A layer, and a step that shares its weights."""
    layer, step, own = COMBINED[name]
    made = layer(inputs, units, **own | keywords)
    return made, step.of(made)


def parts(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_state(tensors: Any) -> Any:
    tensors = tuple(tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def widths(layer: Any) -> list[int]:
    return list(layer.cell.widths(layer.hidden_size, layer.output_size).values())


def some_state(layer: Any, *lead: int, dtype: torch.dtype | None = None) -> Any:
    """Positive, as an age is."""
    return as_state(torch.rand(*lead, width, dtype=dtype) for width in widths(layer))


def some_dt(layer: Any, *shape: int, dtype: torch.dtype | None = None) -> Tensor | None:
    return torch.rand(shape, dtype=dtype) + 0.1 if layer.cell.takes_dt else None


def assert_near(found: Any, expected: Any, tolerance: float | None = None) -> None:
    assert len(parts(found)) == len(parts(expected))
    for one, other in zip(parts(found), parts(expected), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        near = NEAR[one.dtype] if tolerance is None else tolerance
        torch.testing.assert_close(one, other, rtol=near, atol=near)


compiles = pytest.mark.skipif(cpp.engine.lacks() is not None, reason="there is no C++ compiler")


# Against torch.


THEIRS = pytest.mark.parametrize(
    ("ours", "theirs"), [(rm.LSTMCell, nn.LSTMCell), (rm.GRUCell, nn.GRUCell)], ids=["lstm", "gru"]
)


@THEIRS
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
def test_starts_at_the_weights_of_torch_and_computes_the_same(ours: Any, theirs: Any, bias: bool) -> None:
    torch.manual_seed(3)
    one = ours(4, 6, bias)
    torch.manual_seed(3)
    other = theirs(4, 6, bias)
    assert [name for name, _ in one.named_parameters()] == [name for name, _ in other.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    x = torch.randn(2, 4)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            state = found = None
            for _ in range(3):
                state, found = other(x, state), one(x, found)
                assert_near(found, state)
            assert_near(one(x[0]), other(x[0]))
            assert_near(
                one(x[0], as_state(part[0] for part in parts(state))), other(x[0], as_state(p[0] for p in parts(state)))
            )


@THEIRS
def test_gradients_are_those_of_torch(ours: Any, theirs: Any) -> None:
    other = theirs(4, 6).double()
    one = ours(4, 6, dtype=torch.float64)
    one.load_state_dict(other.state_dict())
    x = torch.randn(2, 4, dtype=torch.float64)
    found = []
    for module in (one, other):
        values = x.clone().requires_grad_()
        state = module(values, module(values))
        sum((part**2).sum() for part in parts(state)).backward()
        found.append([values.grad, *(parameter.grad for parameter in module.parameters())])
    assert_near(found[0], found[1])
    assert all(bool(grad.any()) for grad in found[0])


@THEIRS
def test_state_dict_goes_both_ways(ours: Any, theirs: Any) -> None:
    one, other, again = ours(4, 6), theirs(4, 6), ours(4, 6)
    other.load_state_dict(one.state_dict())
    again.load_state_dict(other.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))


# Against layers.


@EVERY
@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_steps_are_those_of_the_loop(name: str, engine: str) -> None:
    layer, _ = pair(name, dtype=torch.float64, engine="loop")
    step = type(pair(name)[1])
    cell = step.of(layer)
    cell.engine = engine
    x, dt = torch.randn(4, 2, 3, dtype=torch.float64), some_dt(layer, 4, 2, dtype=torch.float64)
    state = some_state(layer, 1, 2, dtype=torch.float64)
    output, expected = layer(x, state, dt)
    found, outputs = as_state(part[0] for part in parts(state)), []
    for t in range(4):
        found = cell(x[t], found, None if dt is None else dt[t])
        outputs.append(parts(found)[0])
    assert_near(torch.stack(outputs), output)
    assert_near(found, as_state(part[0] for part in parts(expected)))


@EVERY
def test_gradients_are_those_of_the_loop(name: str) -> None:
    layer, cell = pair(name, dtype=torch.float64, engine="loop")
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    dt = some_dt(layer, 3, 2, dtype=torch.float64)
    if dt is not None:
        dt.requires_grad_()
    wanted = [x, *layer.parameters(), *(() if dt is None else (dt,))]

    def loss(state: Any) -> Tensor:
        return sum((part**2).sum() for part in parts(state))  # type: ignore[return-value]

    expected = torch.autograd.grad(loss(layer(x, None, dt)[1]), wanted)
    state = None
    for t in range(3):
        state = cell(x[t], state, None if dt is None else dt[t])
    found = torch.autograd.grad(loss(state), wanted)
    assert_near(found, expected)


@pytest.mark.parametrize("name", ["lstm sigmoid", "gru fast", "power law", "janet two of each"])
def test_gradcheck(name: str) -> None:
    _, cell = pair(name, 2, 2, dtype=torch.float64)
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    state = [part.requires_grad_() for part in parts(some_state(cell, 2, dtype=torch.float64))]
    dt = some_dt(cell, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, *state: cell(x, as_state(state), dt), (x, *state))


@EVERY
@compiles
def test_inference_is_compiled_and_near_the_equation(name: str, quick_steps: list[bool]) -> None:
    layer, cell = pair(name)
    truth = copy.deepcopy(cell).double()
    truth.engine = "loop"
    for lead in ((2,), ()):
        for irregular in (False, True):
            x, state = torch.randn(*lead, 3), some_state(layer, *lead)
            dt = some_dt(layer, *lead) if irregular else None
            with torch.no_grad():
                found, fresh = cell(x, state, dt), cell(x, None, dt)
            wide = None if dt is None else dt.double()
            assert_near(
                found,
                as_state(p.float() for p in parts(truth(x.double(), as_state(p.double() for p in parts(state)), wide))),
            )
            assert_near(fresh, as_state(part.float() for part in parts(truth(x.double(), None, wide))))
    assert quick_steps == [True] * 8


@compiles
@given(
    kind=st.sampled_from(["lstm", "gru", "janet"]),
    gate=st.sampled_from(GATES),
    rows=st.integers(1, 20),
    inputs=st.integers(1, 70),
    units=st.integers(1, 70),
)
@settings(max_examples=40, deadline=None)
def test_any_size_is_right(kind: str, gate: str, rows: int, inputs: int, units: int) -> None:
    cell = KINDS[kind][1](inputs, units, gate=gate)
    truth = copy.deepcopy(cell).double()
    truth.engine = "loop"
    x, state = torch.randn(rows, inputs), some_state(cell, rows)
    with torch.no_grad():
        found = cell(x, state)
        expected = truth(x.double(), as_state(part.double() for part in parts(state)))
    assert_near(found, as_state(part.float() for part in parts(expected)))


def test_arguments_are_not_changed() -> None:
    cell = rm.LSTMCell(3, 5, gate="power_law")
    x, state = torch.randn(2, 3), some_state(cell, 2)
    before = [x.clone(), *(part.clone() for part in state)]
    with torch.no_grad():
        found = cell(x, state)
    assert all(torch.equal(one, other) for one, other in zip((x, *state), before, strict=True))
    assert len({part.data_ptr() for part in (*found, *state)}) == 6


# Sharing weights.


def test_a_step_of_a_layer_has_its_parameters() -> None:
    layer = rm.LSTM(3, 5, num_layers=2, bidirectional=True, gate="power_law")
    for index in (0, 1):
        for reverse in (False, True):
            suffix = f"_l{index}" + "_reverse" * reverse
            cell = rm.LSTMCell.of(layer, index, reverse)
            names = {name for name, _ in cell.named_parameters()}
            assert names == {"weight_ih", "weight_hh", "bias_ih", "p_hat"}
            assert all(cell.get_parameter(name) is layer.get_parameter(name + suffix) for name in names)
            assert cell.input_size == (3 if index == 0 else 10)


CHANGES: dict[str, Callable[[rm.LSTM], object]] = {
    "in place": lambda layer: layer.get_parameter("weight_ih_l0").mul_(2),
    "data": lambda layer: set_data(layer, torch.randn(20, 3)),
    "strides": lambda layer: set_data(layer, layer.get_parameter("weight_ih_l0").data.as_strided((20, 3), (1, 20))),
    "load_state_dict": lambda layer: layer.load_state_dict(rm.LSTM(3, 5, gate="fast").state_dict()),
    "a conversion": lambda layer: layer.double().float().get_parameter("weight_ih_l0").mul_(2),
}


def set_data(layer: rm.LSTM, values: Tensor) -> None:
    layer.get_parameter("weight_ih_l0").data = values


@compiles
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_of_the_layer_are_seen_at_once(change: str, quick_steps: list[bool]) -> None:
    layer = rm.LSTM(3, 5, gate="fast")
    cell, x = rm.LSTMCell.of(layer), torch.randn(2, 3)
    with torch.no_grad():
        before = cell(x)
        CHANGES[change](layer)
        after = cell(x)
        assert quick_steps.count(True) == (1 if change == "strides" else 2)
        assert not torch.allclose(before[0], after[0])
        assert_near(after[0], layer(x.unsqueeze(0))[0][0])


@compiles
def test_changed_parameters_of_the_step_are_seen_at_once() -> None:
    cell, x, state = rm.LSTMCell(3, 5, gate="power_law"), torch.randn(2, 3), None
    truth = copy.deepcopy(cell)
    truth.engine = "loop"
    changes: list[Callable[[rm.LSTMCell], object]] = [
        lambda cell: setattr(cell, "weight_hh", nn.Parameter(torch.full((15, 5), 0.3))),
        lambda cell: parametrizations.weight_norm(cell, "weight_ih", dim=0),
        lambda cell: cell.parametrizations.weight_ih.original0.mul_(2),
        lambda cell: parametrize.remove_parametrizations(cell, "weight_ih"),
        lambda cell: setattr(cell, "weight_ih", nn.Parameter(torch.full((15, 3), 0.1))),
    ]
    with torch.no_grad():
        for change in changes:
            for module in (cell, truth):
                change(module)
            for _ in range(2):
                expected, state = truth(x, state), cell(x, state)
                assert_near(state, expected)


@compiles
@pytest.mark.parametrize("changed", [lambda data: data[:15], lambda data: data.view(5, 12)])  # in the same memory
def test_weights_of_another_shape_are_refused(changed: Callable[[Tensor], Tensor]) -> None:
    cell, x = rm.LSTMCell(3, 5), torch.randn(2, 3)
    with torch.no_grad():
        cell(x)
        cell.weight_ih.data = changed(cell.weight_ih.data)
        with pytest.raises((ValueError, RuntimeError)):
            cell(x)


@compiles
def test_negated_weights_in_the_same_memory_are_seen() -> None:
    cell, x = rm.LSTMCell(3, 5), torch.randn(2, 3)
    with torch.no_grad():
        cell(x)
        cell.weight_ih.data = torch._neg_view(cell.weight_ih.data)
        truth = copy.deepcopy(cell)
        truth.engine = "loop"
        assert_near(cell(x), truth(x))


@compiles
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_sparse_projection_is_used() -> None:
    cell, x = rm.LSTMCell(3, 5, proj_size=2), torch.randn(2, 3)
    with torch.no_grad():
        expected = cell(x)
        cell.weight_hr = nn.Parameter(cell.weight_hr.detach().to_sparse_csr(), requires_grad=False)
        for _ in range(2):
            assert_near(cell(x), expected)
        cell.weight_hr = nn.Parameter(torch.zeros(2, 5))
        assert not cell(x)[0].any()


@compiles
def test_weights_that_change_while_they_are_bound_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = rm.LSTMCell(3, 5), torch.randn(2, 3)
    look, earlier = compiled.addresses_of, list[Tensor]()

    def disturbed(tensors: Iterable[Tensor], device: int) -> list[int] | None:
        found = look(tensors, device)
        earlier.append(cell.weight_ih.data)
        cell.weight_ih.data = earlier[-1] * 2
        return found

    with torch.no_grad():
        monkeypatch.setattr(compiled, "addresses_of", disturbed)
        cell(x)  # another thread would change them at any time
        monkeypatch.undo()
        truth = copy.deepcopy(cell)
        truth.engine = "loop"
        assert_near(cell(x), truth(x))


def test_a_state_without_memory_is_refused() -> None:
    states = torch.empty(2, 2, 5, device="meta")  # the second has an address all the same
    with torch.no_grad(), pytest.raises((ValueError, RuntimeError)):
        rm.LSTMCell(3, 5)(torch.randn(2, 3), (torch.zeros(2, 5), states[1]))


def test_learning_through_a_step_changes_the_layer() -> None:
    layer = rm.GRU(3, 5)
    cell = rm.GRUCell.of(layer)
    optimiser, before = torch.optim.SGD(cell.parameters(), 0.1), layer.get_parameter("weight_hh_l0").detach().clone()
    cell(torch.randn(2, 3), torch.randn(2, 5)).sum().backward()
    optimiser.step()
    assert not torch.equal(before, layer.get_parameter("weight_hh_l0"))


def test_frozen_biases_act_and_get_no_gradient() -> None:
    layer = rm.LSTM(3, 5, num_layers=2, timescales=[None, Fixed(7.0, freeze=True)])
    cell = rm.LSTMCell.of(layer, 1)
    assert {name for name, _ in cell.named_buffers()} == {"frozen_bias_ih", "frozen_bias_hh"}
    x, state, forget = torch.randn(2, 5), some_state(cell, 2), slice(5, 10)
    plain = rm.LSTMCell(5, 5)
    plain.load_state_dict({name: value + getattr(cell, f"frozen_{name}", 0) for name, value in cell.named_parameters()})
    found = cell(x, state)
    assert_near(found, plain(x, state))
    found[1].sum().backward()
    grad = cell.get_parameter("bias_hh").grad
    assert grad is not None
    assert not grad[forget].any()
    assert grad[10:15].any()
    torch.testing.assert_close(cell.forget_biases()[0][0], layer.forget_biases()[1][0])


def test_reset_parameters_draws_again_what_the_constructor_drew() -> None:
    torch.manual_seed(1)
    cell = rm.JANETCell(3, 5, t_max=20)
    before = [parameter.detach().clone() for parameter in cell.parameters()]
    torch.manual_seed(1)
    cell.reset_parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, cell.parameters(), strict=True))
    cell.reset_parameters()
    assert not torch.equal(before[0], next(cell.parameters()))


# Module behaviour.


@EVERY
def test_copies_and_files_keep_what_it_computes(name: str) -> None:
    _, cell = pair(name)
    x = torch.randn(2, 3)
    with torch.no_grad():
        expected = cell(x)
        again = [copy.deepcopy(cell)]
        if type(cell.gate).__module__ != __name__:  # from where pickle could not import it
            again.append(pickle.loads(pickle.dumps(cell)))
        for made in again:
            assert_near(made(x), expected)
            assert repr(made) == repr(cell)


def test_repr_shows_what_is_not_the_default() -> None:
    assert repr(rm.LSTMCell(3, 5)) == "LSTMCell(3, 5)"
    shown = repr(rm.LSTMCell(3, 5, bias=False, gate="power_law", input_gate="separate", proj_size=2))
    gate = "gate=PowerLaw(p=None, eps=0.001, reset_age=0.0)"
    assert shown == f"LSTMCell(3, 5, proj_size=2, bias=False, {gate}, input_gate='separate')"
    assert repr(rm.JANETCell(3, 5, beta=0.5, forget_bias=2.0)) == "JANETCell(3, 5, forget_bias=2.0, beta=0.5)"
    assert repr(rm.GRUCell.of(rm.GRU(3, 5, 2), 1)) == "GRUCell(5, 5)"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_keep_the_wide_parts_wide(dtype: torch.dtype) -> None:
    cell = rm.PowerLawLSTMCell(3, 5).to(dtype)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            state = cell(torch.randn(2, 3).to(dtype))
            state = cell(torch.randn(2, 3).to(dtype), state)
        broad = torch.float64 if dtype == torch.float64 else torch.float32
        assert [part.dtype for part in state] == [dtype, broad, broad]


def test_autocast_is_honoured() -> None:
    cell, x = rm.LSTMCell(3, 5), torch.randn(2, 3)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        h, c = cell(x)
        output, (_, expected) = rm.LSTM.from_torch(as_layer(cell))(x.unsqueeze(0))
    assert (h.dtype, c.dtype) == (torch.bfloat16, torch.float32)
    assert_near(h.float(), output[0].float(), 1e-2)
    assert_near(c, expected[0], 1e-2)


def as_layer(cell: RecurrentCell) -> nn.LSTM:
    layer = nn.LSTM(cell.input_size, cell.hidden_size)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    return layer


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own
def test_functional_calls_and_transforms_take_part() -> None:
    cell, x = rm.LSTMCell(3, 5, gate="fast"), torch.randn(2, 3)
    doubled = {name: 2 * value.detach() for name, value in cell.named_parameters()}
    with torch.no_grad():
        found = torch.func.functional_call(cell, doubled, (x,))
        other = copy.deepcopy(cell)
        other.load_state_dict(doubled)
        assert_near(found, other(x))
        assert_near(torch.func.vmap(cell)(x), cell(x))
        values, slope = torch.func.jvp(lambda x: cell(x)[0], (x,), (torch.ones_like(x),))
    assert_near(values, cell(x)[0])
    assert slope.any()


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias_ih", "p_hat"])
def test_weights_of_a_wrong_shape_are_not_read_past_their_end(name: str) -> None:
    cell = rm.PowerLawLSTMCell(3, 5)
    weights = {each: value.detach() for each, value in cell.named_parameters()}
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"size|shape"):
        torch.func.functional_call(cell, weights | {name: weights[name][:-5][:2]}, (torch.randn(2, 3),))


def test_parametrised_weights_are_used() -> None:
    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return 2 * weight

    cell, x = rm.LSTMCell(3, 5, gate="fast"), torch.randn(2, 3)
    other = copy.deepcopy(cell)
    nn.utils.parametrize.register_parametrization(cell, "weight_hh", Doubled())
    state = some_state(cell, 2)
    with torch.no_grad():
        other.get_parameter("weight_hh").mul_(2)
        assert_near(cell(x, state), other(x, state))


def test_non_contiguous_tensors() -> None:
    cell, x, state = rm.LSTMCell(3, 5, gate="fast"), torch.randn(3, 2).t(), torch.rand(2, 2, 5).transpose(0, 1)
    hidden, memory = state[:, 0], state[:, 1]
    with torch.no_grad():
        expected = cell(x.contiguous(), (hidden.contiguous(), memory.contiguous()))
        assert_near(cell(x, (hidden, memory)), expected)
        assert_near(cell(x, [hidden, memory]), expected)  # a list, as layers take one
        assert_near(cell(x, (hidden.double(), memory.double())), expected)


@pytest.mark.long
@pytest.mark.parametrize("name", ["lstm sigmoid", "lstm power_law", "gru fast", "janet sigmoid"])
def test_compiles_into_one_graph(name: str) -> None:
    layer, cell = pair(name)
    graph = torch.compile(cell, fullgraph=True, backend="eager")
    x, state, dt = torch.randn(2, 3), some_state(layer, 2), some_dt(layer, 2)
    assert_near(graph(x, state, dt), cell(x, state, dt))
    with torch.no_grad():
        assert_near(graph(x, state, dt), cell(x, state, dt))


# Errors.


def refused(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(error) as caught:
            call()
        assert str(caught.value) == words


def test_error_for_bad_input_is_one_sentence() -> None:
    cell, h = rm.LSTMCell(3, 5), torch.zeros(2, 5)
    x = torch.zeros(2, 3)
    refused(TypeError, "expected input to be a tensor, got list", lambda: cell([1.0]))
    refused(TypeError, "expected input of a floating-point dtype, got torch.int64", lambda: cell(x.long()))
    refused(ValueError, "expected input with 1 or 2 dimensions, got 3", lambda: cell(x[None]))
    refused(ValueError, "expected input with 1 or 2 dimensions, got 0", lambda: cell(torch.tensor(1.0)))
    refused(ValueError, "expected input with 3 features in its last dimension, got 4", lambda: cell(torch.zeros(2, 4)))
    refused(
        ValueError,
        "expected input of dtype torch.float32 like the weights, got torch.float64",
        lambda: cell(x.double()),
    )
    refused(TypeError, "expected state to be the tensors (hidden, cell), got int", lambda: cell(x, 3))
    refused(
        TypeError, "expected state to be the tensors (hidden, cell), got tuple with None", lambda: cell(x, (h, None))
    )
    refused(ValueError, "expected state to be the 2 tensors (hidden, cell), got 1; cell is missing", lambda: cell(x, h))
    refused(ValueError, "expected cell state of shape (2, 5), got (3, 5)", lambda: cell(x, (h, torch.zeros(3, 5))))
    refused(ValueError, "expected hidden state of shape (5,), got (1, 5)", lambda: cell(x[0], (h[:1], h[:1])))


def test_error_for_bad_dt_is_one_sentence() -> None:
    cell, x = rm.PowerLawLSTMCell(3, 5), torch.zeros(2, 3)
    refused(
        ValueError,
        "expected no dt, got one: LSTMCell with gate 'sigmoid' does not use the time between steps",
        lambda: rm.LSTMCell(3, 5)(x, None, torch.ones(2)),
    )
    refused(ValueError, "expected dt of shape (2,) or a number, got (3,)", lambda: cell(x, dt=torch.ones(3)))
    refused(ValueError, "expected dt of shape (1,) or a number, got (2,)", lambda: cell(x[0], dt=torch.ones(2)))
    refused(
        ValueError,
        "expected dt to be finite and not negative, got values from -1.0 to 1.0",
        lambda: cell(x, dt=torch.tensor([1.0, -1.0])),
    )
    with torch.no_grad():
        assert_near(cell(x, dt=0.5), cell(x, dt=torch.full((2,), 0.5)))
        assert not torch.equal(cell(x, dt=0.5)[2], cell(x)[2])


def test_a_step_of_the_wrong_thing_is_refused() -> None:
    layer = rm.LSTM(3, 5, 2)
    for words, call in {
        "expected layer to be a remanence.GRU, got LSTM": lambda: rm.GRUCell.of(layer),  # type: ignore[arg-type]
        "expected layer to be a remanence.PowerLawLSTM, got LSTM": lambda: rm.PowerLawLSTMCell.of(layer),
        "expected layer to be a remanence.LSTM, got LSTM": lambda: rm.LSTMCell.of(nn.LSTM(3, 5)),  # type: ignore[arg-type]
    }.items():
        refused(TypeError, words, call)
    refused(ValueError, "expected layer_index to be in [0, 2), got 2", lambda: rm.LSTMCell.of(layer, 2))
    refused(ValueError, "expected layer_index to be in [0, 2), got -1", lambda: rm.LSTMCell.of(layer, -1))
    refused(
        ValueError,
        "expected reverse=False for a layer of one direction, got True",
        lambda: rm.LSTMCell.of(layer, 0, reverse=True),
    )
    words = "LSTMCell.__init__() got an unexpected keyword argument 'weight_drop'"
    refused(TypeError, words, lambda: rm.LSTMCell(3, 5, weight_drop=0.5))  # type: ignore[call-arg]


# The fast path of a layer for a single step.


def usual(layer: rm.nn.Recurrent, *given: Any) -> tuple[Tensor, Any]:
    """The result of the layer without the fast path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(layer), "_single_step", lambda *_: None)
        return layer(*given)


@compiles
@EVERY
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"batch_first": True, "dropout": 0.5, "num_layers": 2, "weight_drop": 0.5},
    ],
    ids=["one", "two", "both directions", "dropout in evaluation"],
)
def test_the_fast_path_equals_the_general_path(name: str, options: dict[str, Any], quick_steps: list[bool]) -> None:
    layer, _ = pair(name, **options)
    layer.eval()
    stacked = len(layer.places)
    for rows in (1, 3, None):
        shape = (1, 3) if rows is None else (rows, 1, 3) if layer.batch_first else (1, rows, 3)
        lead = (stacked,) if rows is None else (stacked, rows)
        for state in (None, some_state(layer, *lead)):
            for dt in dict.fromkeys((None, some_dt(layer, *shape[:-1]))):
                x = torch.randn(*shape)
                with torch.no_grad():
                    before = len(quick_steps)
                    found = layer(x, state, dt)
                    assert quick_steps[before:] == [True] * stacked
                    expected = usual(layer, x, state, dt)
                assert_near(found[0], expected[0])
                assert_near(found[1], expected[1])


CHANGES_OF_A_LAYER: dict[str, Callable[[rm.PowerLawLSTM], object]] = {
    "another parameter": lambda layer: setattr(layer, "weight_hh_l0_reverse", nn.Parameter(torch.full((15, 5), 0.3))),
    "in place": lambda layer: layer.get_parameter("p_hat_l1").mul_(2),
    "data": lambda layer: set_data(layer, torch.randn(15, 3)),
    "parametrization": lambda layer: parametrizations.weight_norm(layer, "weight_ih_l0", dim=0),
    "its parameter": lambda layer: layer.parametrizations.weight_ih_l0.original0.mul_(2),
    "none again": lambda layer: parametrize.remove_parametrizations(layer, "weight_ih_l0"),
    "assigned": lambda layer: layer.load_state_dict(fresh_layer().state_dict(), assign=True),
    "conversion": lambda layer: layer.double().float().get_parameter("weight_ih_l1").mul_(2),
    "another gate": lambda layer: setattr(layer, "cell", replace(layer.cell, gate=rm.gates.PowerLaw(eps=0.3))),
}


def fresh_layer() -> rm.PowerLawLSTM:
    return rm.PowerLawLSTM(3, 5, num_layers=2, bidirectional=True)


@compiles
def test_changes_of_a_layer_are_seen_at_once(quick_steps: list[bool]) -> None:
    layer, x, dt = fresh_layer(), torch.randn(1, 2, 3), torch.rand(1, 2)
    state = some_state(layer, 4, 2)

    def is_right(layer: rm.PowerLawLSTM, *given: Any) -> None:
        found, expected = layer(x, state, *given), usual(layer, x, state, *given)
        assert_near((found[0], *found[1]), (expected[0], *expected[1]))

    with torch.no_grad():
        for name, change in CHANGES_OF_A_LAYER.items():
            before = layer(x, state)[0]
            change(layer)
            is_right(layer)
            is_right(layer, dt)
            is_right(layer)
            assert torch.allclose(layer(x, state)[0], before) == (name in ("parametrization", "none again")), name
        other = copy.deepcopy(layer)
        other.get_parameter("weight_hh_l0").mul_(3)
        is_right(other)
        is_right(layer)
        doubled = {name: value * 2 for name, value in layer.state_dict().items()}
        found, _ = torch.func.functional_call(layer, doubled, (x, state))
        is_right(layer)
        layer.load_state_dict(doubled)
        assert_near(found, layer(x, state)[0])
    assert all(quick_steps)


@compiles
@pytest.mark.parametrize("options", [{}, {"proj_size": 2}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_a_layer_checks_its_weights_once(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = rm.PowerLawLSTM(3, 5, **options), torch.randn(1, 2, 3)
    for dt in (None, torch.rand(1, 2)):
        with torch.no_grad(), monkeypatch.context() as patch:
            _, state = layer(x, None, dt)
            patch.delattr(streaming, "bind")
            layer(x, state, dt)


@compiles
@pytest.mark.parametrize("name", ["phased", "weight drop", "exprnn", "built once", "frozen"])
def test_a_layer_steps_as_its_mode_says(name: str) -> None:
    layer: Any = {
        "phased": lambda: rm.PhasedLSTM(3, 5),
        "weight drop": lambda: rm.LSTM(3, 5, weight_drop=0.5),
        "exprnn": lambda: rm.ExpRNN(3, 5),
        "built once": lambda: rm.nn.built_once(rm.ExpRNN(3, 5)),
        "frozen": lambda: rm.LSTM(3, 5, timescales=Fixed(7.0, freeze=True)),
    }[name]()
    x = torch.randn(1, 2, 3)
    with torch.no_grad():
        for training in (False, True, False):
            layer.train(training)
            torch.manual_seed(0)
            found = layer(x)
            torch.manual_seed(0)
            expected = usual(layer, x)
            assert_near((found[0], *parts(found[1])), (expected[0], *parts(expected[1])))
        for buffer in layer.buffers():
            buffer.add_(1)
        assert_near(layer(x)[0], usual(layer, x)[0])


@compiles
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}, {"gate": "power_law"}], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_a_clock_of_each_sequence_is_spread_over_the_units(
    options: dict[str, Any], training: bool, quick_steps: list[bool]
) -> None:
    layer = rm.PhasedLSTM(3, 5, **options).train(training)
    x, state, elapsed = torch.randn(1, 2, 3), some_state(layer, len(layer.places), 2), torch.rand(1, 2)
    with torch.no_grad():
        for dt in (None, elapsed):
            for before in (None, state):
                found, expected = layer(x, before, dt), usual(layer, x, before, dt)
                assert_near((found[0], *parts(found[1])), (expected[0], *parts(expected[1])))
        assert all(quick_steps)
    short = (*state[:-1], state[-1][:, :1])
    lead = len(layer.places)
    words = f"expected clock state of shape ({lead}, 2, 1), got ({lead}, 1, 1)"
    refused(ValueError, words, lambda: layer(x, short))


@compiles
def test_a_layer_is_copied_and_saved_after_a_step() -> None:
    layer, x = rm.LSTM(3, 5), torch.randn(1, 2, 3)
    with torch.no_grad():
        expected = layer(x)[0]
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        older = copy.deepcopy(layer)
        older.__setstate__({name: value for name, value in layer.__dict__.items() if name != "_quick"})
        others = copy.copy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False), older
        for other in others:
            assert torch.equal(other(x)[0], expected)


@compiles
def test_a_layer_keeps_no_weights_but_its_parameters() -> None:
    layer, x = rm.LSTM(3, 5, proj_size=2), torch.randn(1, 2, 3)
    doubled = {name: parameter * 2 for name, parameter in layer.named_parameters()}  # with a graph
    alive = [weakref.ref(value) for value in doubled.values()]
    with torch.no_grad():
        torch.func.functional_call(layer, doubled, (x,))
    del doubled
    gc.collect()
    assert not any(each() is not None for each in alive)


@compiles
@pytest.mark.parametrize("made", [lambda: rm.LSTM(3, 5, proj_size=2), lambda: rm.LSTMCell(3, 5)])
def test_replaced_parameters_are_let_go(made: Callable[[], nn.Module], quick_steps: list[bool]) -> None:
    module = made()
    x = torch.randn(1, 3)
    alive = [weakref.ref(parameter) for parameter in module.parameters()]
    with torch.no_grad():
        module(x)
        module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()}, assign=True)
        gc.collect()
        assert not any(each() is not None for each in alive)
        found = module(x)
    assert quick_steps == [True, True]
    expected = module(x)  # with gradients
    assert_near(parts(found[0]), parts(expected[0]))


@compiles
def test_a_projection_of_another_dtype_is_seen() -> None:
    layer, x = rm.LSTM(3, 5, proj_size=2), torch.randn(1, 2, 3)
    with torch.no_grad():
        expected = layer(x)[0]
        matrix = layer.get_parameter("weight_hr_l0")
        matrix.data = matrix.data.double()
        assert_near(layer(x)[0], expected)


@compiles
def test_states_of_a_single_step_are_lists_and_parameters_too() -> None:
    layer, x = rm.LSTM(3, 5), torch.randn(1, 2, 3)
    state = some_state(layer, 1, 2)
    with torch.no_grad():
        expected = layer(x, state)[0]
        assert torch.equal(layer(x, list(state))[0], expected)
        assert torch.equal(layer(x, tuple(map(nn.Parameter, state)))[0], expected)


@compiles
def test_a_layer_is_what_its_attributes_say() -> None:
    x = torch.randn(1, 2, 5)
    with torch.no_grad():
        layer = rm.LSTM(5, 5, 2, bidirectional=True)
        layer(x)
        layer.bidirectional = False
        layer.weight_ih_l1 = nn.Parameter(torch.randn(20, 5))
        assert layer(x)[0].shape == (1, 2, 5)
        layer.num_layers = 1
        assert layer(x)[1][0].shape == (1, 2, 5)
        layer.num_layers = 3
        with pytest.raises(AttributeError):
            layer(x)


@pytest.mark.parametrize("kind", [rm.LSTM, rm.GRU, rm.NRU, rm.SRU, rm.PhasedLSTM, rm.ExpRNN])
@pytest.mark.parametrize("steps", [1, 4])
def test_changing_the_output_leaves_the_state(kind: type[rm.nn.Recurrent], steps: int) -> None:
    layer = kind(3, 6)
    with torch.no_grad():
        output, state = layer(torch.randn(steps, 2, 3))
        before = [part.clone() for part in parts(state)]
        output.fill_(7)
    for part, old in zip(parts(state), before, strict=True):
        assert torch.equal(part, old)


@compiles
def test_a_step_takes_inputs_of_any_strides(quick_steps: list[bool]) -> None:
    layer = rm.LSTM(3, 5)
    cell, zeros = rm.LSTMCell.of(layer), (torch.zeros(2, 5), torch.zeros(2, 5))
    wide, tall = torch.randn(1, 2, 6), torch.randn(3, 2, 1)
    for x in (wide[..., ::2], tall.permute(2, 1, 0), wide[:, :1, :3].expand(1, 2, 3)):
        with torch.no_grad():
            assert_near(parts(layer(x)[0]), parts(usual(layer, x)[0]))
            assert_near(cell(x[0]), equation(cell.cell, dict(cell.named_parameters()), x[0], zeros, None))
    assert quick_steps == [True] * 6


@pytest.mark.parametrize("device", ["meta"])
def test_a_single_step_gives_shapes_without_data(device: str) -> None:
    with torch.no_grad():
        for kind in (rm.LSTM, rm.GRU, rm.PhasedLSTM, rm.NRU, rm.ExpRNN):
            output, _ = kind(3, 5, device=device)(torch.zeros(1, 2, 3, device=device))
            assert (output.shape, output.device.type) == ((1, 2, 5), device)
        h, c = rm.LSTMCell(3, 5, device=device)(torch.zeros(2, 3, device=device))
    assert h.shape == c.shape == (2, 5)


@compiles
@pytest.mark.parametrize(
    "case",
    [
        "grad",
        "two steps",
        "many",
        "loop",
        "autocast",
        "packed",
        "float64",
        "training with dropout",
        "weight drop",
        "nru",
    ],
)
def test_everything_else_takes_the_general_path(case: str, quick_steps: list[bool]) -> None:
    keywords: dict[str, Any] = {
        "loop": {"engine": "loop"},
        "float64": {"dtype": torch.float64},
        "training with dropout": {"dropout": 0.5, "num_layers": 2},
        "weight drop": {"weight_drop": 0.5},
    }.get(case, {})
    layer = rm.NRU(3, 8) if case == "nru" else rm.LSTM(3, 5, **keywords)
    x: Any = torch.randn(2 if case == "two steps" else 1, 20 if case == "many" else 2, 3, dtype=keywords.get("dtype"))
    if case == "packed":
        x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([1, 1]))
    with torch.set_grad_enabled(case == "grad"), torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        layer(x)
    assert not any(quick_steps)


def test_errors_of_a_single_step_are_those_of_many() -> None:
    layer, power = rm.LSTM(3, 5), rm.PowerLawLSTM(3, 5)
    h = torch.zeros(1, 2, 5)
    x = torch.zeros(1, 2, 3)
    refused(
        ValueError, "expected input with 3 features in its last dimension, got 4", lambda: layer(torch.zeros(1, 2, 4))
    )
    refused(ValueError, "expected input with 2 or 3 dimensions, got 1", lambda: layer(torch.zeros(3)))
    refused(ValueError, "expected input with 2 or 3 dimensions, got 4", lambda: layer(x[None]))
    refused(
        ValueError, "expected cell state of shape (1, 2, 5), got (1, 3, 5)", lambda: layer(x, (h, torch.zeros(1, 3, 5)))
    )
    refused(ValueError, "expected cell state of shape (1, 2, 5), got ()", lambda: layer(x, (h, torch.tensor(0.0))))
    refused(TypeError, "expected state to be the tensors (hidden, cell), got tuple with 3", lambda: layer(x, (h, 3)))
    refused(
        ValueError,
        "expected hidden state of shape (1, 5), got (1, 1, 5)",
        lambda: layer(x[0, :1], (h[:, :1], h[:, :1])),
    )
    refused(ValueError, "expected dt of shape (1, 2) or (1,), got (3,)", lambda: power(x, dt=torch.ones(3)))
    refused(
        ValueError,
        "expected dt to be finite and not negative, got values from -1.0 to -1.0",
        lambda: power(x, dt=-torch.ones(1, 2)),
    )
    words = "expected state to be the tensors (hidden, cell), got ndarray"
    refused(TypeError, words, lambda: layer(x, numpy.zeros((1, 2, 5), "f")))
    layer.weight_ih_l0 = nn.Parameter(torch.randn(20, 4))
    words = "expected input with 3 features in its last dimension, got 4"
    refused(ValueError, words, lambda: layer(torch.zeros(1, 2, 4)))
    refused(ValueError, words, lambda: rm.LSTMCell.of(layer)(torch.zeros(2, 4)))
    cell = rm.PowerLawLSTMCell(3, 5)
    refused(ValueError, "expected dt of shape (2,) or a number, got (3,)", lambda: cell(x[0], None, torch.ones(3)))
    refused(
        ValueError,
        "expected dt to be finite and not negative, got values from -1.0 to -1.0",
        lambda: cell(x[0], None, -1.0),
    )
    refused(
        ValueError,
        "expected no dt, got one: LSTMCell with gate 'sigmoid' does not use the time between steps",
        lambda: rm.LSTMCell(3, 5)(x[0], None, 1.0),
    )


def test_a_step_of_computed_weights_is_refused() -> None:
    layer = rm.LSTM(3, 5)
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    words = (
        "expected a layer whose weights are parameters, got one whose weight_hh_l0 is computed, as by weight norm, "
        "pruning or a parametrization: call the layer itself with one step"
    )
    refused(ValueError, words, lambda: rm.LSTMCell.of(layer))


# Without a compiler, or with wrong compiled code.


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all compiled code."""
    monkeypatch.setattr(compiled, "_known", {})


def test_without_a_compiler_steps_are_the_same(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise compiled.CompilerError("there is none")

    monkeypatch.setattr(on_cpus, "library", fails)
    layer, cell = pair("lstm fast")
    x = torch.randn(1, 2, 3)
    with torch.no_grad():
        assert_near(cell(x[0])[0], layer(x)[0][0])


class Stream:
    """Steps of so much work, with these pauses, on three threads that take that long."""

    def __init__(self, work: int) -> None:
        self.pace, self.work, self.now = on_cpus._Pace(), work, 1.0

    def steps(self, count: int, pause: float, alone: float = 2.0, together: float = 1.0) -> list[int]:
        found = []
        for _ in range(count):
            began = self.now + pause
            found.append(self.pace.threads(self.work, began))
            self.now = began + 1e-4 * (alone if found[-1] == 1 else together)
            self.pace.took(self.work, found[-1], began, self.now)
        return found


CLOSE, APART = on_cpus.CLOSE / 2, on_cpus.CLOSE * 2


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


def test_other_threads_take_part_while_they_are_awake(three_threads: None) -> None:
    stream = Stream(2 * on_cpus.SHARE)
    assert stream.steps(20, APART) == [1] * 20
    assert stream.steps(20, CLOSE) == [1] * (on_cpus.IN_A_ROW - 1) + [2] * (21 - on_cpus.IN_A_ROW)
    assert stream.steps(2, APART) == [1, 1]


def test_other_threads_are_woken_for_large_steps(three_threads: None) -> None:
    assert Stream(on_cpus.LARGE).steps(5, 1.0) == [3] * 5


def test_other_threads_rest_if_they_make_steps_slower(three_threads: None) -> None:
    stream = Stream(2 * on_cpus.SHARE)
    assert stream.steps(on_cpus.IN_A_ROW, CLOSE)[-1] == 1
    assert stream.steps(1, CLOSE, together=9.0) == [2]  # has to wake them
    assert stream.steps(50, CLOSE) == [2] * 50
    assert stream.steps(on_cpus.PATIENCE + 1, CLOSE, together=9.0) == [2] * (on_cpus.PATIENCE + 1)
    assert stream.steps(on_cpus.REST - 1, CLOSE) == [1] * (on_cpus.REST - 1)
    assert stream.steps(1, CLOSE) == [2]


@compiles
def test_steps_are_the_same_with_one_thread_and_with_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpus, "SHARE", 1)
    cell, x = rm.LSTMCell(40, 100, gate="power_law"), torch.randn(30, 3, 40)
    with torch.no_grad():
        cell(x[0])  # compiled and tested at its first use

    def stream(many: int) -> list[torch.Tensor]:
        asked = []
        monkeypatch.setattr(on_cpus._Pace, "threads", lambda self, work, began: asked.append(work) or many)
        state, found = None, []
        with torch.no_grad():
            for values in x:
                state = cell(values, state)
                found += state
        assert len(asked) == len(x)
        return found

    for one, other in zip(stream(1), stream(3), strict=True):
        assert torch.equal(one, other)


@compiles
def test_a_compiled_step_that_is_wrong_is_not_used(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    source = on_cpus.step_sources

    def wrong(gate: str, steps: str) -> Any:
        return (
            *source(gate, steps)[:-1],
            (cpp.compiler.HERE / steps).read_text().replace("z[block][unit] +", "z[block][unit] -"),
        )

    monkeypatch.setattr(on_cpus, "step_sources", wrong)
    layer, cell = pair("lstm fast")
    truth = pair("lstm fast", engine="loop")[0]
    truth.load_state_dict(layer.state_dict())
    x, state = torch.randn(2, 3), some_state(layer, 2)
    with torch.no_grad(), pytest.warns(UserWarning, match="disagrees with the loop engine"):
        found = cell(x, state)
    assert_near(found[0], truth(x.unsqueeze(0), as_state(part.unsqueeze(0) for part in state))[0][0].detach())


@pytest.mark.parametrize("state", [True, False])
def test_a_matrix_of_other_sizes_is_never_read_past_its_end(state):
    cell = rm.GRUCell(8, 512)
    cell.weight_hh = torch.nn.Parameter(torch.randn(1536, 4))
    with torch.no_grad(), pytest.raises((ValueError, RuntimeError)):
        cell(torch.randn(2, 8), torch.randn(2, 4) if state else None)


def test_a_weight_without_memory_is_not_read():
    cell = rm.LSTMCell(8, 5)
    cell.weight_ih.untyped_storage().resize_(0)
    with torch.no_grad(), pytest.raises(RuntimeError):
        cell(torch.randn(2, 8))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_input_of_another_dtype_is_refused_with_and_without_gradients(dtype):
    cell, layer = (make(8, 5, bias=False, dtype=dtype) for make in (rm.LSTMCell, rm.LSTM))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            with pytest.raises(ValueError, match="expected input of dtype"):
                cell(torch.randn(2, 8))
            with pytest.raises(ValueError, match="expected input of dtype"):
                layer(torch.randn(1, 2, 8))
