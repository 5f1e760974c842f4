"""Initial timescales of a layer."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import remanence as rm
from remanence.timescales import Chrono, Fixed, InverseGamma, Uniform

GATES = ["sigmoid", "fast", "softsign", "refine", "ur"]
LAYERS = {"LSTM": rm.LSTM, "GRU": rm.GRU, "JANET": rm.JANET, "PhasedLSTM": rm.PhasedLSTM}
LSTM_BLOCKS = ("input", "forget", "candidate", "output")

# A bias stored in float32 is off by 6e-8 of itself. log T moves with the logit at most one to one, and the logit of the
# steepest gate (fast, T = 1e6: logit 13.8 at bias 3.3) moves fourteen times as fast as its bias: below 4e-6 in all.
FLOAT32_BIAS = 1e-5


def block(vector, name, units, names=LSTM_BLOCKS):
    """Entries of one gate in a bias vector."""
    start = names.index(name) * units
    return vector.detach()[start : start + units].double()


def logit_of(timescale):
    """logit(exp(-1/T)), the plain formula in float64."""
    timescale = torch.as_tensor(timescale, dtype=torch.float64)
    return -torch.log(torch.expm1(1 / timescale))


class TestChrono:
    @pytest.fixture
    def layer(self):
        torch.manual_seed(1)
        return rm.LSTM(2, 256, timescales=Chrono(784))

    def test_forget_bias_lies_between_zero_and_log_of_t_max_minus_one(self, layer):
        bias = block(layer.bias_hh_l0, "forget", 256)
        assert bias.min() >= 0
        assert bias.max() <= math.log(783) + 1e-6  # one float32 rounding of 6.66
        assert bias.max() > math.log(700)

    def test_exponential_of_the_forget_bias_is_uniform(self, layer):
        drawn = block(layer.bias_hh_l0, "forget", 256).exp().numpy()
        # The seed is fixed; a wrong distribution (log-uniform, say) has p below 1e-50.
        assert stats.kstest(drawn, stats.uniform(1, 782).cdf).pvalue > 0.01

    def test_timescales_are_one_over_log_of_one_plus_one_over_u(self, layer):
        drawn = block(layer.bias_hh_l0, "forget", 256).exp()
        (timescales,) = rm.timescales.of(layer)
        assert torch.allclose(timescales, 1 / torch.log1p(1 / drawn), rtol=1e-9)
        assert timescales.min() >= 1.4
        assert timescales.max() <= 783.5

    def test_input_bias_is_minus_forget_bias(self, layer):
        assert torch.equal(
            block(layer.bias_hh_l0, "input", 256),
            -block(layer.bias_hh_l0, "forget", 256),
        )

    def test_values_are_in_bias_hh_and_all_other_biases_are_zero(self, layer):
        assert not layer.bias_ih_l0.any()
        assert not block(layer.bias_hh_l0, "candidate", 256).any()
        assert not block(layer.bias_hh_l0, "output", 256).any()
        assert block(layer.bias_hh_l0, "forget", 256).all()

    def test_weights_are_those_of_a_layer_without_chrono(self, layer):
        torch.manual_seed(1)
        plain = rm.LSTM(2, 256)
        assert torch.equal(layer.weight_ih_l0, plain.weight_ih_l0)
        assert torch.equal(layer.weight_hh_l0, plain.weight_hh_l0)

    def test_biases_can_be_trained(self, layer):
        layer(torch.randn(3, 2, 2))[0].sum().backward()
        assert block(layer.bias_hh_l0.grad, "forget", 256).any()

    def test_other_biases_of_a_gru_are_zero(self):
        layer = rm.GRU(2, 16, timescales=Chrono(50))
        names = ("candidate_reset", "forget", "candidate")
        assert not layer.bias_ih_l0.any()
        assert not block(layer.bias_hh_l0, "candidate_reset", 16, names).any()
        assert not block(layer.bias_hh_l0, "candidate", 16, names).any()
        assert block(layer.bias_hh_l0, "forget", 16, names).all()

    def test_janet_draws_up_to_t_max_into_its_single_bias(self):
        torch.manual_seed(2)
        layer = rm.JANET(2, 256, t_max=100)
        drawn = layer.bias_ih_l0.detach()[:256].double().exp().numpy()
        assert stats.kstest(drawn, stats.uniform(1, 99).cdf).pvalue > 0.01  # fixed seed
        assert drawn.max() > 99
        assert not layer.bias_ih_l0[256:].any()
        assert not hasattr(layer, "bias_hh_l0")

    def test_every_layer_and_direction_has_its_own_draw(self):
        layer = rm.LSTM(2, 8, 2, bidirectional=True, timescales=Chrono(100))
        draws = [tuple(values.tolist()) for values in rm.timescales.of(layer)]
        assert len(set(draws)) == 4

    def test_the_seed_decides(self):
        def drawn(seed):
            torch.manual_seed(seed)
            return rm.timescales.of(rm.LSTM(2, 8, timescales=Chrono(100)))[0]

        assert torch.equal(drawn(3), drawn(3))
        assert not torch.equal(drawn(3), drawn(4))

    def test_smallest_t_max_gives_forget_bias_zero(self):
        layer = rm.LSTM(2, 4, timescales=Chrono(2))
        assert not layer.bias_hh_l0.any()


class TestUniform:
    @pytest.mark.parametrize("units", [2, 3, 10, 128])
    def test_forget_values_lie_within_one_unit_of_zero_and_one(self, units):
        (timescales,) = rm.timescales.of(rm.LSTM(2, units, timescales=Uniform()))
        forget = torch.exp(-1 / timescales)
        assert forget.min() >= 1 / units - 1e-6  # float32 bias
        assert forget.max() <= 1 - 1 / units + 1e-6

    def test_forget_values_are_uniform(self):
        torch.manual_seed(3)
        forget = torch.sigmoid(Uniform().logits(20_000, 0, 1)).numpy()
        margin = 1 / 20_000
        assert stats.kstest(forget, stats.uniform(margin, 1 - 2 * margin).cdf).pvalue > 0.01  # fixed seed

    def test_a_layer_draws_uniform_forget_values(self):
        torch.manual_seed(4)
        (timescales,) = rm.timescales.of(rm.JANET(2, 400, timescales=Uniform()))
        forget = torch.exp(-1 / timescales).numpy()
        assert stats.kstest(forget, stats.uniform(1 / 400, 1 - 2 / 400).cdf).pvalue > 0.01  # fixed seed

    def test_one_unit_forgets_half(self):
        (timescales,) = rm.timescales.of(rm.LSTM(2, 1, timescales=Uniform()))
        assert timescales.tolist() == pytest.approx([1 / math.log(2)], rel=FLOAT32_BIAS)


class TestInverseGamma:
    """Layer 2 of the multi-timescale language model: 1150 units, alpha 0.56."""

    @pytest.fixture
    def timescales(self):
        return InverseGamma(0.56).timescales(1150)

    def test_all_but_the_last_are_the_quantiles_of_the_published_code(self, timescales):
        expected = stats.invgamma.isf(np.linspace(0, 1, 1151), a=0.56)[1:]
        # Two algorithms for one function, both good to about 1e-12.
        assert timescales[:-1].numpy() == pytest.approx(expected[:-1], rel=1e-9)

    def test_the_last_unit_takes_the_quantile_half_a_unit_from_the_end(self, timescales):
        assert float(timescales[-1]) == pytest.approx(stats.invgamma.isf(1 - 1 / 2302, a=0.56), rel=1e-9)

    def test_published_figures(self, timescales):
        assert float(timescales[0]) == pytest.approx(359_932, abs=0.5)
        assert float(timescales[-2]) == pytest.approx(0.17, abs=0.005)
        assert float((timescales < 20).double().mean()) == pytest.approx(0.794, abs=5e-4)
        assert int((timescales > 1000).sum()) == 26
        assert float(timescales.quantile(0.5)) == pytest.approx(3.57, abs=5e-3)

    def test_sorted_long_to_short(self, timescales):
        assert bool((timescales.diff() < 0).all())

    def test_means_of_groups_of_100_are_the_legend_of_the_figures(self, timescales):
        means = [float(group.mean()) for group in timescales.split(100)]
        assert means[0] == pytest.approx(6730, abs=0.5)
        # The rest are printed to one decimal.
        assert means[1:] == pytest.approx([50.6, 18.7, 9.8, 6.0, 4.0, 2.7, 1.9, 1.4, 1.0, 0.6, 0.3], abs=0.0501)

    def test_means_of_groups_of_50_are_the_labels_of_the_routing_figure(self, timescales):
        means = [float(group.mean()) for group in timescales.split(50)]
        assert means[:2] == pytest.approx([13285, 175], abs=0.501)
        # The rest are printed to one decimal.
        assert means[2:12] == pytest.approx([65.9, 35.3, 22.2, 15.3, 11.1, 8.5, 6.6, 5.3, 4.3, 3.6], abs=0.0501)
        assert means[12:] == pytest.approx([3.0, 2.5, 2.1, 1.8, 1.5, 1.3, 1.1, 0.9, 0.7, 0.5, 0.3], abs=0.0501)

    def test_first_units_of_the_groups_of_50_are_the_labels_of_the_published_code(self, timescales):
        assert timescales[[50, 100]].tolist() == pytest.approx([320.7, 94.2], abs=0.05)

    @pytest.mark.parametrize("gate", GATES)
    def test_biases_of_a_layer_are_finite_and_give_these_timescales(self, timescales, gate):
        layer = rm.JANET(1, 1150, gate=gate, timescales=InverseGamma(0.56))
        assert bool(layer.bias_ih_l0.isfinite().all())
        (found,) = rm.timescales.of(layer)
        assert torch.allclose(found, timescales, rtol=FLOAT32_BIAS)

    def test_input_and_forget_biases_of_the_lstm_are_finite_and_opposite(self):
        layer = rm.LSTM(1, 100, timescales=InverseGamma(0.56))
        forget = block(layer.bias_hh_l0, "forget", 100)
        assert bool(forget.isfinite().all())
        assert torch.equal(block(layer.bias_hh_l0, "input", 100), -forget)

    @pytest.mark.parametrize("units", [1, 2, 3, 7])
    def test_few_units_have_finite_positive_timescales(self, units):
        timescales = InverseGamma(0.56).timescales(units)
        assert timescales.shape == (units,)
        assert bool((timescales.isfinite() & (timescales > 0)).all())

    def test_scale_multiplies_the_timescales(self):
        assert torch.allclose(
            InverseGamma(1.5, scale=7.0).timescales(20), 7 * InverseGamma(1.5).timescales(20), rtol=1e-9
        )

    def test_nothing_is_random(self):
        before = torch.get_rng_state()
        assert torch.equal(InverseGamma(0.7).timescales(9), InverseGamma(0.7).timescales(9))
        assert torch.equal(torch.get_rng_state(), before)

    def test_together_the_units_decay_as_a_power_law(self):
        units = InverseGamma(0.56).timescales(100_000)
        for steps in (1, 10, 100):
            # The mean over 100,000 quantiles stands for the integral; its error is of the order of one quantile.
            assert float(torch.exp(-steps / units).mean()) == pytest.approx((steps + 1) ** -0.56, abs=2e-5)


class TestFixed:
    def of(self, values, layers=1, units=3):
        return [t.tolist() for t in rm.timescales.of(rm.LSTM(2, units, layers, timescales=Fixed(values)))]

    @pytest.mark.parametrize(
        "values",
        [[3.0, 40.0, 500.0], (3.0, 40.0, 500.0), [3, 40, 500], torch.tensor([3.0, 40.0, 500.0])],
        ids=["list", "tuple", "integers", "tensor"],
    )
    def test_one_timescale_per_unit(self, values):
        assert self.of(values) == [pytest.approx([3.0, 40.0, 500.0], rel=FLOAT32_BIAS)]

    @pytest.mark.parametrize("value", [20.0, 20, torch.tensor(20.0), [20.0]], ids=["float", "int", "tensor", "list"])
    def test_one_number_for_all_units(self, value):
        assert self.of(value) == [pytest.approx([20.0] * 3, rel=FLOAT32_BIAS)]

    def test_one_number_for_all_layers(self):
        assert self.of(20.0, layers=2) == [pytest.approx([20.0] * 3, rel=FLOAT32_BIAS)] * 2

    def test_a_list_per_layer(self):
        assert self.of([[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]], layers=2) == [
            pytest.approx([3.0, 4.0, 5.0], rel=FLOAT32_BIAS),
            pytest.approx([6.0, 7.0, 8.0], rel=FLOAT32_BIAS),
        ]

    def test_a_tensor_with_one_row_per_layer(self):
        assert self.of(torch.tensor([[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]), layers=2) == [
            pytest.approx([3.0, 4.0, 5.0], rel=FLOAT32_BIAS),
            pytest.approx([6.0, 7.0, 8.0], rel=FLOAT32_BIAS),
        ]

    def test_a_number_for_one_layer_and_a_list_for_another(self):
        assert self.of([9.0, [6.0, 7.0, 8.0]], layers=2) == [
            pytest.approx([9.0] * 3, rel=FLOAT32_BIAS),
            pytest.approx([6.0, 7.0, 8.0], rel=FLOAT32_BIAS),
        ]

    def test_none_leaves_a_layer_as_it_is(self):
        torch.manual_seed(5)
        plain = rm.LSTM(2, 3, 3)
        torch.manual_seed(5)
        layer = rm.LSTM(2, 3, 3, timescales=Fixed([[3.0, 4.0, 5.0], None, 50.0]))
        found = rm.timescales.of(layer)
        assert found[0].tolist() == pytest.approx([3.0, 4.0, 5.0], rel=FLOAT32_BIAS)
        assert found[2].tolist() == pytest.approx([50.0] * 3, rel=FLOAT32_BIAS)
        assert torch.equal(layer.bias_ih_l1, plain.bias_ih_l1)
        assert torch.equal(layer.bias_hh_l1, plain.bias_hh_l1)

    def test_other_biases_keep_torch_s_initialisation(self):
        torch.manual_seed(6)
        plain = rm.LSTM(2, 3)
        torch.manual_seed(6)
        layer = rm.LSTM(2, 3, timescales=Fixed(50.0))
        for name in ("candidate", "output"):
            assert torch.equal(block(layer.bias_ih_l0, name, 3), block(plain.bias_ih_l0, name, 3))
            assert torch.equal(block(layer.bias_hh_l0, name, 3), block(plain.bias_hh_l0, name, 3))
        for name in ("input", "forget"):
            assert not block(layer.bias_ih_l0, name, 3).any()


def test_a_list_of_objects_gives_each_layer_its_own():
    torch.manual_seed(7)
    layer = rm.LSTM(2, 50, 3, timescales=[Fixed(5.0), None, Chrono(100)])
    first, second, third = rm.timescales.of(layer)
    assert first.tolist() == pytest.approx([5.0] * 50, rel=FLOAT32_BIAS)
    assert second.max() < 3  # torch's own: |b| <= 2 / sqrt(50), so T <= 1/log(1 + e^-0.283) = 1.78
    assert third.min() >= 1.4
    assert third.max() > 50


ASSIGNED = [0.2, 1.0, 3.0, 80.0, 1e6]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("gate", GATES)
class TestEveryGateInEveryLayer:
    def test_timescales_are_those_assigned(self, kind, gate):
        layer = LAYERS[kind](2, 5, gate=gate, timescales=Fixed(ASSIGNED))
        (found,) = rm.timescales.of(layer)
        assert found.tolist() == pytest.approx(ASSIGNED, rel=FLOAT32_BIAS)

    def test_timescales_are_exact_in_float64(self, kind, gate):
        layer = LAYERS[kind](2, 5, gate=gate, timescales=Fixed(ASSIGNED), dtype=torch.float64)
        (found,) = rm.timescales.of(layer)
        assert found.tolist() == pytest.approx(ASSIGNED, rel=1e-12)  # a few of 16 digits lost at T = 1e6

    def test_layers_and_directions_come_in_the_order_of_the_state(self, kind, gate):
        assigned = [[1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 30.0, 40.0, 50.0]]
        layer = LAYERS[kind](2, 5, 2, bidirectional=True, gate=gate, timescales=Fixed(assigned))
        found = [values.tolist() for values in rm.timescales.of(layer)]
        first, second = (pytest.approx(values, rel=FLOAT32_BIAS) for values in assigned)
        assert found == [first, first, second, second]


@pytest.mark.parametrize("kind", ["LSTM", "PhasedLSTM"])
@pytest.mark.parametrize("gate", GATES)
def test_input_bias_is_minus_the_logit_of_the_forget_value(kind, gate):
    layer = LAYERS[kind](2, 5, gate=gate, timescales=Fixed(ASSIGNED))
    found = block(layer.bias_hh_l0, "input", 5)
    assert not block(layer.bias_ih_l0, "input", 5).any()
    assert torch.allclose(found, -logit_of(ASSIGNED), rtol=1e-6)  # one float32 rounding


@pytest.mark.parametrize("gate", GATES)
def test_a_unit_without_input_keeps_exp_of_minus_one_over_t_a_step(gate):
    layer = rm.LSTM(2, 4, gate=gate, timescales=Fixed([0.5, 3.0, 40.0, 5000.0]), dtype=torch.float64)
    with torch.no_grad():
        layer.weight_ih_l0.zero_()
        layer.weight_hh_l0.zero_()
    forget = rm.record(layer, torch.ones(1, 1, 2, dtype=torch.float64))["forget"].flatten()
    assert torch.allclose(forget, torch.exp(-1 / torch.tensor([0.5, 3.0, 40.0, 5000.0]).double()), rtol=1e-12)


def test_of_tells_the_directions_apart():
    layer = rm.LSTM(2, 2, 2, bidirectional=True)
    suffixes = ["l0", "l0_reverse", "l1", "l1_reverse"]
    with torch.no_grad():
        for place, suffix in enumerate(suffixes):
            getattr(layer, f"bias_ih_{suffix}").zero_()
            getattr(layer, f"bias_hh_{suffix}").zero_()[2:4] = float(place)
    found = [values.tolist() for values in rm.timescales.of(layer)]
    assert found == [pytest.approx([1 / math.log1p(math.exp(-place))] * 2, rel=1e-9) for place in range(4)]


def test_of_adds_up_the_two_bias_vectors():
    layer = rm.LSTM(2, 2)
    with torch.no_grad():
        layer.bias_ih_l0.fill_(0.5)
        layer.bias_hh_l0.fill_(1.5)
    (found,) = rm.timescales.of(layer)
    assert found.tolist() == pytest.approx([1 / math.log1p(math.exp(-2))] * 2, rel=1e-9)


def test_coupled_lstm_has_the_timescales_though_it_has_no_input_bias():
    layer = rm.LSTM(2, 5, input_gate="coupled", timescales=Fixed(ASSIGNED))
    assert layer.bias_hh_l0.shape == (15,)
    (found,) = rm.timescales.of(layer)
    assert found.tolist() == pytest.approx(ASSIGNED, rel=FLOAT32_BIAS)
