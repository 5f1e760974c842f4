"""Every model on every input layout: batched or not, batch first, packed, with dt, whole or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

import remanence as rm

Maker = Callable[..., rm.nn.Recurrent]


def named(name: str, **fixed: Any) -> Maker:
    def maker(inputs: int, hidden: int, num_layers: int = 1, **keywords: Any) -> rm.nn.Recurrent:
        layers = {} if name == "mts" else {"num_layers": num_layers}  # mts has three, always
        return rm.make(name, inputs, hidden, **fixed, **layers, **keywords)

    return maker


def gated(kind: type[rm.nn.Recurrent], **fixed: Any) -> Maker:
    return lambda inputs, hidden, num_layers=1, **keywords: kind(inputs, hidden, num_layers, **fixed, **keywords)


MODELS: dict[str, Maker] = {
    "lstm": named("lstm"),
    "lstm-chrono": named("lstm-chrono", t_max=20),
    "gru": named("gru"),
    "plstm": named("plstm"),
    "plstm-separate": gated(rm.LSTM, gate="power_law", input_gate="separate"),
    "plstm-projected": named("plstm", proj_size=1),
    "fast": named("fast"),
    "softsign": named("softsign"),
    "refine": named("refine"),
    "ur": named("ur"),
    "janet": named("janet"),
    "nru": named("nru"),
    "phased": named("phased"),
    "mts": named("mts"),
    "gru-power-law": gated(rm.GRU, gate="power_law"),
    "janet-power-law": gated(rm.JANET, gate="power_law"),
    "phased-power-law": gated(rm.PhasedLSTM, gate="power_law"),
    "exprnn": named("exprnn"),
}
TIMED = [name for name in MODELS if "plstm" in name or "power-law" in name or name == "phased"]
UNTIMED = [name for name in MODELS if name not in TIMED]
AS_THEY_ARE = [(name, False) for name in MODELS] + [(name, True) for name in TIMED]

ONE_OF_EACH_CELL = ("lstm", "gru", "plstm", "plstm-projected", "janet", "nru", "phased", "mts", "exprnn")


def case(name: str, *more: bool) -> Any:
    """Models that only differ from another one in their gate run as manual tests only."""
    marks = () if name in ONE_OF_EACH_CELL else (pytest.mark.long, pytest.mark.slow)
    return pytest.param(name, *more, id=name + " with dt" * any(more), marks=marks)


EVERY_MODEL = pytest.mark.parametrize("name", [case(name) for name in MODELS])
EVERY_TIMED_MODEL = pytest.mark.parametrize("name", [case(name) for name in TIMED])
WITH_AND_WITHOUT_DT = pytest.mark.parametrize(("name", "timed"), [case(name, timed) for name, timed in AS_THEY_ARE])
SOME = settings(deadline=None, max_examples=6)

# Everything is float64. The two sides of a comparison form the same sums in another order; gradients of NRU divide by
# small norms, which magnifies rounding errors.
RELATIVE = 1e-9
ABSOLUTE = 1e-10


@dataclass(frozen=True)
class Sizes:
    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    bidirectional: bool
    seed: int

    def layer(self, name: str, **keywords: Any) -> rm.nn.Recurrent:
        torch.manual_seed(self.seed)
        hidden = max(2, self.hidden) if name == "plstm-projected" else self.hidden
        layer = MODELS[name](
            self.inputs,
            hidden,
            **{"num_layers": self.layers, "bidirectional": self.bidirectional, "dtype": torch.float64} | keywords,
        )
        with torch.no_grad():
            for parameter_name, parameter in layer.named_parameters():
                if parameter_name.startswith("open_ratio"):
                    parameter.fill_(0.6)  # else time gates are closed most of the time, and outputs are near zero
        return layer

    def values(self) -> Tensor:
        torch.manual_seed(self.seed + 1)
        return torch.randn(self.steps, self.batch, self.inputs, dtype=torch.float64)

    def dt(self, timed: bool = True) -> Tensor | None:
        """Times from zero to several steps, `(T, B)`."""
        torch.manual_seed(self.seed + 2)
        times = torch.randn(self.steps, self.batch, dtype=torch.float64).exp()
        times = torch.where(torch.rand_like(times) < 0.1, 0, times)
        return times if timed else None

    def lengths(self) -> list[int]:
        """One per sequence, in no order, the longest of them T."""
        generator = torch.Generator().manual_seed(self.seed + 3)
        lengths = torch.randint(1, self.steps + 1, (self.batch,), generator=generator)
        lengths[torch.randint(self.batch, (), generator=generator)] = self.steps
        return lengths.tolist()


@st.composite
def sizes(draw: st.DrawFn, least_batch: int = 0) -> Sizes:
    return Sizes(
        steps=draw(st.integers(1, 6)),
        batch=draw(st.integers(least_batch, 4)),
        inputs=draw(st.integers(1, 3)),
        hidden=draw(st.integers(1, 4)),
        layers=draw(st.integers(1, 2)),
        bidirectional=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


def parts(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_state(tensors: Sequence[Tensor]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def score(*tensors: Tensor) -> Tensor:
    """A scalar loss: a sum of all entries with different weights."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        total = total + (tensor * torch.arange(1, 1 + tensor.numel(), dtype=tensor.dtype).cos().view_as(tensor)).sum()
    return total


