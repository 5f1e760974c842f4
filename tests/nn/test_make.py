"""Models by the name the papers use."""

import math

import pytest
import torch

import remanence as rm
from remanence.timescales import Chrono, Fixed

NAMES = ["lstm", "lstm-chrono", "gru", "plstm", "fast", "softsign", "refine", "ur", "janet", "nru", "phased", "mts"]
QUOTED = ["exprnn", "urnn", "eurnn", "goru", "sru"]
"""Models with restrictions on hidden_size, see tests/cells/test_quoted.py."""
REQUIRED = {"lstm-chrono": {"t_max": 50}}
SIZES = [1, 2, 3, 5, 128]
INPUTS = 3

every_name = pytest.mark.parametrize("name", NAMES)


def make(name, units, **keywords):
    torch.manual_seed(1)
    return rm.make(name, INPUTS, units, **REQUIRED.get(name, {}), **keywords)


def state_shapes(name, units, batch, memory=None):
    """The state as the contract describes it."""
    layers = 3 if name == "mts" else 1
    hidden = (layers, batch, units)
    if name == "gru":
        return hidden
    if name == "plstm":
        return (hidden, hidden, hidden)
    if name == "phased":
        return (hidden, hidden, (1, batch, 1))
    if name == "nru":
        return (hidden, (1, batch, memory))
    return (hidden, hidden)


def test_these_are_all_the_names():
    assert list(rm.nn.KNOWN) == NAMES + QUOTED


@every_name
@pytest.mark.parametrize("units", SIZES)
def test_gives_output_and_the_state_of_the_contract_for_any_hidden_size(name, units):
    layer = make(name, units)
    output, state = layer(torch.randn(4, 2, INPUTS))
    assert output.shape == (4, 2, units)
    assert bool(output.isfinite().all())
    memory = layer.cell.memory_size if name == "nru" else None
    shapes = tuple(state.shape) if isinstance(state, torch.Tensor) else tuple(tuple(part.shape) for part in state)
    assert shapes == state_shapes(name, units, 2, memory)


@every_name
@pytest.mark.parametrize("units", [1, 5])
def test_the_state_can_be_carried_on(name, units):
    layer, x = make(name, units), torch.randn(6, 2, INPUTS)
    whole, end = layer(x)
    first, state = layer(x[:4])
    rest, also_end = layer(x[4:], state)
    assert torch.allclose(torch.cat((first, rest)), whole, atol=1e-6)  # float32, products of other sizes
    parts = [(end, also_end)] if isinstance(end, torch.Tensor) else zip(end, also_end, strict=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in parts)


@every_name
def test_trains(name):
    layer = make(name, 5)
    layer(torch.randn(4, 2, INPUTS))[0].square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(parameter.grad.isfinite().all()), parameter_name


@every_name
def test_default_has_no_dropout_and_no_weight_drop(name):
    layer, x = make(name, 5).train(), torch.randn(4, 2, INPUTS)
    assert layer.dropout == 0
    assert layer.weight_drop == 0
    random_state = torch.get_rng_state()
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(torch.get_rng_state(), random_state)


@every_name
def test_weight_drop_if_requested(name):
    layer, x = make(name, 64, weight_drop=0.5).train(), torch.randn(4, 2, INPUTS)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@every_name
def test_dropout_between_layers_if_requested(name):
    layer, x = make(name, 64, num_layers=3, dropout=0.5).train(), torch.randn(20, 2, INPUTS)
    assert not torch.equal(layer(x)[0], layer(x)[0])


@every_name
def test_arguments_of_torch_pass_through(name):
    layer = make(name, 4, num_layers=3, batch_first=True, bidirectional=True, dtype=torch.float64, engine="loop")
    assert layer.num_layers == 3
    assert layer.engine == "loop"
    output, _ = layer(torch.randn(2, 7, INPUTS, dtype=torch.float64))
    assert output.shape == (2, 7, 8)
    assert output.dtype == torch.float64


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("lstm-chrono", "mts")])
def test_layers_without_biases_can_be_made(name):
    layer = make(name, 4, bias=False)
    assert not any(parameter.startswith("bias") for parameter, _ in layer.named_parameters())
    assert layer(torch.randn(2, 1, INPUTS))[0].shape == (2, 1, 4)


