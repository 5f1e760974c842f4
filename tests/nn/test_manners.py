"""Layers behave like any torch module: arguments, copies, files, dtypes, compilation, functional use, dropout."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import remanence as rm
from remanence.timescales import Chrono, Fixed, InverseGamma

Maker = Callable[..., rm.nn.Recurrent]


def named(name: str, **fixed: Any) -> Maker:
    return lambda inputs, hidden, **keywords: rm.make(name, inputs, hidden, **fixed, **keywords)


def built(kind: type[rm.nn.Recurrent], **fixed: Any) -> Maker:
    return lambda inputs, hidden, **keywords: kind(inputs, hidden, **fixed, **keywords)


MODELS: dict[str, Maker] = {
    "lstm": named("lstm"),
    "lstm-chrono": named("lstm-chrono", t_max=20),
    "gru": named("gru"),
    "plstm": named("plstm"),
    "plstm-separate": built(rm.LSTM, gate="power_law", input_gate="separate"),
    "plstm-projected": named("plstm", proj_size=2),
    "fast": named("fast"),
    "softsign": named("softsign"),
    "refine": named("refine"),
    "ur": named("ur"),
    "janet": named("janet"),
    "nru": named("nru"),
    "phased": named("phased"),
    "mts": named("mts"),
    "gru-power-law": built(rm.GRU, gate="power_law"),
    "janet-power-law": built(rm.JANET, gate="power_law"),
    "phased-power-law": built(rm.PhasedLSTM, gate="power_law"),
    "exprnn": named("exprnn"),
    "urnn": named("urnn"),
    "sru": named("sru"),
}
TIMED = [name for name in MODELS if "plstm" in name or "power-law" in name or name == "phased"]
FROZEN: dict[str, Maker] = {
    "fixed": built(rm.LSTM, timescales=Fixed(7.0, freeze=True)),
    "fixed, one per unit": built(rm.LSTM, timescales=Fixed([2.0, 3.0, 5.0, 7.0], freeze=True)),
    "inverse gamma": built(rm.LSTM, timescales=InverseGamma(0.56, freeze=True)),
    "inverse gamma, fast gate": built(rm.LSTM, gate="fast", timescales=InverseGamma(1.4, freeze=True)),
    "every bias": built(rm.LSTM, timescales=Fixed(7.0, freeze="all")),
    "frozen gru": built(rm.GRU, timescales=Fixed(7.0, freeze=True)),
    "frozen janet": built(rm.JANET, timescales=InverseGamma(0.56, freeze=True)),
    "chrono": built(rm.LSTM, timescales=Chrono(50, freeze=True)),
}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
EVERY_TIMED_MODEL = pytest.mark.parametrize("name", TIMED)
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])

# bfloat16 carries 8 bits, float16 carries 11; outputs are of order one, and the roundings of a few steps add up.
NEAR = {torch.bfloat16: 0.05, torch.float16: 0.01}


def build(name: str, seed: int = 0, **keywords: Any) -> rm.nn.Recurrent:
    """A layer of 3 inputs and 4 units; time gates of phased units stay open, so that outputs are not trivial."""
    torch.manual_seed(seed)
    layer = (MODELS | FROZEN)[name](3, 4, **keywords)
    with torch.no_grad():
        for parameter_name, parameter in layer.named_parameters():
            if parameter_name.startswith("open_ratio"):
                parameter.fill_(0.6)
    return layer


def numbers(*shape: int, seed: int = 1, dtype: torch.dtype | None = None) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype or torch.get_default_dtype()
    )


def parts(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_state(tensors: Any) -> Any:
    tensors = tuple(tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def everything(layer: Any, *args: Any, **keywords: Any) -> list[Tensor]:
    """Output and final states."""
    output, state = layer(*args, **keywords)
    return [output.data if isinstance(output, PackedSequence) else output, *parts(state)]


def assert_equal(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def weight_hh(layer: rm.nn.Recurrent) -> nn.Parameter:
    """The recurrent matrix, or the parameters that it is built from."""
    made_of = ("weight_hh_l0", "skew_l0", "phases_l0")
    return next(parameter for name, parameter in layer.named_parameters() if name in made_of)


# Arguments.


@EVERY_MODEL
def test_hx_is_another_name_for_state(name: str) -> None:
    layer, x = build(name).eval(), numbers(4, 2, 3)
    _, state = layer(x)
    expected = everything(layer, x, state)
    assert_equal(everything(layer, x, state=state), expected)
    assert_equal(everything(layer, x, hx=state), expected)
    assert not torch.equal(expected[0], layer(x)[0])


@EVERY_MODEL
def test_state_and_hx_together_are_refused(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    _, state = layer(x)
    with pytest.raises(TypeError, match="either state or hx"):
        layer(x, state, hx=state)


@EVERY_MODEL
def test_a_state_with_a_part_too_few_or_too_many_is_refused(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    _, state = layer(x)
    for wrong in (parts(state)[:-1], (*parts(state), parts(state)[0])):
        with pytest.raises((TypeError, ValueError), match="expected state"):
            layer(x, wrong)


@EVERY_MODEL
def test_a_state_as_a_list_is_taken_as_well(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    _, state = layer(x)
    assert_equal(everything(layer, x, list(parts(state))), everything(layer, x, state))


@EVERY_MODEL
def test_flatten_parameters_returns_nothing_and_changes_nothing(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    before = everything(layer, x)
    assert layer.flatten_parameters() is None
    assert_equal(everything(layer, x), before)


@EVERY_MODEL
def test_all_weights_are_the_parameters_one_list_per_layer_and_direction(name: str) -> None:
    layer = build(name, bidirectional=True)
    groups = layer.all_weights
    assert len(groups) == (6 if name == "mts" else 2)
    flat = [weight for group in groups for weight in group]
    assert all(weight is parameter for weight, parameter in zip(flat, layer.parameters(), strict=True))
    reversed_ones = [{entry for entry, p in layer.named_parameters() if p is weight} for weight in groups[1]]
    assert all(entry.endswith("_l0_reverse") for entries in reversed_ones for entry in entries)


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_reset_parameters_draws_what_construction_drew_from_the_same_seed(name: str) -> None:
    torch.manual_seed(3)
    layer = (MODELS | FROZEN)[name](3, 4, bidirectional=True)
    first = {entry: value.clone() for entry, value in layer.state_dict().items()}
    layer.reset_parameters()
    assert any(not torch.equal(value, first[entry]) for entry, value in layer.state_dict().items())
    torch.manual_seed(3)
    layer.reset_parameters()
    for entry, value in layer.state_dict().items():
        assert torch.equal(value, first[entry]), entry


SHOWN: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "plain": (lambda: rm.LSTM(2, 3), ["LSTM(2, 3)"]),
    "plain gru": (lambda: rm.GRU(2, 3), ["GRU(2, 3)"]),
    "torch's arguments": (
        lambda: rm.LSTM(2, 3, 2, False, True, 0.25, True, 1),
        ["num_layers=2", "bias=False", "batch_first=True", "dropout=0.25", "bidirectional=True", "proj_size=1"],
    ),
    "gate": (lambda: rm.LSTM(2, 3, gate="fast"), ["fast"]),
    "gate of a gru": (lambda: rm.GRU(2, 3, gate="softsign"), ["softsign"]),
    "gate of a janet": (lambda: rm.JANET(2, 3, gate="refine"), ["refine"]),
    "gate of a phased lstm": (lambda: rm.PhasedLSTM(2, 3, gate="fast"), ["fast"]),
    "input gate": (lambda: rm.LSTM(2, 3, input_gate="coupled"), ["input_gate='coupled'"]),
    "input gate of a pLSTM": (lambda: rm.PowerLawLSTM(2, 3, input_gate="separate"), ["input_gate='separate'"]),
    "input gate of a phased lstm": (lambda: rm.PhasedLSTM(2, 3, input_gate="coupled"), ["input_gate='coupled'"]),
    "exponent": (lambda: rm.PowerLawLSTM(2, 3, p=0.4, eps=1e-5), ["p=0.4", "eps=1e-05"]),
    "forget bias": (lambda: rm.LSTM(2, 3, forget_bias=2.0), ["forget_bias=2.0"]),
    "matched forget bias": (lambda: rm.LSTM(2, 3, forget_bias="matched"), ["forget_bias='matched'"]),
    "timescales": (lambda: rm.LSTM(2, 3, timescales=Chrono(50)), ["timescales=", "chrono", "50"]),
    "timescales per layer": (
        lambda: rm.LSTM(2, 3, 2, timescales=[None, InverseGamma(0.56, freeze=True)]),
        ["timescales=", "inversegamma", "0.56", "freeze=true", "none"],
    ),
    "weight drop": (lambda: rm.LSTM(2, 3, weight_drop=0.5), ["weight_drop=0.5"]),
    "engine": (lambda: rm.LSTM(2, 3, engine="loop"), ["engine='loop'"]),
    "beta": (lambda: rm.JANET(2, 3, beta=0.0), ["beta=0.0"]),
    "leak": (lambda: rm.PhasedLSTM(2, 3, leak=0.01), ["leak=0.01"]),
    "memory": (lambda: rm.NRU(2, 3, memory_size=9, heads=1), ["memory_size=9", "heads=1"]),
    "locked dropout": (lambda: rm.LockedDropout(0.3, batch_first=True), ["p=0.3", "batch_first=True"]),
}


@pytest.mark.parametrize(("maker", "words"), SHOWN.values(), ids=SHOWN)
def test_repr_shows_arguments_that_are_not_the_default(maker: Callable[[], nn.Module], words: list[str]) -> None:
    shown = repr(maker()).lower()
    assert [word for word in words if word.lower() not in shown] == []


def test_repr_leaves_out_arguments_at_their_default() -> None:
    assert repr(rm.LSTM(2, 3)) == "LSTM(2, 3)"
    assert repr(rm.GRU(2, 3)) == "GRU(2, 3)"
    assert repr(rm.PhasedLSTM(2, 3)) == "PhasedLSTM(2, 3)"


# Copies and files.


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_a_deep_copy_gives_the_same_outputs_and_shares_nothing(name: str) -> None:
    layer, x = build(name).eval(), numbers(4, 2, 3)
    twin = copy.deepcopy(layer)
    assert not twin.training
    expected = everything(layer, x)
    assert_equal(everything(twin, x), expected)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1)
    assert_equal(everything(twin, x), expected)


@EVERY_MODEL
def test_a_shallow_copy_shares_its_parameters(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    twin = copy.copy(layer)
    assert all(a is b for a, b in zip(twin.parameters(), layer.parameters(), strict=True))
    with torch.no_grad():
        weight_hh(layer).mul_(2)
    assert_equal(everything(twin, x), everything(layer, x))


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_pickling_keeps_outputs_mode_and_arguments(name: str) -> None:
    layer, x = build(name, bidirectional=True, weight_drop=0.5).eval(), numbers(4, 2, 3)
    twin = pickle.loads(pickle.dumps(layer))
    assert type(twin) is type(layer)
    assert repr(twin) == repr(layer)
    assert not twin.training
    assert_equal(everything(twin, x), everything(layer, x))


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_a_state_dict_carries_everything_to_a_fresh_layer(name: str) -> None:
    layer, other = build(name, seed=0, bidirectional=True), build(name, seed=9, bidirectional=True)
    x = numbers(4, 2, 3)
    with torch.no_grad():
        for buffer in layer.buffers():
            buffer.mul_(1.5)  # what is frozen travels as well, whatever its value
    assert not torch.equal(other(x)[0], layer(x)[0])
    other.load_state_dict(layer.state_dict())
    assert_equal(everything(other, x), everything(layer, x))


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_timescales_survive_a_state_dict_and_training_with_weight_decay(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    before = rm.timescales.of(layer)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        layer(x)[0].square().sum().backward()
        optimiser.step()
    assert_equal(rm.timescales.of(layer), before)
    other = build(name, seed=9)
    other.load_state_dict(layer.state_dict())
    assert_equal(rm.timescales.of(other), before)


# Dtypes.


@EVERY_MODEL
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_single_and_double_layers_give_and_keep_their_dtype(name: str, dtype: torch.dtype) -> None:
    found = everything(build(name, dtype=dtype), numbers(4, 2, 3, dtype=dtype))
    assert {tensor.dtype for tensor in found} == {dtype}


@EVERY_MODEL
def test_float32_is_near_float64(name: str) -> None:
    layer, x = build(name), numbers(6, 2, 3)
    for found, expected in zip(
        everything(layer, x), everything(copy.deepcopy(layer).double(), x.double()), strict=True
    ):
        # Six steps of roundings of 6e-8 each; NRU divides by small norms.
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@EVERY_MODEL
@HALVES
def test_half_layers_give_half_outputs_float32_memory_and_values_near_float32(name: str, dtype: torch.dtype) -> None:
    layer, x = build(name, bidirectional=True, dtype=dtype), numbers(6, 2, 3, dtype=dtype)
    output, state = layer(x)
    hidden, *memory = parts(state)
    assert output.dtype == dtype
    assert hidden.dtype == dtype
    assert {part.dtype for part in memory} <= {torch.float32}
    reference = everything(copy.deepcopy(layer).float(), x.float())  # same rounded weights and input
    for found, expected in zip([output, hidden, *memory], reference, strict=True):
        torch.testing.assert_close(found.float(), expected, rtol=NEAR[dtype], atol=NEAR[dtype])


@EVERY_MODEL
@HALVES
def test_half_layers_train(name: str, dtype: torch.dtype) -> None:
    layer, x = build(name, dtype=dtype), numbers(6, 2, 3, dtype=dtype).requires_grad_()
    layer(x)[0].float().sum().backward()
    for entry, parameter in [("input", x), *layer.named_parameters()]:
        assert parameter.grad is not None, entry
        assert parameter.grad.dtype == dtype, entry
        assert parameter.grad.isfinite().all(), entry
    assert weight_hh(layer).grad.abs().sum() > 0


@EVERY_MODEL
@HALVES
def test_autocast_gives_half_outputs_float32_memory_and_values_near_float32(name: str, dtype: torch.dtype) -> None:
    layer, x = build(name, bidirectional=True), numbers(6, 2, 3)
    with torch.autocast("cpu", dtype=dtype):
        output, state = layer(x)
    hidden, *memory = parts(state)
    assert output.dtype == dtype
    assert hidden.dtype == dtype
    assert {part.dtype for part in memory} <= {torch.float32}
    for found, expected in zip([output, hidden, *memory], everything(layer, x), strict=True):
        torch.testing.assert_close(found.float(), expected, rtol=NEAR[dtype], atol=NEAR[dtype])


@EVERY_MODEL
def test_autocast_leaves_gradients_in_float32_and_near_those_without(name: str) -> None:
    layer, x = build(name), numbers(6, 2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(x)
    found = torch.autograd.grad(output.float().sum(), list(layer.parameters()))
    expected = torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))
    for (entry, _), one, other in zip(layer.named_parameters(), found, expected, strict=True):
        assert one.dtype == torch.float32, entry
        # Rounding weights and input to 8 bits moves a gradient by a few per cent of the largest.
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1 * scale, msg=entry)


@EVERY_MODEL
def test_autocast_takes_half_input_for_a_float32_layer(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_equal(everything(layer, x), everything(layer, x.float()))


@EVERY_MODEL
def test_autocast_leaves_float64_layers_alone(name: str) -> None:
    layer, x = build(name, dtype=torch.float64), numbers(4, 2, 3, dtype=torch.float64)
    expected = everything(layer, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = everything(layer, x)
    assert {tensor.dtype for tensor in found} == {torch.float64}
    assert_equal(found, expected)


@EVERY_MODEL
@pytest.mark.parametrize("mode", ["half layer", "autocast"])
def test_a_state_of_either_dtype_is_accepted_back(name: str, mode: str) -> None:
    half = mode == "half layer"
    layer = build(name, dtype=torch.bfloat16 if half else torch.float32)
    x = numbers(4, 2, 3, dtype=torch.bfloat16 if half else torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not half):
        _, state = layer(x)
        expected = everything(layer, x, state)
        for dtype in (torch.float32, torch.bfloat16):
            found = everything(layer, x, as_state(part.to(dtype) for part in parts(state)))
            assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in expected]
            for one, other in zip(found, expected, strict=True):
                near = NEAR[torch.bfloat16]
                torch.testing.assert_close(one.float(), other.float(), rtol=near, atol=near)


@pytest.mark.parametrize("name", ["lstm", "fast", "plstm", "janet", "mts"])
def test_half_precision_gives_the_same_result_in_chunks(name: str) -> None:
    """Cell state and age are float32, and the hidden state only enters matmuls, which round it anyway."""
    layer, x = build(name, dtype=torch.bfloat16), numbers(8, 2, 3, dtype=torch.bfloat16)
    whole, expected = layer(x)
    first, state = layer(x[:5])
    second, found = layer(x[5:], state)
    assert_equal([torch.cat((first, second)), *parts(found)], [whole, *parts(expected)])


def test_ages_beyond_what_bfloat16_can_count_are_kept() -> None:
    """In bfloat16 256 + 1 = 256: an age kept there would stop growing, and memory would stop slowing down."""
    layer = rm.PowerLawLSTM(1, 1, p=0.5, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.bias_ih_l0[0] = -100.0  # never resets
    x = torch.zeros(300, 1, 1, dtype=torch.bfloat16)
    _, state = layer(x)
    _, (_, _, age) = layer(x, state)
    assert age.item() == 600


@EVERY_MODEL
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_layer_can_be_moved_to_another_dtype(name: str, dtype: torch.dtype) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    expected = everything(layer, x)
    assert layer.to(dtype) is layer
    assert {tensor.dtype for tensor in (*layer.parameters(), *layer.buffers())} == {dtype}
    output, _ = layer(x.to(dtype))
    assert output.dtype == dtype
    # Phased units have shifts up to 100, which half formats round to a tenth of a step and more.
    if dtype == torch.float64 or "phased" not in name:
        near = NEAR.get(dtype, 1e-5)
        torch.testing.assert_close(output.float(), expected[0], rtol=near, atol=near)


def test_half_is_float16() -> None:
    layer = rm.make("mts", 3, 4).half()
    output, (hidden, cell) = layer(numbers(4, 2, 3, dtype=torch.float16))
    assert (output.dtype, hidden.dtype, cell.dtype) == (torch.float16, torch.float16, torch.float32)


@EVERY_MODEL
def test_input_of_another_dtype_than_the_weights_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected input of dtype"):
        build(name)(numbers(4, 2, 3, dtype=torch.float64))


# Devices.


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_a_layer_made_on_the_meta_device_becomes_real_by_to_empty_and_reset_parameters(name: str) -> None:
    layer = (MODELS | FROZEN)[name](3, 4, device="meta")
    assert {tensor.device.type for tensor in (*layer.parameters(), *layer.buffers())} == {"meta"}
    layer.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.fill_(float("nan"))
    torch.manual_seed(5)
    layer.reset_parameters()
    torch.manual_seed(5)
    fresh = (MODELS | FROZEN)[name](3, 4)
    x = numbers(4, 2, 3)
    assert_equal(everything(layer, x), everything(fresh, x))


@EVERY_MODEL
def test_meta_device_gives_output_shapes(name: str) -> None:
    """As with torch.nn.LSTM: output shapes without allocating memory."""
    found = everything(build(name, device="meta"), torch.empty(4, 2, 3, device="meta"))
    expected = everything(build(name), numbers(4, 2, 3))
    assert [tuple(tensor.shape) for tensor in found] == [tuple(tensor.shape) for tensor in expected]
    assert {tensor.device.type for tensor in found} == {"meta"}


@pytest.mark.parametrize("name", MODELS | FROZEN)
def test_layers_are_made_on_the_default_device(name: str) -> None:
    with torch.device("meta"):
        layer = (MODELS | FROZEN)[name](3, 4)
    assert {tensor.device.type for tensor in (*layer.parameters(), *layer.buffers())} == {"meta"}


@pytest.mark.parametrize(
    "maker",
    [lambda: Fixed(7.0), lambda: Fixed([2.0, 3.0]), lambda: InverseGamma(0.56), lambda: Chrono(9)],
    ids=["fixed", "fixed, one per unit", "inverse gamma", "chrono"],
)
def test_timescales_can_be_named_under_any_default_device(maker: Callable[[], rm.timescales.Timescales]) -> None:
    with torch.device("meta"):
        layer = rm.LSTM(3, 2, timescales=maker(), device="cpu")
    assert len(rm.timescales.of(layer)[0].tolist()) == 2


# Higher-order gradients and functional transforms.

TWICE: dict[str, Maker] = {
    "lstm with power_law": built(rm.LSTM, gate="power_law"),
    "lstm with power_law, separate": built(rm.LSTM, gate="power_law", input_gate="separate"),
    "fast": named("fast"),
    "gru": named("gru"),
    "nru": built(rm.NRU, memory_size=1, heads=1),
}


@pytest.mark.parametrize("name", TWICE)
def test_the_loop_engine_can_be_differentiated_twice(name: str) -> None:
    torch.manual_seed(0)
    layer = TWICE[name](1, 2, engine="loop", dtype=torch.float64)
    names = [entry for entry, _ in layer.named_parameters()]
    x = numbers(2, 1, 1, dtype=torch.float64).requires_grad_()

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        output, state = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))
        return output, *parts(state)[1:]

    leaves = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    assert torch.autograd.gradcheck(run, (x, *leaves))
    assert torch.autograd.gradgradcheck(run, (x, *leaves))


@EVERY_MODEL
def test_functional_call_runs_with_the_parameters_it_is_given(name: str) -> None:
    layer, other, x = build(name, seed=0), build(name, seed=9), numbers(4, 2, 3)
    found = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
    assert torch.equal(found[0], other(x)[0])
    assert not torch.equal(found[0], layer(x)[0])


@EVERY_MODEL
def test_vmap_over_sequences_equals_the_batch(name: str) -> None:
    layer, x = build(name, engine="loop", dtype=torch.float64), numbers(4, 3, 3, dtype=torch.float64)
    output, state = torch.func.vmap(layer, in_dims=1, out_dims=1)(x)
    expected, expected_state = layer(x)
    # Batched and single products sum in another order.
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(parts(state), parts(expected_state), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@EVERY_MODEL
def test_vmap_over_an_ensemble_equals_its_members(name: str) -> None:
    members = [build(name, seed=seed, engine="loop", dtype=torch.float64) for seed in (0, 1, 2)]
    parameters, buffers = torch.func.stack_module_state(members)
    x = numbers(4, 2, 3, dtype=torch.float64)

    def run(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(members[0], (parameters, buffers), (x,))[0]

    found = torch.func.vmap(run)(parameters, buffers)
    expected = torch.stack([member(x)[0] for member in members])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@EVERY_MODEL
def test_jacrev_equals_the_jacobian_by_rows(name: str) -> None:
    layer, x = build(name, engine="loop", dtype=torch.float64), numbers(3, 1, 3, dtype=torch.float64)
    found = torch.func.jacrev(lambda values: layer(values)[0].sum((1, 2)))(x)
    expected = torch.autograd.functional.jacobian(lambda values: layer(values)[0].sum((1, 2)), x)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


# Compilation. Eager backends: what is tested is that tracing changes nothing, not a code generator.


class Counting:
    """A backend that runs graphs unchanged and counts their nodes."""

    def __init__(self) -> None:
        self.nodes = 0
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        self.nodes += len(graph.graph.nodes)
        return graph.forward


# Torch's tracer looks at `.grad` of tensors between two graphs and warns itself that they have none.
TRACED = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@pytest.fixture
def _fresh_compiler() -> Any:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def values_and_gradients(run: Any, layer: rm.nn.Recurrent, x: Tensor, **keywords: Any) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    output, state = run(x, **keywords)
    total = sum(tensor.cos().sum() for tensor in (output, *parts(state)))
    return [output, *parts(state), *torch.autograd.grad(total, [x, *layer.parameters()])]


@pytest.mark.long
@pytest.mark.slow  # tests/nn/test_compile.py has one of each cell
@TRACED
@pytest.mark.usefixtures("_fresh_compiler")
@EVERY_MODEL
def test_compiled_layers_give_the_same_values_and_gradients_at_a_cost_that_does_not_grow_with_length(name: str) -> None:
    layer = build(name)
    work = []
    for steps in (5, 50):
        torch.compiler.reset()
        backend = Counting()
        compiled = torch.compile(layer, backend=backend)
        x = numbers(steps, 2, 3)
        found = values_and_gradients(compiled, layer, x)
        for one, other in zip(found, values_and_gradients(layer, layer, x), strict=True):
            # The same operations in float32; a compiler may join some of them.
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        work.append((backend.graphs, backend.nodes))
    assert work[0] == work[1]


@pytest.mark.long
@TRACED
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru"])
def test_compiled_layers_do_not_recompile_for_every_length(name: str) -> None:
    backend = Counting()
    compiled = torch.compile(build(name), backend=backend)
    for steps in (4, 5, 6):
        compiled(numbers(steps, 2, 3))
    after_three = backend.graphs
    for steps in (7, 9, 12, 20):
        compiled(numbers(steps, 2, 3))
    assert backend.graphs == after_three


@pytest.mark.long
@TRACED
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["plstm", "phased", "gru-power-law"])
def test_compiled_layers_take_dt(name: str) -> None:
    layer, x = build(name, bidirectional=True), numbers(5, 2, 3)
    dt = numbers(5, 2, seed=2).exp()
    compiled = torch.compile(layer, backend="aot_eager")
    found = values_and_gradients(compiled, layer, x, dt=dt)
    for one, other in zip(found, values_and_gradients(layer, layer, x, dt=dt), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@TRACED
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_compiled_layers_take_packed_sequences(name: str) -> None:
    layer = build(name, bidirectional=True)
    package = pack_padded_sequence(numbers(5, 3, 3), [2, 5, 3], enforce_sorted=False)
    compiled = torch.compile(layer, backend="aot_eager")
    for one, other in zip(everything(compiled, package), everything(layer, package), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@TRACED
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru"])
def test_a_compiled_model_around_a_layer_trains_as_the_model_itself(name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = build(name, num_layers=2)
            torch.manual_seed(1)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.layer(x)[0][-1]))

    x = numbers(5, 2, 3)
    ends = []
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager")):
        model = Model()
        run = wrap(model)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            run(x).square().sum().backward()
            optimiser.step()
        ends.append(list(model.parameters()))
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


# Dropped recurrent weights.


@EVERY_MODEL
def test_weight_drop_trains_the_stored_matrix(name: str) -> None:
    layer, x = build(name, weight_drop=0.5, dtype=torch.float64), numbers(6, 2, 3, dtype=torch.float64)
    matrices = {entry: p for entry, p in layer.named_parameters() if entry.startswith("weight_hh")}
    before = {entry: matrix.detach().clone() for entry, matrix in matrices.items()}
    assert list(layer.state_dict()) == list(build(name, dtype=torch.float64).state_dict())
    torch.manual_seed(2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(x)[0].square().sum().backward()
    optimiser.step()
    for entry, matrix in matrices.items():
        assert matrix.grad is not None, entry
        assert matrix.grad.abs().sum() > 0, entry
        assert not torch.equal(matrix, before[entry]), entry


@pytest.mark.parametrize("name", ["lstm", "plstm", "gru", "fast", "janet"])
def test_weight_drop_draws_one_mask_per_call_for_all_steps_and_sequences(name: str) -> None:
    """Entries dropped in one mask get no gradient at all; masks drawn per step would leave hardly any without."""
    torch.manual_seed(0)
    layer = MODELS[name](3, 8, weight_drop=0.5, dtype=torch.float64)
    x = numbers(20, 3, 3, dtype=torch.float64)
    masks = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        output, _ = layer(x)
        (gradient,) = torch.autograd.grad(output.square().sum(), weight_hh(layer))
        mask = gradient != 0
        # 128 entries or more at probability one half: five standard deviations are 0.22.
        assert 0.28 < mask.double().mean() < 0.72
        dropped = copy.deepcopy(layer).eval()
        with torch.no_grad():
            weight_hh(dropped).mul_(mask * 2)
        torch.testing.assert_close(output, dropped(x)[0], rtol=1e-10, atol=1e-10)
        masks.append(mask)
    assert not torch.equal(*masks)


@EVERY_MODEL
def test_weight_drop_does_nothing_in_evaluation(name: str) -> None:
    x = numbers(6, 2, 3)
    layer = build(name, weight_drop=0.9)
    expected = everything(build(name).eval(), x)
    assert_equal(everything(layer.eval(), x), expected)
    assert not torch.equal(layer.train()(x)[0], build(name).train()(x)[0])


def test_weight_drop_of_one_cuts_all_recurrent_weights() -> None:
    layer, x = build("lstm", weight_drop=1.0), numbers(6, 2, 3)
    cut = build("lstm")
    with torch.no_grad():
        weight_hh(cut).zero_()
    assert_equal(everything(layer, x), everything(cut, x))


@pytest.mark.parametrize("keyword", ["dropout", "weight_drop"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", True], ids=str)
def test_a_dropout_that_is_no_probability_is_refused(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"expected {keyword} to be a number in"):
        rm.LSTM(2, 3, num_layers=2, **{keyword: value})


# Dropout between layers.


@EVERY_MODEL
def test_dropout_acts_in_training_only(name: str) -> None:
    layers = {} if name == "mts" else {"num_layers": 2}
    x = numbers(6, 2, 3)
    layer, plain = build(name, dropout=0.5, **layers), build(name, **layers)
    torch.manual_seed(0)
    assert not torch.equal(layer(x)[0], plain(x)[0])
    assert_equal(everything(layer.eval(), x), everything(plain.eval(), x))


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_dropout_acts_between_layers_and_not_on_the_output(bidirectional: bool) -> None:
    x = numbers(6, 2, 3)
    layer = build("lstm", num_layers=2, dropout=1.0, bidirectional=bidirectional)
    output, _ = layer(x)
    upper = rm.LSTM(8 if bidirectional else 4, 4, bidirectional=bidirectional)
    upper.load_state_dict(
        {entry.replace("_l1", "_l0"): value for entry, value in layer.state_dict().items() if "_l1" in entry}
    )
    assert torch.equal(output, upper(torch.zeros(6, 2, upper.input_size))[0])
    assert (output != 0).all()


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_dropout_scales_what_it_keeps(p: float) -> None:
    """The first layer gives one, always; the second gives tanh of half of what reaches it: zero, or 1/(1 - p)."""
    layer = rm.GRU(1, 1, num_layers=2, dropout=p, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        for bias in (layer.bias_ih_l0, layer.bias_ih_l1):
            bias[1] = -1000.0  # keeps nothing of the step before
        layer.bias_ih_l0[2] = 1000.0
        layer.weight_ih_l1[2] = 0.5
    torch.manual_seed(0)
    output, _ = layer(numbers(10, 20, 1, dtype=torch.float64))
    torch.testing.assert_close(
        output.unique(), torch.tensor([0.0, math.tanh(0.5 / (1 - p))], dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_dropout_with_one_layer_says_that_it_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="no effect with num_layers=1"):
        rm.LSTM(2, 3, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rm.LSTM(2, 3, num_layers=2, dropout=0.5)


def test_a_closed_phased_layer_does_not_leak_in_evaluation() -> None:
    layer = rm.PhasedLSTM(3, 4, leak=0.5)
    with torch.no_grad():
        layer.open_ratio_l0.fill_(1e-3)
        layer.period_l0.fill_(1000.0)
        layer.shift_l0.fill_(500.0)
    x = numbers(4, 2, 3)
    assert (layer.train()(x)[0] != 0).all()
    assert (layer.eval()(x)[0] == 0).all()


# Locked dropout.

LOCKED = {
    "time first": (False, (7, 50, 20), 0),
    "batch first": (True, (50, 7, 20), 1),
    "unbatched": (False, (7, 1000), 0),
    "unbatched, batch first": (True, (7, 1000), 0),
}


@pytest.mark.parametrize(("batch_first", "shape", "time"), LOCKED.values(), ids=LOCKED)
@pytest.mark.parametrize("p", [0.2, 0.5])
def test_locked_dropout_uses_one_mask_at_all_steps(
    batch_first: bool, shape: tuple[int, ...], time: int, p: float
) -> None:
    torch.manual_seed(0)
    layer = rm.LockedDropout(p, batch_first=batch_first)
    ones = torch.ones(shape)
    mask = layer(ones)
    assert mask.shape == ones.shape
    assert torch.equal(mask, mask.narrow(time, 0, 1).expand(shape))
    kept = mask.narrow(time, 0, 1).flatten()
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 1 / (1 - p)))
    # 1000 entries: five standard deviations of the share of dropped ones.
    assert abs((kept == 0).double().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / 1000)
    assert not torch.equal(layer(ones), mask)
    values = numbers(*shape)
    torch.manual_seed(0)
    torch.testing.assert_close(layer(values), values * mask)


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_locked_dropout_draws_a_mask_of_its_own_for_every_sequence(batch_first: bool) -> None:
    torch.manual_seed(0)
    mask = rm.LockedDropout(0.5, batch_first=batch_first)(torch.ones(6, 6, 40))
    rows = mask.unbind(0 if batch_first else 1)
    assert not any(torch.equal(one, other) for one, other in pairwise(rows))


@pytest.mark.parametrize("enforce_sorted", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
def test_locked_dropout_of_packed_sequences_uses_one_mask_per_sequence(enforce_sorted: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    lengths = [5, 4, 2] if enforce_sorted else [2, 5, 4]
    package = pack_padded_sequence(torch.ones(5, 3, 400), lengths, enforce_sorted=enforce_sorted)
    result = rm.LockedDropout(0.25, batch_first=batch_first)(package)
    assert isinstance(result, PackedSequence)
    padded, found = pad_packed_sequence(result)
    assert found.tolist() == lengths
    for row, length in enumerate(lengths):
        assert torch.equal(padded[:length, row], padded[:1, row].expand(length, -1))
        torch.testing.assert_close(padded[0, row].unique(), torch.tensor([0, 4 / 3]))
    assert not torch.equal(padded[0, 0], padded[0, 1])
    assert not torch.equal(padded[0, 1], padded[0, 2])


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_locked_dropout_does_nothing_in_evaluation(p: float) -> None:
    layer = rm.LockedDropout(p).eval()
    x = numbers(5, 2, 3)
    assert torch.equal(layer(x), x)
    package = pack_padded_sequence(x, [5, 3])
    assert torch.equal(layer(package).data, package.data)


def test_locked_dropout_at_its_ends_keeps_everything_or_nothing() -> None:
    x = numbers(5, 2, 3)
    assert torch.equal(rm.LockedDropout(0.0)(x), x)
    assert torch.equal(rm.LockedDropout(1.0)(x), torch.zeros_like(x))


def test_locked_dropout_passes_gradients_through_its_mask() -> None:
    torch.manual_seed(0)
    x = numbers(5, 2, 30).requires_grad_()
    mask = rm.LockedDropout(0.5)(x)
    (gradient,) = torch.autograd.grad(mask.sum(), x)
    torch.testing.assert_close(gradient * x, mask)
    assert set(gradient.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), "half"], ids=str)
def test_locked_dropout_refuses_what_is_no_probability(p: Any) -> None:
    with pytest.raises(ValueError, match="expected p to be a number in"):
        rm.LockedDropout(p)


# Inputs nobody meant.


@EVERY_MODEL
def test_wrong_inputs_are_refused(name: str) -> None:
    layer = build(name)
    for wrong, error in (
        (numbers(4, 2, 5), ValueError),
        (numbers(3), ValueError),
        (numbers(1, 4, 2, 3), ValueError),
        (torch.ones(4, 2, 3, dtype=torch.long), TypeError),
        ([[1.0, 2.0, 3.0]], TypeError),
    ):
        with pytest.raises(error, match="expected input"):
            layer(wrong)


@EVERY_MODEL
def test_inputs_and_states_are_left_as_they_were(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    _, state = layer(x)
    copies = [tensor.clone() for tensor in (x, *parts(state))]
    layer(x, state)
    assert_equal([x, *parts(state)], copies)


@EVERY_MODEL
def test_strided_and_transposed_input_is_taken_as_it_is(name: str) -> None:
    layer, x = build(name, bidirectional=True), numbers(4, 2, 3)
    spread = torch.zeros(8, 3, 2).transpose(1, 2)[::2]
    spread.copy_(x)
    assert not spread.is_contiguous()
    assert_equal(everything(layer, spread), everything(layer, x))


@EVERY_MODEL
def test_without_gradients_nothing_is_kept_for_them(name: str) -> None:
    layer, x = build(name), numbers(4, 2, 3)
    with torch.no_grad():
        found = everything(layer, x)
    assert not any(tensor.requires_grad for tensor in found)
    with torch.inference_mode():
        assert_equal(everything(layer, x), found)
