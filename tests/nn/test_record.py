"""`record` returns the documented values, and they are those of the layer."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import remanence as rm

STEPS, BATCH, INPUTS, UNITS = 6, 4, 3, 5

COMMON = {"hidden", "cell", "forget", "input", "output", "candidate"}

MODELS = {
    "lstm": (lambda **k: rm.LSTM(INPUTS, UNITS, **k), COMMON),
    "lstm-coupled": (lambda **k: rm.LSTM(INPUTS, UNITS, input_gate="coupled", **k), COMMON),
    "fast": (lambda **k: rm.LSTM(INPUTS, UNITS, gate="fast", **k), COMMON),
    "softsign": (lambda **k: rm.LSTM(INPUTS, UNITS, gate="softsign", **k), COMMON),
    "refine": (lambda **k: rm.LSTM(INPUTS, UNITS, gate="refine", **k), COMMON | {"refine"}),
    "ur": (lambda **k: rm.LSTM(INPUTS, UNITS, gate="ur", **k), COMMON | {"refine"}),
    "plstm": (lambda **k: rm.PowerLawLSTM(INPUTS, UNITS, **k), COMMON | {"reset", "age"}),
    "gru": (lambda **k: rm.GRU(INPUTS, UNITS, **k), COMMON | {"candidate_reset"}),
    "gru-refine": (lambda **k: rm.GRU(INPUTS, UNITS, gate="refine", **k), COMMON | {"candidate_reset", "refine"}),
    "gru-power_law": (
        lambda **k: rm.GRU(INPUTS, UNITS, gate="power_law", **k),
        COMMON | {"candidate_reset", "reset", "age"},
    ),
    "janet": (lambda **k: rm.JANET(INPUTS, UNITS, **k), COMMON),
    "janet-power_law": (lambda **k: rm.JANET(INPUTS, UNITS, gate="power_law", **k), COMMON | {"reset", "age"}),
    "phased": (lambda **k: rm.PhasedLSTM(INPUTS, UNITS, **k), COMMON | {"opening"}),
    "phased-power_law": (
        lambda **k: rm.PhasedLSTM(INPUTS, UNITS, gate="power_law", **k),
        COMMON | {"opening", "reset", "age"},
    ),
    "nru": (lambda **k: rm.NRU(INPUTS, UNITS, memory_size=9, heads=4, **k), {"hidden", "memory", "added", "erased"}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name, **keywords):
    torch.manual_seed(1)
    return MODELS[name][0](dtype=torch.float64, **keywords)


def draw(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shifted(values, first=None):
    """Values one step earlier, zero or `first` at the first step."""
    return torch.cat((torch.zeros_like(values[:1]) if first is None else first.unsqueeze(0), values[:-1]))


def close(found, expected):
    """Equal up to the order of float64 operations."""
    return torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


@every_model
class TestEveryModel:
    def test_keys_are_those_of_the_contract(self, name):
        assert rm.record(make(name), draw(STEPS, BATCH, INPUTS)).keys() == MODELS[name][1]

    @pytest.mark.parametrize("batch_first", [False, True], ids=["time-first", "batch-first"])
    def test_shapes_are_time_first(self, name, batch_first):
        x = draw(BATCH, STEPS, INPUTS) if batch_first else draw(STEPS, BATCH, INPUTS)
        for key, values in rm.record(make(name, batch_first=batch_first), x).items():
            width = 9 if key in ("memory", "added", "erased") else UNITS
            assert tuple(values.shape) == (STEPS, BATCH, width), key

    def test_batch_first_records_the_same(self, name):
        x = draw(STEPS, BATCH, INPUTS)
        seen = rm.record(make(name), x)
        also = rm.record(make(name, batch_first=True), x.transpose(0, 1))
        assert all(close(also[key], seen[key]) for key in seen)

    def test_unbatched_input_is_a_batch_of_one(self, name):
        x = draw(STEPS, INPUTS)
        seen = rm.record(make(name), x)
        batched = rm.record(make(name), x.unsqueeze(1))
        assert seen["hidden"].shape == (STEPS, 1, UNITS)
        assert all(torch.equal(seen[key], batched[key]) for key in batched)

    def test_hidden_is_the_output_of_the_layer(self, name):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS)
        assert close(rm.record(layer, x)["hidden"], layer(x)[0])

    def test_packed_input_comes_in_the_given_order_with_zeros_past_the_end(self, name):
        layer = make(name)
        sequences = [draw(length, INPUTS, seed=length) for length in (2, 6, 3)]
        seen = rm.record(layer, pack_sequence(sequences, enforce_sorted=False))
        for number, sequence in enumerate(sequences):
            alone = rm.record(layer, sequence)
            for key, values in seen.items():
                assert close(values[: len(sequence), number], alone[key][:, 0]), key
                assert not values[len(sequence) :, number].any(), key

    def test_packed_hidden_is_the_output_of_the_layer(self, name):
        layer = make(name)
        packed = pack_sequence([draw(length, INPUTS, seed=length) for length in (2, 6, 3)], enforce_sorted=False)
        output, _ = pad_packed_sequence(layer(packed)[0])
        assert close(rm.record(layer, packed)["hidden"], output)

    def test_layers_and_directions_are_a_list_in_the_order_of_the_state(self, name):
        layer, x = make(name, num_layers=2, bidirectional=True), draw(STEPS, BATCH, INPUTS)
        output, state = layer(x)
        seen = rm.record(layer, x)
        assert isinstance(seen, list)
        assert [set(one) for one in seen] == [MODELS[name][1]] * 4
        assert close(torch.cat((seen[2]["hidden"], seen[3]["hidden"]), -1), output)
        hidden = state if isinstance(state, torch.Tensor) else state[0]
        for number, last in enumerate((-1, 0, -1, 0)):
            assert close(seen[number]["hidden"][last], hidden[number]), number

    def test_one_direction_of_two_layers_is_a_list_of_two(self, name):
        seen = rm.record(make(name, num_layers=2), draw(STEPS, BATCH, INPUTS))
        assert isinstance(seen, list)
        assert len(seen) == 2

    def test_state_is_where_it_starts(self, name):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS)
        whole = rm.record(layer, x)
        _, state = layer(x[:2])
        rest = rm.record(layer, x[2:], state)
        assert all(close(rest[key], whole[key][2:]) for key in whole)
        assert not close(rm.record(layer, x[2:])["hidden"], whole["hidden"][2:])

    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_random_state_mode_and_weights_are_untouched(self, name, training):
        layer, x = make(name).train(training), draw(STEPS, BATCH, INPUTS)
        weights = {key: value.clone() for key, value in layer.state_dict().items()}
        random_state = torch.get_rng_state()
        rm.record(layer, x)
        assert torch.equal(torch.get_rng_state(), random_state)
        assert layer.training is training
        assert all(torch.equal(value, weights[key]) for key, value in layer.state_dict().items())

    def test_gradients_reach_weights_and_input(self, name):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS).requires_grad_()
        rm.record(layer, x)["hidden"].square().sum().backward()
        assert x.grad.any()
        assert layer.weight_hh_l0.grad.any()

    def test_no_gradients_where_torch_s_are_off(self, name):
        with torch.no_grad():
            seen = rm.record(make(name), draw(STEPS, BATCH, INPUTS))
        assert not any(values.requires_grad for values in seen.values())


@pytest.mark.parametrize("name", ["plstm", "gru-power_law", "janet-power_law", "phased", "phased-power_law"])
def test_time_steps_are_passed_on(name):
    layer, x = make(name), draw(STEPS, BATCH, INPUTS)
    dt = draw(STEPS, BATCH).abs()
    seen = rm.record(layer, x, dt=dt)
    assert close(seen["hidden"], layer(x, dt=dt)[0])
    assert not close(seen["hidden"], rm.record(layer, x)["hidden"])


LSTMS = ["lstm", "lstm-coupled", "fast", "softsign", "refine", "ur", "plstm"]


class TestEquations:
    @pytest.mark.parametrize("name", LSTMS)
    def test_lstm_cell_and_hidden(self, name):
        x, h, c = draw(STEPS, BATCH, INPUTS), draw(1, BATCH, UNITS, seed=3), draw(1, BATCH, UNITS, seed=4)
        state = (h, c, torch.zeros_like(c)) if name == "plstm" else (h, c)
        seen = rm.record(make(name), x, state)
        before = shifted(seen["cell"], c[0])
        assert close(seen["cell"], seen["forget"] * before + seen["input"] * seen["candidate"])
        assert close(seen["hidden"], seen["output"] * seen["cell"].tanh())

    @pytest.mark.parametrize("name", ["lstm", "fast", "softsign", "refine"])
    def test_lstm_gates_follow_from_weights_and_hidden(self, name):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        pre = x @ layer.weight_ih_l0.T + shifted(seen["hidden"]) @ layer.weight_hh_l0.T
        i, f, g, o, *more = (pre + layer.bias_ih_l0 + layer.bias_hh_l0).split(UNITS, -1)
        assert close(seen["input"], i.sigmoid())
        assert close(seen["candidate"], g.tanh())
        assert close(seen["output"], o.sigmoid())
        if name == "refine":
            r = more[0].sigmoid()
            assert close(seen["refine"], r)
            assert close(seen["forget"], r * (1 - (1 - f.sigmoid()) ** 2) + (1 - r) * f.sigmoid() ** 2)
        else:
            phi = {
                "lstm": torch.sigmoid,
                "fast": lambda z: z.sinh().sigmoid(),
                "softsign": lambda z: (z / 2 / (1 + (z / 2).abs()) + 1) / 2,
            }[name]
            assert close(seen["forget"], phi(f))

    @pytest.mark.parametrize("name", ["lstm-coupled", "plstm", "gru", "gru-refine", "gru-power_law"])
    def test_coupled_input_is_one_minus_forget(self, name):
        seen = rm.record(make(name), draw(STEPS, BATCH, INPUTS))
        assert close(seen["input"], 1 - seen["forget"])

    @pytest.mark.parametrize("name", ["gru", "gru-refine", "gru-power_law"])
    def test_gru(self, name):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        before = shifted(seen["hidden"])
        assert torch.equal(seen["cell"], seen["hidden"])
        assert close(seen["hidden"], seen["forget"] * before + (1 - seen["forget"]) * seen["candidate"])
        assert bool((seen["output"] == 1).all())
        if name == "gru":
            heard = (x @ layer.weight_ih_l0.T + layer.bias_ih_l0).split(UNITS, -1)
            kept = (before @ layer.weight_hh_l0.T + layer.bias_hh_l0).split(UNITS, -1)
            assert close(seen["candidate_reset"], (heard[0] + kept[0]).sigmoid())
            assert close(seen["candidate"], (heard[2] + seen["candidate_reset"] * kept[2]).tanh())

    @pytest.mark.parametrize("beta", [0.0, 1.0, 2.5])
    def test_janet(self, beta):
        layer, x = make("janet", beta=beta), draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        assert torch.equal(seen["cell"], seen["hidden"])
        assert close(seen["cell"], seen["forget"] * shifted(seen["cell"]) + seen["input"] * seen["candidate"])
        assert close(seen["input"], 1 - torch.sigmoid(seen["forget"].logit() - beta))
        assert bool((seen["output"] == 1).all())

    @pytest.mark.parametrize("name", ["plstm", "gru-power_law", "janet-power_law"])
    @pytest.mark.parametrize("irregular", [False, True], ids=["unit-steps", "dt"])
    def test_age_and_forget_of_power_law(self, name, irregular):
        layer, x = make(name), draw(STEPS, BATCH, INPUTS)
        dt = draw(STEPS, BATCH).abs() + 0.01 if irregular else None  # above eps, where forget needs no clamp
        seen = rm.record(layer, x, dt=dt)
        reset, before = seen["reset"], shifted(seen["age"])
        passed = 1.0 if dt is None else dt.unsqueeze(-1)
        assert close(seen["age"], (1 - reset) * (before + passed))
        p = layer.p_hat_l0.sigmoid()
        expected = ((seen["age"] + 1) / ((1 - reset) * (before + 1) + 1e-3)) ** -p
        assert close(seen["forget"], expected)

    def test_phased_lstm_sleeps_between_its_openings(self):
        layer, x = make("phased").train(), draw(40, BATCH, INPUTS)
        seen = rm.record(layer, x)
        before = shifted(seen["cell"])
        proposal = seen["forget"] * before + seen["input"] * seen["candidate"]
        k = seen["opening"]
        assert close(seen["cell"], k * proposal + (1 - k) * before)
        awake = seen["output"] * proposal.tanh()
        assert close(seen["hidden"], k * awake + (1 - k) * shifted(seen["hidden"]))
        assert bool((k > 0.1).any())
        assert bool((k < 1e-3).any())

    def test_phased_lstm_does_not_leak_in_evaluation(self):
        layer, x = make("phased"), draw(40, BATCH, INPUTS)
        closed = rm.record(layer.eval(), x)["opening"] == 0
        leaking = rm.record(layer.train(), x)["opening"]
        assert bool(closed.any())
        assert bool((leaking[closed] > 0).any())

    def test_nru_adds_to_and_erases_from_its_memory(self):
        layer, x = make("nru"), draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        memory = shifted(seen["memory"])
        assert close(seen["memory"], memory + seen["added"] - seen["erased"])
        pre = x @ layer.weight_ih_l0.T + shifted(seen["hidden"]) @ layer.weight_hh_l0.T + memory @ layer.weight_mh_l0.T
        assert close(seen["hidden"], (pre + layer.bias_ih_l0).relu())

    def test_equations_hold_backwards_in_the_reverse_direction(self):
        _, seen = rm.record(make("lstm", bidirectional=True), draw(STEPS, BATCH, INPUTS))
        before = shifted(seen["cell"].flip(0)).flip(0)
        assert close(seen["cell"], seen["forget"] * before + seen["input"] * seen["candidate"])


def test_projected_hidden_has_the_width_of_the_projection():
    layer, x = make("lstm", proj_size=2), draw(STEPS, BATCH, INPUTS)
    seen = rm.record(layer, x)
    assert seen["hidden"].shape == (STEPS, BATCH, 2)
    assert seen["cell"].shape == (STEPS, BATCH, UNITS)
    assert close(seen["hidden"], layer(x)[0])


class TestTorchLayers:
    @pytest.fixture(params=["LSTM", "GRU"])
    def layer(self, request):
        torch.manual_seed(5)
        return getattr(torch.nn, request.param)(INPUTS, UNITS, dtype=torch.float64)

    def test_hidden_is_the_output_of_the_torch_layer(self, layer):
        x = draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        assert seen.keys() >= COMMON
        assert torch.allclose(seen["hidden"], layer(x)[0], rtol=1e-9)  # another order of sums in torch's kernel

    def test_state_is_passed_on(self, layer):
        x = draw(STEPS, BATCH, INPUTS)
        output, _ = layer(x)
        _, state = layer(x[:2])
        assert torch.allclose(rm.record(layer, x[2:], state)["hidden"], output[2:], rtol=1e-9)

    def test_two_layers_and_directions_are_a_list(self):
        layer = torch.nn.LSTM(INPUTS, UNITS, 2, bidirectional=True, dtype=torch.float64)
        x = draw(STEPS, BATCH, INPUTS)
        seen = rm.record(layer, x)
        assert len(seen) == 4
        both = torch.cat((seen[2]["hidden"], seen[3]["hidden"]), -1)
        assert torch.allclose(both, layer(x)[0], rtol=1e-9)

    def test_random_state_and_mode_are_untouched(self, layer):
        random_state = torch.get_rng_state()
        rm.record(layer.train(), draw(STEPS, BATCH, INPUTS))
        assert torch.equal(torch.get_rng_state(), random_state)
        assert layer.training

    def test_another_module_is_refused_in_one_sentence(self):
        with pytest.raises(TypeError, match=r"^expected a recurrent layer, got RNN$"):
            rm.record(torch.nn.RNN(INPUTS, UNITS), draw(STEPS, BATCH, INPUTS))