@every_name
def test_error_for_an_unknown_keyword_is_one_sentence(name):
    with pytest.raises(TypeError, match=f"^expected keyword arguments of model '{name}', got 'hiden_size'$"):
        make(name, 4, hiden_size=3)


@pytest.mark.parametrize(
    ("name", "keyword"),
    [("fast", "gate"), ("refine", "gate"), ("lstm-chrono", "timescales"), ("mts", "timescales")],
)
def test_error_for_a_keyword_that_the_name_already_sets_is_one_sentence(name, keyword):
    with pytest.raises(TypeError, match=f"^expected .*{name}.*got '{keyword}'") as caught:
        make(name, 4, **{keyword: "sigmoid" if keyword == "gate" else Fixed(3.0)})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "direct"),
    [
        ("lstm", lambda: rm.LSTM(INPUTS, 5)),
        ("lstm-chrono", lambda: rm.LSTM(INPUTS, 5, timescales=Chrono(50))),
        ("gru", lambda: rm.GRU(INPUTS, 5)),
        ("plstm", lambda: rm.LSTM(INPUTS, 5, gate="power_law", input_gate="coupled")),
        ("fast", lambda: rm.LSTM(INPUTS, 5, gate="fast")),
        ("softsign", lambda: rm.LSTM(INPUTS, 5, gate="softsign")),
        ("refine", lambda: rm.LSTM(INPUTS, 5, gate="refine")),
        ("ur", lambda: rm.LSTM(INPUTS, 5, gate="ur")),
        ("janet", lambda: rm.JANET(INPUTS, 5)),
        ("nru", lambda: rm.NRU(INPUTS, 5)),
        ("phased", lambda: rm.PhasedLSTM(INPUTS, 5)),
    ],
)
def test_equals_the_layer_made_directly(name, direct):
    made = make(name, 5)
    torch.manual_seed(1)
    built = direct()
    assert made.cell == built.cell
    assert made.state_dict().keys() == built.state_dict().keys()
    assert all(torch.equal(value, built.state_dict()[key]) for key, value in made.state_dict().items())


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_lstm_and_gru_start_where_torch_s_start(name):
    made = make(name, 5)
    torch.manual_seed(1)
    torchs = getattr(torch.nn, name.upper())(INPUTS, 5)
    assert made.state_dict().keys() == torchs.state_dict().keys()
    assert all(torch.equal(value, torchs.state_dict()[key]) for key, value in made.state_dict().items())


def test_lstm_chrono_needs_t_max():
    with pytest.raises(ValueError, match=r"^expected t_max, .*'lstm-chrono', got none$"):
        rm.make("lstm-chrono", INPUTS, 4)


def test_lstm_chrono_spreads_timescales_up_to_t_max():
    torch.manual_seed(2)
    (timescales,) = rm.timescales.of(rm.make("lstm-chrono", INPUTS, 200, t_max=1000))
    assert 900 < timescales.max() < 1000
    assert timescales.min() >= 1.4


def test_janet_without_t_max_starts_at_forget_bias_one():
    layer = rm.make("janet", INPUTS, 4)
    assert layer.bias_ih_l0.tolist() == [1.0] * 4 + [0.0] * 4


def test_janet_with_t_max_starts_at_log_uniform_biases():
    torch.manual_seed(3)
    layer = rm.make("janet", INPUTS, 200, t_max=1000)
    drawn = layer.bias_ih_l0[:200].exp()
    assert drawn.min() >= 1
    assert 950 < drawn.max() <= 1000.01  # float32
    assert not layer.bias_ih_l0[200:].any()