def gradients(total: Tensor, layer: rm.nn.Recurrent, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(total, [*leaves, *layer.parameters()]))


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor], what: str) -> None:
    assert len(found) == len(expected)
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(
            one,
            other,
            rtol=RELATIVE,
            atol=ABSOLUTE * scale,
            msg=lambda text, index=index: f"{what} {index}: {text}",
        )


def assert_differs(one: Tensor, other: Tensor) -> None:
    assert not torch.allclose(one, other, rtol=1e-6, atol=1e-8)


def pieces(layer: rm.nn.Recurrent, values: Tensor, dt: Tensor | None, cuts: Sequence[int]) -> tuple[Tensor, Any]:
    """Run in chunks along time, each from the final state of the previous one."""
    outputs, state = [], None
    bounds = [0, *cuts, values.shape[0]]
    for start, end in pairwise(bounds):
        output, state = layer(values[start:end], state, None if dt is None else dt[start:end])
        outputs.append(output)
    return torch.cat(outputs), state


# Shapes.


def widths(name: str, layer: rm.nn.Recurrent) -> list[int]:
    hidden = layer.hidden_size
    if name == "plstm-projected":
        return [1, hidden, hidden]
    if name == "nru":
        return [hidden, layer.cell.memory_size]
    return {
        "gru": [hidden],
        "exprnn": [hidden],
        "gru-power-law": [hidden, hidden],
        "plstm": [hidden, hidden, hidden],
        "plstm-separate": [hidden, hidden, hidden],
        "janet-power-law": [hidden, hidden, hidden],
        "phased": [hidden, hidden, 1],
        "phased-power-law": [hidden, hidden, hidden, 1],
    }.get(name, [hidden, hidden])


@EVERY_MODEL
@SOME
@given(size=sizes())
def test_outputs_and_states_have_the_documented_shapes(name: str, size: Sizes) -> None:
    layer = size.layer(name)
    output, state = layer(size.values())
    directions = 2 if size.bidirectional else 1
    stacked = (3 if name == "mts" else size.layers) * directions
    expected = widths(name, layer)
    assert isinstance(state, Tensor) == (len(expected) == 1)
    assert output.shape == (size.steps, size.batch, expected[0] * directions)
    assert [part.shape for part in parts(state)] == [(stacked, size.batch, width) for width in expected]
    assert all(tensor.isfinite().all() for tensor in (output, *parts(state)))


@EVERY_MODEL
@SOME
@given(size=sizes(least_batch=1))
def test_the_hidden_state_is_the_last_output_of_each_direction(name: str, size: Sizes) -> None:
    output, state = size.layer(name)(size.values())
    hidden = parts(state)[0]
    width = hidden.shape[-1]
    assert torch.equal(output[-1, :, :width], hidden[-2 if size.bidirectional else -1])
    if size.bidirectional:
        assert torch.equal(output[0, :, width:], hidden[-1])


@WITH_AND_WITHOUT_DT
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_a_batch_without_sequences_gives_empty_outputs_and_zero_gradients(
    name: str, timed: bool, bidirectional: bool
) -> None:
    size = Sizes(steps=3, batch=0, inputs=2, hidden=3, layers=2, bidirectional=bidirectional, seed=0)
    layer, values = size.layer(name), size.values().requires_grad_()
    output, state = layer(values, dt=size.dt(timed))
    assert output.shape[:2] == (3, 0)
    assert all(part.shape[1] == 0 for part in parts(state))
    again, _ = layer(values, state, size.dt(timed))
    found = gradients(score(output, again), layer, values)
    assert found[0].shape == values.shape
    assert all((gradient == 0).all() for gradient in found)


