"""rm.LSTM and rm.GRU with the default gate equal torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import remanence as rm

PAIRS = {"lstm": (nn.LSTM, rm.LSTM), "gru": (nn.GRU, rm.GRU)}
KINDS = pytest.mark.parametrize("kind", PAIRS)

# Both sides compute in float64 and differ by the order of sums over at most a few dozen terms.
TOLERANCE = 1e-10


@dataclass(frozen=True)
class Case:
    """A layer and an input to try it on."""

    steps: int = 4
    batch: int = 3
    inputs: int = 2
    hidden: int = 3
    layers: int = 1
    bias: bool = True
    batch_first: bool = False
    bidirectional: bool = False
    proj: int = 0
    form: str = "batched"
    """batched, unbatched, sorted (packed by decreasing length) or unsorted (packed in any order)."""
    initial: bool = False
    """Whether to pass an initial state."""
    seed: int = 0

    def keywords(self, kind: str) -> dict[str, Any]:
        keywords: dict[str, Any] = {
            "num_layers": self.layers,
            "bias": self.bias,
            "batch_first": self.batch_first,
            "bidirectional": self.bidirectional,
        }
        return keywords | ({"proj_size": self.proj} if kind == "lstm" else {})

    def torch_layer(self, kind: str, dtype: torch.dtype = torch.float64) -> nn.RNNBase:
        torch.manual_seed(self.seed)
        return PAIRS[kind][0](self.inputs, self.hidden, **self.keywords(kind), dtype=dtype)

    def our_layer(self, kind: str, dtype: torch.dtype = torch.float64) -> rm.nn.Recurrent:
        torch.manual_seed(self.seed)
        return PAIRS[kind][1](self.inputs, self.hidden, **self.keywords(kind), dtype=dtype)

    def lengths(self) -> list[int]:
        generator = torch.Generator().manual_seed(self.seed)
        lengths = torch.randint(1, self.steps + 1, (self.batch,), generator=generator)
        lengths[0] = self.steps
        if self.form == "unsorted":
            return lengths[torch.randperm(self.batch, generator=generator)].tolist()
        return lengths.sort(descending=True).values.tolist()

    def leaves(self, kind: str) -> list[Tensor]:
        """The input as a plain tensor and, if requested, the initial state; all require gradients."""
        torch.manual_seed(self.seed + 1)
        shape: tuple[int, ...] = (self.steps, self.inputs)
        if self.form != "unbatched":
            first, second = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
            shape = (first, second, self.inputs)
        leaves = [torch.randn(shape, dtype=torch.float64)]
        if self.initial:
            stacked = self.layers * (1 + self.bidirectional)
            rows = (stacked,) if self.form == "unbatched" else (stacked, self.batch)
            proj = self.proj if kind == "lstm" else 0
            widths = [proj or self.hidden, self.hidden] if kind == "lstm" else [self.hidden]
            leaves += [torch.randn(*rows, width, dtype=torch.float64) for width in widths]
        return [leaf.requires_grad_() for leaf in leaves]

    def run(self, kind: str, layer: nn.Module) -> dict[str, Tensor]:
        """Outputs, final states and every gradient, by name."""
        values, *state = leaves = self.leaves(kind)
        input: Any = values
        if self.form in ("sorted", "unsorted"):
            input = pack_padded_sequence(
                values, self.lengths(), batch_first=self.batch_first, enforce_sorted=self.form == "sorted"
            )
        before = None if not state else tuple(state) if kind == "lstm" else state[0]
        output, after = layer(input, before)
        packed = isinstance(output, PackedSequence)
        assert packed == isinstance(input, PackedSequence)
        results = {"output": output.data if packed else output}
        if packed:
            results["batch_sizes"] = output.batch_sizes
            if output.sorted_indices is not None:
                results["sorted_indices"] = output.sorted_indices
                results["unsorted_indices"] = output.unsorted_indices
        results |= {f"state {i}": part for i, part in enumerate(after if kind == "lstm" else [after])}
        wanted = leaves + list(layer.parameters())
        names = ["input", *(f"initial state {i}" for i in range(len(state)))]
        names += [name for name, _ in layer.named_parameters()]
        floats = [value for value in results.values() if value.is_floating_point()]
        gradients = torch.autograd.grad(score(floats), wanted)
        return results | {f"gradient of {name}": grad for name, grad in zip(names, gradients, strict=True)}


def score(tensors: list[Tensor]) -> Tensor:
    """A scalar loss: a sum of all entries with different weights."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        total = total + (tensor * torch.arange(1, 1 + tensor.numel(), dtype=tensor.dtype).cos().view_as(tensor)).sum()
    return total


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        torch.testing.assert_close(
            ours[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=lambda text, name=name: f"{name}: {text}"
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    form = draw(st.sampled_from(["batched", "unbatched", "sorted", "unsorted"]))
    hidden = draw(st.integers(1, 5))
    return Case(
        steps=draw(st.integers(1, 6)),
        batch=draw(st.integers(0 if form == "batched" else 1, 4)),  # torch packs no empty batch
        inputs=draw(st.integers(1, 4)),
        hidden=hidden,
        layers=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        bidirectional=draw(st.booleans()),
        proj=draw(st.integers(0, hidden - 1)),
        form=form,
        initial=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


FIXED = {
    "one step, one unit": Case(steps=1, batch=1, inputs=1, hidden=1),
    "no sequences": Case(batch=0, initial=True),
    "one sequence": Case(batch=1, bidirectional=True, initial=True),
    "long": Case(steps=60, batch=2, hidden=4, layers=2),
    "three layers, both ways, projected": Case(layers=3, bidirectional=True, proj=2, initial=True),
    "no bias, both ways": Case(bias=False, bidirectional=True, layers=2),
    "batch first with state": Case(batch_first=True, initial=True, layers=2),
    "unbatched with state": Case(form="unbatched", bidirectional=True, initial=True, proj=1),
    "unbatched, batch first": Case(form="unbatched", batch_first=True),
    "packed, sorted": Case(steps=5, batch=4, form="sorted", bidirectional=True, layers=2, initial=True),
    "packed, unsorted": Case(steps=5, batch=4, form="unsorted", bidirectional=True, layers=2, initial=True, proj=2),
    "packed, batch first": Case(steps=5, batch=4, form="unsorted", batch_first=True, initial=True),
}


@KINDS
@pytest.mark.parametrize("case", FIXED.values(), ids=FIXED)
def test_values_and_all_gradients_equal_torch_after_load_state_dict(kind: str, case: Case) -> None:
    theirs = case.torch_layer(kind)
    ours = PAIRS[kind][1](case.inputs, case.hidden, **case.keywords(kind), dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    assert_same(case.run(kind, ours), case.run(kind, theirs))


@KINDS
@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_values_and_all_gradients_equal_torch_at_any_size(kind: str, case: Case) -> None:
    theirs = case.torch_layer(kind)
    expected = case.run(kind, theirs)
    loaded = PAIRS[kind][1](case.inputs, case.hidden, **case.keywords(kind), dtype=torch.float64)
    loaded.load_state_dict(theirs.state_dict())
    assert_same(case.run(kind, loaded), expected)
    assert_same(case.run(kind, PAIRS[kind][1].from_torch(theirs)), expected)


@KINDS
@settings(deadline=None, max_examples=30)
@given(case=cases(), dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
def test_same_seed_gives_the_parameters_of_torch_by_name_order_and_value(
    kind: str, case: Case, dtype: torch.dtype
) -> None:
    theirs, ours = case.torch_layer(kind, dtype), case.our_layer(kind, dtype)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    for name, value in theirs.named_parameters():
        assert ours.get_parameter(name).dtype == dtype
        assert torch.equal(ours.get_parameter(name), value), name
    torch.manual_seed(case.seed)
    ours.reset_parameters()
    for name, value in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), value), f"{name} after reset_parameters"


@KINDS
def test_construction_takes_as_many_random_numbers_as_torch(kind: str) -> None:
    """A model around the layer starts at the same weights as one around torch's."""
    case = Case(layers=2, bidirectional=True)
    case.torch_layer(kind)
    expected = torch.rand(4)
    case.our_layer(kind)
    assert torch.equal(torch.rand(4), expected)


@KINDS
@pytest.mark.parametrize("case", FIXED.values(), ids=FIXED)
def test_all_weights_are_grouped_as_in_torch(kind: str, case: Case) -> None:
    theirs, ours = case.torch_layer(kind), case.our_layer(kind)
    assert len(ours.all_weights) == len(theirs.all_weights)
    for mine, yours in zip(ours.all_weights, theirs.all_weights, strict=True):
        assert [tuple(weight.shape) for weight in mine] == [tuple(weight.shape) for weight in yours]
        assert all(torch.equal(a, b) for a, b in zip(mine, yours, strict=True))


@KINDS
def test_state_dict_loads_into_torch_as_well(kind: str) -> None:
    case = Case(layers=2, bidirectional=True, initial=True)
    ours = case.our_layer(kind)
    theirs = PAIRS[kind][0](case.inputs, case.hidden, **case.keywords(kind), dtype=torch.float64)
    theirs.load_state_dict(ours.state_dict())
    assert_same(case.run(kind, ours), case.run(kind, theirs))


X = torch.zeros(3, 2, 2)
STATE = torch.zeros(1, 2, 3)
CALLS: dict[str, tuple[Any, Tensor | None]] = {
    "an ordinary call": (X, None),
    "a state to start from": (X, STATE),
    "no steps": (X[:0], None),
    "no steps, unbatched": (X[:0, 0], None),
    "no steps, no sequences": (X[:0, :0], None),
    "no sequences": (X[:, :0], None),
    "one dimension": (X[0, 0], None),
    "four dimensions": (X.unsqueeze(0), None),
    "too many features": (torch.zeros(3, 2, 5), None),
    "integers": (X.long(), None),
    "float64 for a float32 layer": (X.double(), None),
    "a state for more sequences": (X, torch.zeros(1, 4, 3)),
    "a state for more layers": (X, torch.zeros(2, 2, 3)),
    "a state of another width": (X, torch.zeros(1, 2, 5)),
    "a batched state for unbatched input": (X[:, 0], STATE[:, :1]),
    "an unbatched state for batched input": (X, STATE[:, 0]),
}


@KINDS
@pytest.mark.parametrize(("input", "state"), CALLS.values(), ids=CALLS)
def test_accepts_and_refuses_the_same_arguments_as_torch(kind: str, input: Tensor, state: Tensor | None) -> None:
    given_state = (state, state) if kind == "lstm" and state is not None else state

    def refused(layer: nn.Module) -> bool:
        try:
            layer(input, given_state)
        except (RuntimeError, ValueError, TypeError):
            return True
        return False

    assert refused(PAIRS[kind][1](2, 3)) == refused(PAIRS[kind][0](2, 3))


@KINDS
def test_no_steps_is_refused_with_a_sentence(kind: str) -> None:
    with pytest.raises(ValueError, match="at least one step"):
        PAIRS[kind][1](2, 3)(X[:0])


@KINDS
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_from_torch_keeps_mode_dtype_arguments_and_frozen_parameters(
    kind: str, training: bool, dtype: torch.dtype
) -> None:
    keywords: dict[str, Any] = {"num_layers": 2, "batch_first": True, "dropout": 0.25, "bidirectional": True}
    keywords |= {"proj_size": 2} if kind == "lstm" else {}
    theirs = PAIRS[kind][0](2, 3, **keywords, dtype=dtype).train(training)
    theirs.weight_hh_l0.requires_grad_(False)
    theirs.bias_ih_l1_reverse.requires_grad_(False)
    ours = PAIRS[kind][1].from_torch(theirs)
    assert isinstance(ours, PAIRS[kind][1])
    assert ours.training is training
    assert (ours.input_size, ours.hidden_size) == (2, 3)
    for name, value in keywords.items():
        assert getattr(ours, name) == value, name
    for name, parameter in theirs.named_parameters():
        mine = ours.get_parameter(name)
        assert mine.dtype == dtype
        assert mine.requires_grad is parameter.requires_grad, name
        assert torch.equal(mine, parameter)


@KINDS
@pytest.mark.parametrize(
    "device", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.gpu)], ids=["cpu", "meta", "cuda"]
)
def test_from_torch_keeps_the_device(kind: str, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    ours = PAIRS[kind][1].from_torch(PAIRS[kind][0](2, 3, device=device))
    assert {parameter.device.type for parameter in ours.parameters()} == {device}


@KINDS
def test_from_torch_copies_and_does_not_share(kind: str) -> None:
    theirs = PAIRS[kind][0](2, 3)
    ours = PAIRS[kind][1].from_torch(theirs)
    before = ours.weight_hh_l0.clone()
    with torch.no_grad():
        theirs.weight_hh_l0.zero_()
    assert torch.equal(ours.weight_hh_l0, before)


@KINDS
def test_from_torch_leaves_the_torch_layer_as_it_was(kind: str) -> None:
    theirs = PAIRS[kind][0](2, 3).eval()
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    PAIRS[kind][1].from_torch(theirs)
    assert not theirs.training
    assert all(torch.equal(value, before[name]) for name, value in theirs.state_dict().items())


WRONG = {
    "the other kind": None,
    "a plain RNN": nn.RNN(2, 3),
    "a cell": nn.LSTMCell(2, 3),
    "a linear layer": nn.Linear(2, 3),
    "our own layer": rm.LSTM(2, 3),
    "a name": "lstm",
}


@KINDS
@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_from_torch_refuses_anything_but_its_torch_layer(kind: str, given: Any) -> None:
    other = PAIRS["gru" if kind == "lstm" else "lstm"][0](2, 3)
    with pytest.raises(TypeError, match=rf"expected a torch\.nn\.{kind.upper()}, got"):
        PAIRS[kind][1].from_torch(other if given is None else given)


@KINDS
def test_from_torch_takes_further_keywords(kind: str) -> None:
    theirs = PAIRS[kind][0](2, 3, dtype=torch.float64)
    ours = PAIRS[kind][1].from_torch(theirs, gate="fast", weight_drop=0.5)
    assert ours.gate.name == "fast"
    assert ours.weight_drop == 0.5
    assert torch.equal(ours.weight_ih_l0, theirs.weight_ih_l0)


@KINDS
def test_dropout_between_layers_is_off_in_evaluation_as_in_torch(kind: str) -> None:
    theirs = PAIRS[kind][0](2, 3, num_layers=3, dropout=0.5, dtype=torch.float64).eval()
    ours = PAIRS[kind][1].from_torch(theirs)
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=TOLERANCE, atol=TOLERANCE)


@KINDS
def test_training_goes_the_same_way_as_in_torch(kind: str) -> None:
    """Ten steps of Adam from the same seed on the same data end at the same weights."""
    case = Case(layers=2, bidirectional=True)
    x = torch.randn(6, 4, 2, dtype=torch.float64)
    layers = [case.torch_layer(kind), case.our_layer(kind)]
    for layer in layers:
        optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
        for _ in range(10):
            optimiser.zero_grad()
            layer(x)[0].square().sum().backward()
            optimiser.step()
    # Adam divides by the gradient's size, so rounding in small gradients is magnified: wider than TOLERANCE.
    for (name, theirs), ours in zip(layers[0].named_parameters(), layers[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8, msg=name)


def test_reading_order_of_positional_arguments_is_that_of_torch() -> None:
    ours = rm.LSTM(2, 4, 2, False, True, 0.25, True, 3)
    theirs = nn.LSTM(2, 4, 2, False, True, 0.25, True, 3)
    for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert isinstance(ours.bias, bool)


@pytest.mark.parametrize("gate", ["sigmoid", "fast"])
def test_gru_does_not_project(gate: str) -> None:
    with pytest.raises(TypeError):
        rm.GRU(2, 4, proj_size=2, gate=gate)
