"""Frozen timescales do not change in training."""

import copy
import io
import pickle

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

import remanence as rm
from remanence.timescales import Chrono, Fixed, InverseGamma

UNITS = 3
VALUES = [2.0, 30.0, 400.0]

OPTIMIZERS = {
    "SGD with weight decay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam with weight decay": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1, lambd=0.01, t0=0, weight_decay=0.1),
}

LAYERS = {
    "LSTM": lambda freeze: rm.LSTM(2, UNITS, timescales=Fixed(VALUES, freeze=freeze)),
    "LSTM-coupled": lambda freeze: rm.LSTM(2, UNITS, input_gate="coupled", timescales=Fixed(VALUES, freeze=freeze)),
    "LSTM-fast": lambda freeze: rm.LSTM(2, UNITS, gate="fast", timescales=Fixed(VALUES, freeze=freeze)),
    "LSTM-refine": lambda freeze: rm.LSTM(2, UNITS, gate="refine", timescales=Fixed(VALUES, freeze=freeze)),
    "LSTM-ur": lambda freeze: rm.LSTM(2, UNITS, gate="ur", timescales=Fixed(VALUES, freeze=freeze)),
    "GRU": lambda freeze: rm.GRU(2, UNITS, timescales=Fixed(VALUES, freeze=freeze)),
    "JANET": lambda freeze: rm.JANET(2, UNITS, timescales=Fixed(VALUES, freeze=freeze)),
    "PhasedLSTM": lambda freeze: rm.PhasedLSTM(2, UNITS, timescales=Fixed(VALUES, freeze=freeze)),
}

FIXED_BLOCKS = {
    "LSTM": [0, 1],
    "LSTM-coupled": [0],
    "LSTM-fast": [0, 1],
    "LSTM-refine": [0, 1, 4],
    "LSTM-ur": [0, 1, 4],
    "GRU": [1],
    "JANET": [0],
    "PhasedLSTM": [0, 1],
}
"""Indices of the blocks of a bias vector that set the timescale: forget, input if there is one, refine."""

every_layer = pytest.mark.parametrize("kind", LAYERS)
either_freeze = pytest.mark.parametrize("freeze", [True, "all"], ids=["gate", "all"])


def build(kind, freeze):
    torch.manual_seed(1)
    return LAYERS[kind](freeze)


def biases(layer):
    return {name: p for name, p in layer.named_parameters() if name.startswith("bias")}


def is_fixed(kind, vector, freeze):
    """Which entries of a bias vector must not act."""
    fixed = torch.full(vector.shape, freeze == "all")
    for number in FIXED_BLOCKS[kind]:
        fixed[number * UNITS : (number + 1) * UNITS] = True
    return fixed


def loss(layer):
    x = torch.linspace(-1, 1, 7 * 4 * layer.input_size).reshape(7, 4, layer.input_size)
    return (layer(x)[0] - 0.3).square().mean()