# Forms of input.


@WITH_AND_WITHOUT_DT
@SOME
@given(size=sizes())
def test_batch_first_equals_transposed(name: str, timed: bool, size: Sizes) -> None:
    layer, flipped = size.layer(name), size.layer(name, batch_first=True)
    values, dt = size.values(), size.dt(timed)
    output, state = layer(values, dt=dt)
    by_batch, other = flipped(values.transpose(0, 1), dt=None if dt is None else dt.T)
    assert_same([by_batch.transpose(0, 1), *parts(other)], [output, *parts(state)], "value")
    by_batch, other = flipped(values.transpose(0, 1), other)
    output, state = layer(values, state)
    assert_same([by_batch.transpose(0, 1), *parts(other)], [output, *parts(state)], "value from that state")


@WITH_AND_WITHOUT_DT
@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@SOME
@given(size=sizes())
def test_unbatched_equals_a_batch_of_one(name: str, timed: bool, batch_first: bool, size: Sizes) -> None:
    size = replace(size, batch=1)
    layer, alone = size.layer(name), size.layer(name, batch_first=batch_first)
    values, dt = size.values(), size.dt(timed)
    single, flat_dt = values[:, 0], None if dt is None else dt[:, 0]
    state = flat_state = None
    for _ in range(2):  # from nothing, and from the state that left
        output, state = layer(values, state, dt)
        flat, flat_state = alone(single, flat_state, flat_dt)
        assert flat.shape == output[:, 0].shape
        assert all(part.dim() == 2 for part in parts(flat_state))
        assert_same([flat, *parts(flat_state)], [output[:, 0], *(part[:, 0] for part in parts(state))], "value")


def packed(values: Tensor, lengths: list[int], enforce_sorted: bool) -> PackedSequence:
    return pack_padded_sequence(values, lengths, enforce_sorted=enforce_sorted)


