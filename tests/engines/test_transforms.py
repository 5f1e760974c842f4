"""Layers inside torch.func transforms and torch.jit.trace, forward-mode AD, and fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap

import remanence as rm
from remanence.engines.cpp.engine import lacks

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own
compiles = pytest.mark.skipif(lacks() is not None, reason="no C++ compiler")
STEPS, ROWS, INPUTS, UNITS = 5, 2, 3, 4
LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    "LSTM fast": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", **more),
    "LSTM recomputed": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", recompute=2, **more),
    "PowerLawLSTM": rm.PowerLawLSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "ExpRNN": rm.ExpRNN,
    "UnitaryRNN": rm.UnitaryRNN,
    "SRU": rm.SRU,
}
Parameters = dict[str, Tensor]


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> rm.nn.Recurrent:
    torch.manual_seed(1)
    return LAYERS[request.param](INPUTS, UNITS, bidirectional=True, dtype=torch.float64)


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(STEPS, ROWS, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def loss_of(layer: rm.nn.Recurrent) -> Callable[[Parameters, Tensor], Tensor]:
    return lambda parameters, inputs: functional_call(layer, parameters, (inputs,))[0].square().sum()


def by_autograd(layer: rm.nn.Recurrent, inputs: Tensor) -> Parameters:
    parameters = dict(layer.named_parameters())
    loss = layer(inputs)[0].square().sum()
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


def test_grad_is_that_of_autograd(layer: rm.nn.Recurrent, inputs: Tensor) -> None:
    expected = by_autograd(layer, inputs)
    found = grad(loss_of(layer))(dict(layer.named_parameters()), inputs)
    assert found.keys() == expected.keys()
    for name, slope in found.items():
        torch.testing.assert_close(slope, expected[name])


def test_gradients_of_every_sequence(layer: rm.nn.Recurrent, inputs: Tensor) -> None:
    each = vmap(grad(loss_of(layer)), (None, 1))(dict(layer.named_parameters()), inputs)
    for row in range(ROWS):
        expected = by_autograd(layer, inputs[:, row])
        for name, slopes in each.items():
            torch.testing.assert_close(slopes[row], expected[name])


def test_forward_mode_is_the_directional_derivative(layer: rm.nn.Recurrent, inputs: Tensor) -> None:
    def loss(inputs: Tensor) -> Tensor:
        return layer(inputs)[0].square().sum()

    direction = inputs.cos()
    expected = (grad(loss)(inputs) * direction).sum()
    torch.testing.assert_close(jvp(loss, (inputs,), (direction,))[1], expected)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(loss(forward_ad.make_dual(inputs, direction))).tangent
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["LSTM", "LSTM fast", "GRU"])
def test_vmap_over_sequences(name: str, dtype: torch.dtype, inputs: Tensor) -> None:
    layer, inputs = LAYERS[name](INPUTS, UNITS, dtype=dtype), inputs.to(dtype)
    torch.testing.assert_close(vmap(lambda one: layer(one)[0], 1, 1)(inputs), layer(inputs)[0])


@pytest.mark.parametrize("name", ["PowerLawLSTM", "PhasedLSTM"])
def test_times_between_steps(name: str, inputs: Tensor) -> None:
    torch.manual_seed(1)
    layer = getattr(rm, name)(INPUTS, UNITS, dtype=torch.float64)
    dt = inputs[..., 0].abs()
    found = vmap(lambda inputs, dt: layer(inputs, None, dt)[0], 1, 1)(inputs, dt)
    torch.testing.assert_close(found, layer(inputs, None, dt)[0])


WITHOUT_RULES = {
    ("cpu", "grad"): "it does not support torch.func transforms",
    ("cpu", "jvp"): "it does not support torch.func transforms",
    ("cpu", "forward mode"): "it does not support forward-mode AD",
    ("torch", "vmap"): "torch has no batching rule for it in torch.func.vmap",
    ("torch", "jvp"): "it does not support forward-mode AD",
    ("torch", "forward mode"): "it does not support forward-mode AD",
}


@pytest.mark.parametrize(("engine", "transform"), WITHOUT_RULES)
def test_an_engine_that_does_not_support_a_transform_says_so(engine: str, transform: str, inputs: Tensor) -> None:
    layer = rm.LSTM(INPUTS, UNITS, dtype=torch.float64, engine=engine)
    runs: dict[str, Callable[[], Any]] = {
        "grad": lambda: grad(lambda inputs: layer(inputs)[0].sum())(inputs),
        "vmap": lambda: vmap(lambda inputs: layer(inputs)[0], 1, 1)(inputs),
        "jvp": lambda: jvp(lambda inputs: layer(inputs)[0], (inputs,), (inputs,)),
        "forward mode": lambda: layer(forward_ad.make_dual(inputs, inputs)),
    }
    with (
        pytest.raises(ValueError, match=r"^expected a task that engine='.*' can run, but ") as raised,
        forward_ad.dual_level() if transform == "forward mode" else nullcontext(),
    ):
        runs[transform]()
    assert WITHOUT_RULES[engine, transform] in str(raised.value)
    assert str(raised.value).endswith('engine="loop" supports it')


def test_torch_supports_transforms_of_its_own_layers(inputs: Tensor) -> None:
    layer = rm.LSTM(INPUTS, UNITS, dtype=torch.float64, engine="torch")
    found = grad(loss_of(layer))(dict(layer.named_parameters()), inputs)
    for name, slope in by_autograd(layer, inputs).items():
        torch.testing.assert_close(found[name], slope)


RECORDED = pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")


@RECORDED
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_a_torch_jit_trace_is_right_at_other_lengths(name: str, with_gradients: bool) -> None:
    layer = LAYERS[name](INPUTS, UNITS, bidirectional=True)
    with torch.set_grad_enabled(with_gradients):
        recorded = torch.jit.trace(layer, torch.zeros(STEPS, ROWS, INPUTS))
        for steps, rows in ((STEPS, ROWS), (9, 3), (1, 1)):
            inputs = torch.randn(steps, rows, INPUTS, requires_grad=with_gradients)
            found, expected = recorded(inputs), layer(inputs)
            torch.testing.assert_close(found, expected)
            if with_gradients:
                slopes = [torch.autograd.grad(output.square().sum(), inputs) for output, _ in (found, expected)]
                torch.testing.assert_close(*slopes)


@RECORDED
@pytest.mark.parametrize("engine", ["loop", "cpu", pytest.param("c++", marks=compiles)])
def test_torch_jit_records_an_engine_by_name(engine: str) -> None:
    layer = rm.LSTM(INPUTS, UNITS, gate="fast", engine=engine)
    recorded = torch.jit.trace(layer, torch.zeros(STEPS, ROWS, INPUTS))
    inputs = torch.randn(9, 3, INPUTS)
    torch.testing.assert_close(recorded(inputs), layer(inputs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("around", [lambda layer: layer, torch.nn.Sequential], ids=["layer", "model"])
def test_torch_jit_script_and_torch_fx_are_refused_in_favour_of_export(around: Callable[..., Any]) -> None:
    model = around(rm.LSTM(INPUTS, UNITS))
    with pytest.raises(
        RuntimeError, match=r"^expected torch\.export\.export, which supports LSTM, got torch\.jit\.script$"
    ):
        torch.jit.script(model)
    with pytest.raises(TypeError, match=r"^expected torch\.export\.export, .*, got torch\.fx\.symbolic_trace$"):
        torch.fx.symbolic_trace(model)


def test_an_nru_has_no_attribute_gate() -> None:
    layer = rm.NRU(INPUTS, UNITS)
    assert not hasattr(layer, "gate")
    assert hasattr(rm.GRU(INPUTS, UNITS), "gate")
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU, which has none"):
        layer.gate  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        layer.nothing  # noqa: B018


@pytest.mark.parametrize("name", LAYERS)
def test_fake_tensors_go_through(name: str) -> None:
    layer = LAYERS[name](INPUTS, UNITS)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        output, _ = layer(mode.from_tensor(torch.zeros(STEPS, ROWS, INPUTS)))
    assert isinstance(output, FakeTensor)
    assert output.shape == (STEPS, ROWS, UNITS)


@compiles
def test_a_kernel_that_needs_data_says_so() -> None:
    layer = rm.LSTM(INPUTS, UNITS, gate="fast", engine="c++")
    with pytest.raises(ValueError, match="tensors are fake"), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        layer(mode.from_tensor(torch.zeros(STEPS, ROWS, INPUTS)))