def train(layer, optimizer, steps=3):
    optimizer = optimizer(layer.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        loss(layer).backward()
        optimizer.step()


@torch.no_grad()
def resting(layer):
    """Gate values of a copy that hears nothing: what the biases alone do."""
    deaf = copy.deepcopy(layer)
    for name, parameter in deaf.named_parameters():
        if name.startswith(("weight", "peephole")):
            parameter.zero_()
    return rm.record(deaf, torch.ones(1, 1, deaf.input_size))


@every_layer
@either_freeze
class TestFrozen:
    def test_fixed_entries_of_the_parameters_are_zero(self, kind, freeze):
        layer = build(kind, freeze)
        for name, vector in biases(layer).items():
            assert not vector[is_fixed(kind, vector, freeze)].any(), name

    def test_fixed_entries_of_the_parameters_have_a_gradient_of_exactly_zero(self, kind, freeze):
        layer = build(kind, freeze)
        loss(layer).backward()
        for name, vector in biases(layer).items():
            # None would be a parameter without a part in the loss, which distributed training refuses.
            assert vector.grad is not None, name
            assert not vector.grad[is_fixed(kind, vector, freeze)].any(), name

    def test_free_entries_of_the_parameters_have_a_gradient(self, kind, freeze):
        layer = build(kind, freeze)
        loss(layer).backward()
        for name, vector in biases(layer).items():
            free = ~is_fixed(kind, vector, freeze)
            assert bool(free.any()) == (freeze is True), name
            if free.any():
                assert vector.grad[free].all(), name

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_training_leaves_timescales_and_resting_gates_bitwise_as_they_were(self, kind, freeze, optimizer):
        layer = build(kind, freeze)
        timescales, gates = rm.timescales.of(layer), resting(layer)
        before = copy.deepcopy(layer.state_dict())
        train(layer, OPTIMIZERS[optimizer])

        assert torch.equal(rm.timescales.of(layer)[0], timescales[0])
        after = resting(layer)
        names = gates.keys() - {"opening"} if freeze == "all" and kind != "PhasedLSTM" else {"forget"}
        for name in names:
            assert torch.equal(after[name], gates[name]), name
        for name, vector in biases(layer).items():
            fixed = is_fixed(kind, vector, freeze)
            assert not vector[fixed].any(), name
            assert bool((vector != before[name])[~fixed].all()), name
        for name in ("weight_ih_l0", "weight_hh_l0"):
            assert bool((layer.state_dict()[name] != before[name]).any()), name

    def test_averaging_leaves_timescales_bitwise_as_they_were(self, kind, freeze):
        layer = build(kind, freeze)
        timescales, gates = rm.timescales.of(layer), resting(layer)
        averaged = AveragedModel(layer)
        for _ in range(3):
            train(layer, OPTIMIZERS["SGD with weight decay"], steps=1)
            averaged.update_parameters(layer)
        assert torch.equal(rm.timescales.of(averaged.module)[0], timescales[0])
        assert torch.equal(resting(averaged.module)["forget"], gates["forget"])
        assert not torch.equal(averaged.module.weight_hh_l0, layer.weight_hh_l0)

    def test_averaging_buffers_leaves_timescales_bitwise_as_they_were(self, kind, freeze):
        layer = build(kind, freeze)
        timescales = rm.timescales.of(layer)
        averaged = AveragedModel(layer, use_buffers=True)
        for _ in range(3):
            averaged.update_parameters(layer)
        assert torch.equal(rm.timescales.of(averaged.module)[0], timescales[0])

    def test_freezing_does_not_change_what_the_layer_computes(self, kind, freeze):
        frozen, free = build(kind, freeze), build(kind, False)
        x = torch.linspace(-1, 1, 40).reshape(5, 4, 2)
        assert torch.equal(frozen(x)[0], free(x)[0])
        assert torch.equal(rm.timescales.of(frozen)[0], rm.timescales.of(free)[0])

    def test_a_loaded_state_dict_brings_the_timescales(self, kind, freeze):
        layer = build(kind, freeze)
        train(layer, OPTIMIZERS["AdamW"])
        file = io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        other = LAYERS[kind](freeze)
        other.load_state_dict(torch.load(file, weights_only=True))
        x = torch.linspace(-1, 1, 40).reshape(5, 4, 2)
        assert torch.equal(other(x)[0], layer(x)[0])
        assert torch.equal(rm.timescales.of(other)[0], rm.timescales.of(layer)[0])

    @pytest.mark.parametrize(
        "duplicate", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["deepcopy", "pickle"]
    )
    def test_copies_are_frozen_at_the_same_timescales(self, kind, freeze, duplicate):
        layer = build(kind, freeze)
        timescales = rm.timescales.of(layer)
        other = duplicate(layer)
        train(other, OPTIMIZERS["SGD with weight decay"])
        assert torch.equal(rm.timescales.of(other)[0], timescales[0])
        assert not torch.equal(other.weight_hh_l0, layer.weight_hh_l0)

    def test_conversion_to_float64_keeps_the_timescales(self, kind, freeze):
        layer = build(kind, freeze)
        timescales = rm.timescales.of(layer)
        layer.to(torch.float64)
        assert {tensor.dtype for tensor in layer.state_dict().values()} == {torch.float64}
        assert torch.equal(rm.timescales.of(layer)[0], timescales[0])

    def test_reset_parameters_starts_again_at_the_timescales(self, kind, freeze):
        layer = build(kind, freeze)
        timescales, weights = rm.timescales.of(layer), layer.weight_hh_l0.detach().clone()
        train(layer, OPTIMIZERS["AdamW"])
        layer.reset_parameters()
        assert torch.equal(rm.timescales.of(layer)[0], timescales[0])
        assert not torch.equal(layer.weight_hh_l0, weights)
        for name, vector in biases(layer).items():
            assert not vector[is_fixed(kind, vector, freeze)].any(), name


def test_what_is_written_into_fixed_entries_has_no_effect():
    layer = build("LSTM", True)
    x = torch.linspace(-1, 1, 40).reshape(5, 4, 2)
    expected = layer(x)[0]
    with torch.no_grad():
        layer.bias_hh_l0[: 2 * UNITS] = 5.0
    assert torch.equal(layer(x)[0], expected)
    assert rm.timescales.of(layer)[0].tolist() == pytest.approx(VALUES, rel=1e-5)  # float32 bias


def test_unfrozen_timescales_move_in_training():
    layer = build("LSTM", False)
    before = rm.timescales.of(layer)[0]
    train(layer, OPTIMIZERS["SGD with weight decay"])
    assert bool((rm.timescales.of(layer)[0] != before).all())


def frozen_names(layer):
    return {name for name in layer.state_dict() if "frozen" in name}


def test_frozen_values_are_in_the_state_dict_and_are_not_parameters():
    layer = build("LSTM", True)
    assert frozen_names(layer) == {"frozen_bias_ih_l0", "frozen_bias_hh_l0"}
    assert not any("frozen" in name for name, _ in layer.named_parameters())
    assert frozen_names(build("JANET", True)) == {"frozen_bias_ih_l0"}
    assert frozen_names(build("LSTM", False)) == set()


def test_only_the_layers_that_ask_for_it_are_frozen():
    torch.manual_seed(2)
    layer = rm.LSTM(2, UNITS, 3, timescales=[Fixed(VALUES, freeze=True), Fixed(VALUES), None])
    before = rm.timescales.of(layer)
    train(layer, OPTIMIZERS["SGD with weight decay"])
    after = rm.timescales.of(layer)
    assert torch.equal(after[0], before[0])
    assert bool((after[1] != before[1]).all())
    assert bool((after[2] != before[2]).all())


def test_a_layer_given_as_none_within_fixed_is_not_frozen():
    torch.manual_seed(3)
    layer = rm.LSTM(2, UNITS, 2, timescales=Fixed([VALUES, None], freeze=True))
    before = rm.timescales.of(layer)
    train(layer, OPTIMIZERS["SGD with weight decay"])
    after = rm.timescales.of(layer)
    assert torch.equal(after[0], before[0])
    assert bool((after[1] != before[1]).all())


def test_both_directions_are_frozen():
    torch.manual_seed(4)
    layer = rm.LSTM(2, UNITS, bidirectional=True, timescales=Chrono(100, freeze=True))
    before = rm.timescales.of(layer)
    train(layer, OPTIMIZERS["AdamW"])
    assert all(torch.equal(a, b) for a, b in zip(rm.timescales.of(layer), before, strict=True))
    assert not torch.equal(before[0], before[1])


def test_frozen_chrono_draws_anew_on_reset_and_keeps_the_parameters_at_zero():
    torch.manual_seed(5)
    layer = rm.LSTM(2, UNITS, timescales=Chrono(100, freeze=True))
    before = rm.timescales.of(layer)[0]
    layer.reset_parameters()
    assert bool((rm.timescales.of(layer)[0] != before).all())
    assert not layer.bias_hh_l0[: 2 * UNITS].any()


def test_a_state_dict_brings_random_timescales_to_another_layer():
    layer, other = (rm.LSTM(2, UNITS, timescales=Chrono(100, freeze=True)) for _ in range(2))
    assert not torch.equal(rm.timescales.of(layer)[0], rm.timescales.of(other)[0])
    other.load_state_dict(layer.state_dict())
    assert torch.equal(rm.timescales.of(layer)[0], rm.timescales.of(other)[0])


class TestMultiTimescaleModel:
    @pytest.fixture
    def layer(self):
        torch.manual_seed(6)
        return rm.make("mts", 8, 6)

    def test_first_layer_has_timescales_three_and_four(self, layer):
        # float32 biases, as in the other layers
        assert rm.timescales.of(layer)[0].tolist() == pytest.approx([3.0] * 3 + [4.0] * 3, rel=1e-6)

    def test_second_layer_has_the_quantiles_of_an_inverse_gamma_distribution(self, layer):
        assert torch.allclose(rm.timescales.of(layer)[1], InverseGamma(0.56).timescales(6), rtol=1e-5)

    def test_third_layer_starts_as_torch_s(self, layer):
        torch.manual_seed(6)
        plain = rm.LSTM(8, 6, 3)
        assert torch.equal(layer.bias_ih_l2, plain.bias_ih_l2)
        assert torch.equal(layer.bias_hh_l2, plain.bias_hh_l2)

    def test_training_moves_only_the_third_layer_s_timescales(self, layer):
        before = rm.timescales.of(layer)
        weights = [weight.detach().clone() for weight in (layer.weight_hh_l0, layer.weight_hh_l1)]
        train(layer, OPTIMIZERS["ASGD"])
        after = rm.timescales.of(layer)
        assert torch.equal(after[0], before[0])
        assert torch.equal(after[1], before[1])
        assert bool((after[2] != before[2]).all())
        assert not torch.equal(layer.weight_hh_l0, weights[0])
        assert not torch.equal(layer.weight_hh_l1, weights[1])

    def test_freeze_all_fixes_every_bias_of_the_first_two_layers(self):
        layer = rm.make("mts", 8, 6, freeze="all")
        before = resting(layer)
        train(layer, OPTIMIZERS["ASGD"])
        after = resting(layer)
        for number in (0, 1):
            for name in ("forget", "input", "candidate", "output"):
                assert torch.equal(after[number][name], before[number][name]), (number, name)

    def test_freeze_false_lets_them_train(self):
        layer = rm.make("mts", 8, 6, freeze=False)
        before = rm.timescales.of(layer)
        train(layer, OPTIMIZERS["ASGD"])
        assert all(bool((a != b).any()) for a, b in zip(rm.timescales.of(layer), before, strict=True))