@WITH_AND_WITHOUT_DT
@pytest.mark.parametrize("enforce_sorted", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("initial", [False, True], ids=["from zero", "from a state"])
@settings(SOME, max_examples=4)
@given(size=sizes(least_batch=1), pack_dt=st.booleans())
def test_packed_equals_each_sequence_alone_in_values_and_gradients(
    name: str, timed: bool, enforce_sorted: bool, initial: bool, size: Sizes, pack_dt: bool
) -> None:
    layer, values, dt = size.layer(name), size.values().requires_grad_(), size.dt(timed)
    lengths = sorted(size.lengths(), reverse=True) if enforce_sorted else size.lengths()
    before: list[Tensor] = []
    if initial:
        _, state = layer(torch.ones_like(values))
        before = [part.detach().requires_grad_() for part in parts(state)]

    given_dt: Any = dt
    if dt is not None and pack_dt:
        given_dt = packed(dt, lengths, enforce_sorted)
    result, state = layer(packed(values, lengths, enforce_sorted), as_state(before) if initial else None, given_dt)
    assert isinstance(result, PackedSequence)
    output, found_lengths = pad_packed_sequence(result)
    assert found_lengths.tolist() == lengths

    total = alone_total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone, alone_state = layer(
            values[:length, one],
            as_state([part[:, one] for part in before]) if initial else None,
            None if dt is None else dt[:length, one],
        )
        together = [output[:length, one], *(part[:, one] for part in parts(state))]
        assert_same(together, [alone, *parts(alone_state)], f"sequence {row}, value")
        assert (output[length:, row] == 0).all()
        total = total + (row + 1) * score(*together)
        alone_total = alone_total + (row + 1) * score(alone, *parts(alone_state))
    assert_same(gradients(total, layer, values, *before), gradients(alone_total, layer, values, *before), "gradient")


@WITH_AND_WITHOUT_DT
@SOME
@given(size=sizes(least_batch=1))
def test_packed_output_keeps_the_order_of_the_package(name: str, timed: bool, size: Sizes) -> None:
    package = packed(size.values(), size.lengths(), enforce_sorted=False)
    result, _ = size.layer(name)(package, dt=size.dt(timed))
    assert torch.equal(result.batch_sizes, package.batch_sizes)
    assert torch.equal(result.sorted_indices, package.sorted_indices)
    assert torch.equal(result.unsorted_indices, package.unsorted_indices)


# Time between steps.


@EVERY_TIMED_MODEL
@SOME
@given(size=sizes())
def test_dt_of_ones_equals_none_in_values_and_gradients(name: str, size: Sizes) -> None:
    layer, values = size.layer(name), size.values().requires_grad_()
    output, state = layer(values)
    same, same_state = layer(values, dt=torch.ones(size.steps, size.batch, dtype=torch.float64))
    assert_same([same, *parts(same_state)], [output, *parts(state)], "value")
    assert_same(
        gradients(score(same, *parts(same_state)), layer, values),
        gradients(score(output, *parts(state)), layer, values),
        "gradient",
    )


@EVERY_TIMED_MODEL
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_dt_makes_a_difference(name: str, bidirectional: bool) -> None:
    size = Sizes(steps=5, batch=2, inputs=2, hidden=4, layers=1, bidirectional=bidirectional, seed=0)
    layer, values = size.layer(name), size.values()
    width = parts(layer(values)[1])[0].shape[-1]
    with_dt, without = layer(values, dt=size.dt())[0], layer(values)[0]
    for start in (0, width) if bidirectional else (0,):
        assert_differs(with_dt[..., start : start + width], without[..., start : start + width])


@EVERY_TIMED_MODEL
@SOME
@given(size=sizes())
def test_dt_of_one_dimension_is_shared_by_all_sequences(name: str, size: Sizes) -> None:
    layer, flipped = size.layer(name), size.layer(name, batch_first=True)
    values = size.values()
    times = replace(size, batch=1).dt()[:, 0]
    output, state = layer(values, dt=times.unsqueeze(1).repeat(1, size.batch))
    found, found_state = layer(values, dt=times)
    assert_same([found, *parts(found_state)], [output, *parts(state)], "value")
    found, found_state = flipped(values.transpose(0, 1), dt=times)
    assert_same([found.transpose(0, 1), *parts(found_state)], [output, *parts(state)], "value, batch first")


@EVERY_TIMED_MODEL
@SOME
@given(size=sizes(least_batch=1))
def test_the_reverse_step_at_t_uses_the_dt_of_t_plus_1_and_one_at_its_start(name: str, size: Sizes) -> None:
    size = replace(size, layers=1, bidirectional=True)
    layer, values, dt = size.layer(name), size.values(), size.dt()
    backward = replace(size, bidirectional=False).layer(name)
    backward.load_state_dict(
        {
            entry.removesuffix("_reverse"): value
            for entry, value in layer.state_dict().items()
            if entry.endswith("_reverse")
        }
    )
    output, state = layer(values, dt=dt)
    flipped_dt = torch.cat((torch.ones_like(dt[:1]), dt[1:].flip(0)))
    by_hand, hand_state = backward(values.flip(0), dt=flipped_dt)
    width = by_hand.shape[-1]
    assert_same([output[..., width:]], [by_hand.flip(0)], "output")
    assert_same([part[1:] for part in parts(state)], parts(hand_state), "state")
    # The first entry is the time before the first step, which the backward direction does not use.
    other = dt.clone()
    other[0] += 1
    assert torch.equal(layer(values, dt=other)[0][..., width:], output[..., width:])


@EVERY_TIMED_MODEL
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("rubbish", [float("nan"), -1.0, 1e30], ids=str)
def test_dt_beyond_the_end_of_a_sequence_does_not_matter(name: str, bidirectional: bool, rubbish: float) -> None:
    size = Sizes(steps=5, batch=4, inputs=2, hidden=3, layers=2, bidirectional=bidirectional, seed=1)
    layer, values, dt, lengths = size.layer(name), size.values().requires_grad_(), size.dt(), [2, 5, 1, 4]
    spoilt = dt.clone()
    for row, length in enumerate(lengths):
        spoilt[length:, row] = rubbish
    results = []
    for times in (dt, spoilt):
        output, state = layer(packed(values, lengths, enforce_sorted=False), dt=times)
        found = gradients(score(output.data, *parts(state)), layer, values)
        results.append([output.data, *parts(state), *found])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@EVERY_TIMED_MODEL
@pytest.mark.parametrize("pack_dt", [False, True], ids=["padded dt", "packed dt"])
@SOME
@given(size=sizes(least_batch=1))
def test_packed_input_of_a_batch_first_layer_takes_dt_batch_first(name: str, pack_dt: bool, size: Sizes) -> None:
    values, dt, lengths = size.values(), size.dt(), size.lengths()
    package = packed(values, lengths, enforce_sorted=False)
    expected, state = size.layer(name)(package, dt=dt)
    by_batch = pack_padded_sequence(values.transpose(0, 1), lengths, batch_first=True, enforce_sorted=False)
    times: Any = dt.T
    if pack_dt:
        times = pack_padded_sequence(times, lengths, batch_first=True, enforce_sorted=False)
    output, other = size.layer(name, batch_first=True)(by_batch, dt=times)
    assert_same([output.data, *parts(other)], [expected.data, *parts(state)], "value")


@EVERY_TIMED_MODEL
def test_gradients_reach_dt(name: str) -> None:
    size = Sizes(steps=4, batch=2, inputs=2, hidden=3, layers=1, bidirectional=False, seed=0)
    layer, values, dt = size.layer(name), size.values(), size.dt().clamp(min=0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda times: layer(values, dt=times)[0], (dt,))


@pytest.mark.parametrize("name", UNTIMED)
def test_a_model_that_does_not_use_dt_refuses_it(name: str) -> None:
    size = Sizes(steps=3, batch=2, inputs=2, hidden=3, layers=1, bidirectional=False, seed=0)
    with pytest.raises(ValueError, match="expected no dt"):
        size.layer(name)(size.values(), dt=torch.ones(3, 2))


WRONG_DT: dict[str, tuple[Any, type[Exception]]] = {
    "batch first for a time-first layer": (torch.ones(2, 3), ValueError),
    "one number": (torch.ones(()), ValueError),
    "one per sequence": (torch.ones(2), ValueError),
    "with a feature dimension": (torch.ones(3, 2, 1), ValueError),
    "negative": (torch.tensor([1.0, -1.0, 1.0]), ValueError),
    "not a number": (torch.tensor([1.0, float("nan"), 1.0]), ValueError),
    "infinite": (torch.tensor([1.0, float("inf"), 1.0]), ValueError),
    "truth values": (torch.ones(3, dtype=torch.bool), TypeError),
    "complex": (torch.ones(3, dtype=torch.complex64), TypeError),
    "packed for padded input": (pack_padded_sequence(torch.ones(3, 2), [3, 2]), ValueError),
}


@pytest.mark.parametrize(("dt", "error"), WRONG_DT.values(), ids=WRONG_DT)
def test_a_wrong_dt_is_refused(dt: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="expected"):
        rm.PowerLawLSTM(2, 3)(torch.zeros(3, 2, 2), dt=dt)


@pytest.mark.parametrize(
    "dt",
    [pack_padded_sequence(torch.ones(5, 2), [5, 2]), pack_padded_sequence(torch.ones(4, 2), [4, 3])],
    ids=["the lengths of other sequences", "other lengths"],
)
def test_a_packed_dt_whose_lengths_are_not_those_of_the_input_is_refused(dt: PackedSequence) -> None:
    package = pack_padded_sequence(torch.zeros(5, 2, 2), [2, 5], enforce_sorted=False)
    with pytest.raises(ValueError, match="same lengths"):
        rm.PowerLawLSTM(2, 3)(package, dt=dt)


@EVERY_TIMED_MODEL
def test_dt_as_a_list_of_numbers_is_as_exact_as_a_tensor(name: str) -> None:
    size = Sizes(steps=4, batch=2, inputs=2, hidden=3, layers=1, bidirectional=True, seed=0)
    layer, values, times = size.layer(name), size.values(), [0.1, 0.7, 1.3, 2.9]
    expected = layer(values, dt=torch.tensor(times, dtype=torch.float64))[0]
    assert torch.equal(layer(values, dt=times)[0], expected)


@EVERY_TIMED_MODEL
def test_integer_dt_is_taken_as_numbers(name: str) -> None:
    size = Sizes(steps=4, batch=2, inputs=2, hidden=3, layers=1, bidirectional=True, seed=0)
    layer, values = size.layer(name), size.values()
    whole = torch.tensor([1, 3, 0, 2])
    assert torch.equal(layer(values, dt=whole)[0], layer(values, dt=whole.double())[0])


# In chunks.


@WITH_AND_WITHOUT_DT
@SOME
@given(size=sizes(), data=st.data())
def test_chunks_with_carried_state_equal_the_whole_sequence(
    name: str, timed: bool, size: Sizes, data: st.DataObject
) -> None:
    size = replace(size, bidirectional=False)
    cuts = sorted(data.draw(st.sets(st.integers(1, size.steps - 1)) if size.steps > 1 else st.just(set()), "cuts"))
    layer, values, dt = size.layer(name), size.values().requires_grad_(), size.dt(timed)
    whole, state = layer(values, dt=dt)
    joined, carried = pieces(layer, values, dt, cuts)
    assert_same([joined, *parts(carried)], [whole, *parts(state)], "value")
    assert_same(
        gradients(score(joined, *parts(carried)), layer, values),
        gradients(score(whole, *parts(state)), layer, values),
        "gradient",
    )


@WITH_AND_WITHOUT_DT
def test_step_by_step_equals_the_whole_sequence(name: str, timed: bool) -> None:
    size = Sizes(steps=30, batch=2, inputs=2, hidden=4, layers=2, bidirectional=False, seed=2)
    layer, values, dt = size.layer(name), size.values().requires_grad_(), size.dt(timed)
    whole, state = layer(values, dt=dt)
    joined, carried = pieces(layer, values, dt, range(1, 30))
    assert_same([joined, *parts(carried)], [whole, *parts(state)], "value")
    assert_same(
        gradients(score(joined, *parts(carried)), layer, values),
        gradients(score(whole, *parts(state)), layer, values),
        "gradient",
    )


@EVERY_MODEL
def test_every_part_of_the_state_is_needed_to_continue(name: str) -> None:
    """Zeroing any part of the carried state changes later outputs, so no part is redundant."""
    size = Sizes(steps=6, batch=2, inputs=2, hidden=8, layers=1, bidirectional=False, seed=3)
    layer, values = size.layer(name), size.values()
    _, state = layer(values)
    going_on, _ = layer(values, state)
    for index, part in enumerate(parts(state)):
        without = [torch.zeros_like(part) if i == index else other for i, other in enumerate(parts(state))]
        assert_differs(layer(values, as_state(without))[0], going_on)


@WITH_AND_WITHOUT_DT
def test_gradients_flow_through_the_carried_state(name: str, timed: bool) -> None:
    """To the input of the previous chunk, so that chunked training is exact and not truncated."""
    size = Sizes(steps=6, batch=2, inputs=2, hidden=4, layers=1, bidirectional=False, seed=4)
    layer, values, dt = size.layer(name), size.values().requires_grad_(), size.dt(timed)
    _, state = layer(values[:3], dt=None if dt is None else dt[:3])
    output, _ = layer(values[3:], state, None if dt is None else dt[3:])
    (found,) = torch.autograd.grad(output.sum(), values)
    assert (found[:3].abs().sum((0, 2)) > 0).all()


@EVERY_MODEL
def test_packed_chunks_carry_the_state_of_each_sequence(name: str) -> None:
    """Sequences of different lengths, cut in two where each is long enough, end where the whole ones do."""
    size = Sizes(steps=6, batch=3, inputs=2, hidden=3, layers=2, bidirectional=False, seed=5)
    layer, values, lengths = size.layer(name), size.values(), [4, 6, 3]
    _, expected = layer(packed(values, lengths, enforce_sorted=False))
    _, state = layer(values[:2])
    rest = pad_sequence([values[2:length, row] for row, length in enumerate(lengths)])
    _, state = layer(packed(rest, [length - 2 for length in lengths], enforce_sorted=False), state)
    assert_same(parts(state), parts(expected), "state")


@EVERY_MODEL
def test_outputs_do_not_depend_on_what_comes_later(name: str) -> None:
    size = Sizes(steps=6, batch=2, inputs=2, hidden=3, layers=2, bidirectional=False, seed=6)
    layer, values = size.layer(name), size.values()
    later = values.clone()
    later[4:] += 1
    assert_same([layer(later)[0][:4]], [layer(values)[0][:4]], "output")


@EVERY_MODEL
def test_sequences_of_a_batch_are_independent(name: str) -> None:
    size = Sizes(steps=5, batch=3, inputs=2, hidden=3, layers=2, bidirectional=True, seed=7)
    layer, values = size.layer(name), size.values().requires_grad_()
    output, state = layer(values)
    (found,) = torch.autograd.grad(score(output[:, 1], *(part[:, 1] for part in parts(state))), values)
    assert (found[:, [0, 2]] == 0).all()
    assert (found[:, 1] != 0).any()