@pytest.mark.parametrize("other", [{"timescales": Fixed(3.0)}, {"forget_bias": 1.0}], ids=["timescales", "forget_bias"])
def test_janet_takes_one_of_t_max_timescales_and_forget_bias(other):
    with pytest.raises(ValueError, match=r"^expected one of t_max, timescales and forget_bias, .* got two$"):
        rm.make("janet", INPUTS, 4, t_max=10, **other)


@pytest.mark.parametrize("gate", ["fast", "softsign", "refine", "power_law"])
def test_janet_takes_other_gates(gate):
    assert rm.make("janet", INPUTS, 4, gate=gate)(torch.randn(3, 2, INPUTS))[0].shape == (3, 2, 4)


@pytest.mark.parametrize("units", [1, 2, 5, 6])
def test_mts_has_three_layers_with_the_timescales_of_the_paper(units):
    layer = make("mts", units)
    assert layer.num_layers == 3
    first, second, _ = rm.timescales.of(layer)
    half = units // 2
    assert first.tolist() == pytest.approx([3.0] * half + [4.0] * (units - half), rel=1e-6)  # float32 biases
    assert bool((second.diff() < 0).all())
    assert {name for name in layer.state_dict() if "frozen" in name} == {
        f"frozen_bias_{end}_l{number}" for end in ("ih", "hh") for number in (0, 1)
    }


def test_mts_takes_alpha_and_freeze():
    layer = make("mts", 6, alpha=1.5, freeze=False)
    expected = rm.timescales.InverseGamma(1.5).timescales(6)
    assert torch.allclose(rm.timescales.of(layer)[1], expected, rtol=1e-5)  # float32 biases
    assert not any("frozen" in name for name in layer.state_dict())


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_mts_refuses_another_number_of_layers(layers):
    with pytest.raises(ValueError, match=f"^expected model 'mts' to have 3 layers, got num_layers={layers}$"):
        make("mts", 6, num_layers=layers)


def test_plstm_learns_p_unless_it_is_given():
    assert make("plstm", 4).p_hat_l0.shape == (4,)
    fixed = make("plstm", 4, p=1.5)
    assert not hasattr(fixed, "p_hat_l0")
    assert fixed.gate == rm.gates.PowerLaw(p=1.5, eps=1e-3)


def test_plstm_takes_eps():
    assert make("plstm", 4, eps=1e-5).gate.eps == 1e-5
    x = torch.randn(3, 2, INPUTS)
    assert not torch.equal(make("plstm", 4, eps=0.5)(x)[0], make("plstm", 4, eps=1e-5)(x)[0])


def test_plstm_with_fixed_p_forgets_by_that_power():
    layer = make("plstm", 2, p=0.5, eps=0.0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[:2] = -100.0  # never reset
    cell = torch.ones(1, 1, 2)
    _, (_, kept, age) = layer(torch.zeros(8, 1, INPUTS), (torch.zeros(1, 1, 2), cell, torch.zeros(1, 1, 2)))
    assert age.flatten().tolist() == [8.0, 8.0]
    assert kept.flatten().tolist() == pytest.approx([1 / math.sqrt(9)] * 2, rel=1e-6)  # (n + 1)^-p, float32


@pytest.mark.parametrize("units", range(1, 65))
def test_nru_finds_a_memory_that_fits_any_hidden_size(units):
    layer = make("nru", units)
    memory, heads = layer.cell.memory_size, layer.cell.heads
    assert heads == 4
    assert math.isqrt(memory * heads) ** 2 == memory * heads
    output, (_, m_n) = layer(torch.randn(2, 1, INPUTS))
    assert output.shape == (2, 1, units)
    assert m_n.shape == (1, 1, memory)


def test_nru_of_128_units_has_the_memory_of_the_synthetic_tasks():
    assert make("nru", 128).cell.memory_size == 64


def test_nru_takes_memory_size_and_heads():
    layer = make("nru", 12, memory_size=9, heads=1)
    _, (_, m_n) = layer(torch.randn(2, 1, INPUTS))
    assert m_n.shape == (1, 1, 9)
