"""Timescales measured on a layer: from its biases, and from its forget values on data."""

import math

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import remanence as rm
from remanence.timescales import Fixed

GATES = ["sigmoid", "fast", "softsign", "refine", "ur"]
LAYERS = {"LSTM": rm.LSTM, "GRU": rm.GRU, "JANET": rm.JANET, "PhasedLSTM": rm.PhasedLSTM}
MEANS = ["arithmetic", "geometric"]


def random_input(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_of(kind=rm.LSTM, seed=2, **keywords):
    torch.manual_seed(seed)
    return kind(3, 4, dtype=torch.float64, **keywords)


def deaf(layer):
    """The layer with all weights but its biases zero."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith(("weight", "peephole")):
                parameter.zero_()
    return layer


def by_hand(forget, mean):
    """-1/log of the mean over all rows of `(N, H)`."""
    if mean == "arithmetic":
        return -1 / forget.mean(0).log()
    return -1 / forget.log().mean(0)


class TestOf:
    @pytest.mark.parametrize("kind", LAYERS)
    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize(("layers", "directions"), [(1, 1), (3, 1), (1, 2), (2, 2)])
    def test_one_float64_vector_per_layer_and_direction(self, kind, gate, layers, directions):
        layer = LAYERS[kind](3, 4, layers, bidirectional=directions == 2, gate=gate)
        found = rm.timescales.of(layer)
        assert isinstance(found, list)
        assert [tuple(values.shape) for values in found] == [(4,)] * (layers * directions)
        assert {values.dtype for values in found} == {torch.float64}
        assert not any(values.requires_grad for values in found)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
    def test_float64_whatever_the_dtype_of_the_layer(self, dtype):
        (found,) = rm.timescales.of(rm.LSTM(3, 4, timescales=Fixed(1.0), dtype=dtype))
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([1.0] * 4, rel=4e-3)  # bfloat16 stores the bias, -0.54, to 8 bits

    @pytest.mark.parametrize("mean", MEANS)
    def test_a_unit_that_forgets_nothing_has_an_infinite_timescale(self, mean):
        layer = layer_of(forget_bias=1e4)
        assert rm.timescales.of(layer)[0].tolist() == [math.inf] * 4
        assert rm.timescales.estimate(layer, random_input(5, 2, 3), mean=mean)[0].tolist() == [math.inf] * 4

    def test_a_layer_without_biases_has_the_timescale_of_bias_zero(self):
        (found,) = rm.timescales.of(rm.LSTM(3, 4, bias=False))
        assert found.tolist() == pytest.approx([1.4426950408889634] * 4, rel=1e-12)  # 1/log 2

    def test_refine_counts_the_bias_of_its_second_gate(self):
        layer = rm.LSTM(3, 1, gate="refine", dtype=torch.float64)
        with torch.no_grad():
            layer.bias_ih_l0.zero_()
            layer.bias_hh_l0.copy_(torch.tensor([0.0, 2.0, 0.0, 0.0, 3.0]))
        f, r = torch.sigmoid(torch.tensor([2.0, 3.0], dtype=torch.float64))
        expected = -1 / torch.log(r * (1 - (1 - f) ** 2) + (1 - r) * f**2)
        assert float(rm.timescales.of(layer)[0]) == pytest.approx(float(expected), rel=1e-12)

    @pytest.mark.parametrize(
        "kind", [rm.PowerLawLSTM, lambda i, h: rm.GRU(i, h, gate="power_law")], ids=["lstm", "gru"]
    )
    def test_power_law_refuses_in_one_sentence(self, kind):
        with pytest.raises(ValueError, match=r"^expected .* got power_law, which has no bias timescale") as caught:
            rm.timescales.of(kind(3, 4))
        assert "\n" not in str(caught.value)

    def test_nru_refuses_in_one_sentence(self):
        with pytest.raises(ValueError, match=r"^expected a layer with a forget gate, got NRU, which has none$"):
            rm.timescales.of(rm.NRU(3, 4))

    def test_a_torch_layer_is_refused_with_the_way_to_convert_it(self):
        with pytest.raises(
            TypeError, match=r"^expected a recurrent layer of remanence, got torch\S+LSTM; .*from_torch"
        ):
            rm.timescales.of(torch.nn.LSTM(3, 4))


class TestEstimate:
    @pytest.mark.parametrize("mean", MEANS)
    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize("kind", LAYERS)
    def test_is_the_mean_of_the_recorded_forget_values(self, kind, gate, mean):
        layer = layer_of(LAYERS[kind], gate=gate).eval()
        x = random_input(6, 5, 3)
        (found,) = rm.timescales.estimate(layer, x, mean=mean)
        expected = by_hand(rm.record(layer, x)["forget"].reshape(-1, 4), mean)
        assert found.dtype == torch.float64
        assert not found.requires_grad
        assert torch.allclose(found, expected, rtol=1e-10)  # float64; 1 - f and f differ in their last digits

    @pytest.mark.parametrize("mean", MEANS)
    def test_power_law_can_be_measured(self, mean):
        layer = layer_of(rm.PowerLawLSTM)
        x, dt = random_input(6, 5, 3), random_input(6, 5).abs()
        (found,) = rm.timescales.estimate(layer, [(x, dt)], mean=mean)
        expected = by_hand(rm.record(layer, x, dt=dt)["forget"].reshape(-1, 4), mean)
        assert torch.allclose(found, expected, rtol=1e-10)

    @pytest.mark.parametrize("mean", MEANS)
    def test_mean_is_over_all_batches_weighted_by_their_steps(self, mean):
        layer = layer_of()
        batches = [random_input(6, 5, 3), random_input(2, 1, 3, seed=3)]
        (found,) = rm.timescales.estimate(layer, iter(batches), mean=mean)
        forget = torch.cat([rm.record(layer, x)["forget"].reshape(-1, 4) for x in batches])
        assert torch.allclose(found, by_hand(forget, mean), rtol=1e-10)

    def test_arithmetic_is_the_default(self):
        layer, x = layer_of(), random_input(6, 5, 3)
        assert torch.equal(rm.timescales.estimate(layer, x)[0], rm.timescales.estimate(layer, x, mean="arithmetic")[0])
        assert not torch.allclose(
            rm.timescales.estimate(layer, x)[0], rm.timescales.estimate(layer, x, mean="geometric")[0]
        )

    def test_layers_and_directions_come_in_the_order_of_the_state(self):
        layer, x = layer_of(num_layers=2, bidirectional=True), random_input(6, 5, 3)
        found = rm.timescales.estimate(layer, x)
        records = rm.record(layer, x)
        assert len(found) == 4
        for values, seen in zip(found, records, strict=True):
            assert torch.allclose(values, by_hand(seen["forget"].reshape(-1, 4), "arithmetic"), rtol=1e-10)

    def test_pairs_bring_their_time_steps(self):
        layer, x = layer_of(rm.PowerLawLSTM), random_input(6, 5, 3)
        dt = torch.full((6, 5), 3.0)
        (slow,) = rm.timescales.estimate(layer, [(x, dt)])
        (unit,) = rm.timescales.estimate(layer, [(x, None)])
        assert torch.equal(unit, rm.timescales.estimate(layer, [x])[0])
        assert not torch.allclose(slow, unit)

    @pytest.mark.parametrize("mean", MEANS)
    def test_only_real_steps_of_packed_input_count(self, mean):
        layer = layer_of()
        sequences = [random_input(length, 3, seed=length) for length in (2, 7, 4)]
        (found,) = rm.timescales.estimate(layer, pack_sequence(sequences, enforce_sorted=False), mean=mean)
        forget = torch.cat([rm.record(layer, sequence)["forget"].squeeze(1) for sequence in sequences])
        assert torch.allclose(found, by_hand(forget, mean), rtol=1e-10)

    def test_batch_first_and_unbatched_input_are_taken(self):
        x = random_input(6, 5, 3)
        expected = rm.timescales.estimate(layer_of(), x)[0]
        first = rm.timescales.estimate(layer_of(batch_first=True), x.transpose(0, 1))[0]
        unbatched = rm.timescales.estimate(layer_of(), [x[:, b] for b in range(5)])[0]
        assert torch.allclose(first, expected, rtol=1e-12)
        assert torch.allclose(unbatched, expected, rtol=1e-12)

    def test_carried_state_makes_two_halves_one_sequence(self):
        layer, x = layer_of(), random_input(6, 5, 3)
        whole = rm.timescales.estimate(layer, x)[0]
        carried = rm.timescales.estimate(layer, [x[:2], x[2:]], carry_state=True)[0]
        anew = rm.timescales.estimate(layer, [x[:2], x[2:]])[0]
        assert torch.allclose(carried, whole, rtol=1e-12)
        assert not torch.allclose(anew, whole, rtol=1e-6)

    @pytest.mark.parametrize("training", [True, False])
    def test_mode_is_left_as_it_was_and_dropout_is_off(self, training):
        layer = layer_of(num_layers=2, dropout=0.5, weight_drop=0.5).train(training)
        x, random_state = random_input(6, 5, 3), torch.get_rng_state()
        first, second = (rm.timescales.estimate(layer, x) for _ in range(2))
        assert layer.training is training
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert torch.equal(torch.get_rng_state(), random_state)

    def test_mode_is_left_as_it_was_after_an_error(self):
        layer = layer_of().train()
        with pytest.raises(ValueError, match="features"):
            rm.timescales.estimate(layer, [random_input(6, 5, 2)])
        assert layer.training

    @pytest.mark.parametrize("mean", MEANS)
    @pytest.mark.parametrize("gate", GATES)
    @pytest.mark.parametrize("kind", LAYERS)
    def test_equals_the_bias_timescale_when_all_weights_are_zero(self, kind, gate, mean):
        layer = deaf(layer_of(LAYERS[kind], gate=gate, timescales=Fixed([0.5, 3.0, 40.0, 5000.0])))
        (found,) = rm.timescales.estimate(layer, random_input(6, 5, 3), mean=mean)
        assert torch.allclose(found, rm.timescales.of(layer)[0], rtol=1e-9)  # 12 digits of 1 - f at T = 5000

    @pytest.mark.parametrize("mean", MEANS)
    @pytest.mark.parametrize("gate", ["sigmoid", "fast"])
    @pytest.mark.parametrize("timescale", [1e6, 3e6, 1e7], ids="T={:g}".format)
    def test_long_timescales_are_measured_in_float32(self, gate, mean, timescale):
        layer = deaf(rm.LSTM(3, 2, gate=gate, timescales=Fixed(timescale)))
        (found,) = rm.timescales.estimate(layer, torch.randn(50, 4, 3), mean=mean)
        # f itself rounds to one, or to 1 - 6e-8 (T = 1.7e7); 1 - f has 24 bits.
        assert found.tolist() == pytest.approx([timescale] * 2, rel=1e-3)

    @pytest.mark.parametrize("mean", MEANS)
    @pytest.mark.parametrize("gate", ["sigmoid", "fast"])
    @pytest.mark.parametrize("timescale", [0.02, 0.05, 0.2], ids="T={:g}".format)
    def test_short_timescales_are_measured_in_float32(self, gate, mean, timescale):
        layer = deaf(rm.LSTM(3, 2, gate=gate, timescales=Fixed(timescale)))
        (found,) = rm.timescales.estimate(layer, torch.randn(50, 4, 3), mean=mean)
        # f = exp(-1/T) is 2e-22 at T = 0.02: float32 has it to 24 bits, but 1 - f rounds to one.
        assert found.tolist() == pytest.approx([timescale] * 2, rel=1e-3)

    def test_one_closed_gate_does_not_ruin_the_geometric_mean(self):
        layer = deaf(rm.LSTM(1, 1, gate="fast", forget_bias=0.0))
        with torch.no_grad():
            layer.weight_ih_l0[1] = 1.0
        x = torch.tensor([2.0, 2.0, 2.0, -5.0]).reshape(4, 1, 1)  # sigmoid(sinh(-5)) = 6e-33, a float32 number
        (found,) = rm.timescales.estimate(layer, x, mean="geometric")
        log_forget = -torch.nn.functional.softplus(-torch.sinh(x.double().flatten()))
        assert float(found) == pytest.approx(float(-1 / log_forget.mean()), rel=1e-5)

    @pytest.mark.parametrize("batches", [[], (), iter(())], ids=["list", "tuple", "iterator"])
    def test_nothing_to_measure_is_refused(self, batches):
        with pytest.raises(ValueError, match=r"^expected at least one batch with at least one step, got none$"):
            rm.timescales.estimate(layer_of(), batches)

    def test_unknown_mean_is_refused(self):
        with pytest.raises(ValueError, match=r"^expected mean to be 'arithmetic' or 'geometric', got 'harmonic'$"):
            rm.timescales.estimate(layer_of(), random_input(6, 5, 3), mean="harmonic")

    def test_nru_is_refused(self):
        with pytest.raises(ValueError, match=r"^expected a layer with a forget gate, got NRU, which has none$"):
            rm.timescales.estimate(rm.NRU(3, 4), torch.zeros(2, 1, 3))
