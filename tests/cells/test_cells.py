"""Layers against an independent NumPy implementation of the equations in the papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn
from torch.func import functional_call

import remanence as rm

GATES = ("sigmoid", "fast", "softsign", "refine", "ur", "power_law")
INPUTS, UNITS, BATCH, STEPS = 3, 4, 2, 7
EPS = 1e-3
"""The default of the power law."""

CELLS = {
    **{
        f"lstm-{gate}-{kind}": (rm.LSTM, {"gate": gate, "input_gate": kind})
        for gate in GATES
        for kind in ("separate", "coupled")
    },
    **{f"gru-{gate}": (rm.GRU, {"gate": gate}) for gate in GATES},
    **{f"janet-{gate}-beta{beta}": (rm.JANET, {"gate": gate, "beta": beta}) for gate in GATES for beta in (1, 0)},
    **{
        f"phased-{gate}-{kind}": (rm.PhasedLSTM, {"gate": gate, "input_gate": kind})
        for gate in GATES
        for kind in ("separate", "coupled")
    },
    "nru": (rm.NRU, {"memory_size": 9, "heads": 4}),
}
SMALL_CELLS = {**CELLS, "nru": (rm.NRU, {"memory_size": 2, "heads": 2})}


def takes_dt(name: str) -> bool:
    return "power_law" in name or "phased" in name


# The layers, with weights nothing in which is special.


def drawn(name: str, cells=CELLS, inputs: int = INPUTS, units: int = UNITS, seed: int = 0) -> nn.Module:
    kind, keywords = cells[name]
    layer = kind(inputs, units, dtype=torch.float64, **keywords)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.8, generator=generator)
        if isinstance(layer, rm.PhasedLSTM):  # all three phases must occur
            layer.period_l0.uniform_(2, 6, generator=generator)
            layer.shift_l0.uniform_(0, 5, generator=generator)
            layer.open_ratio_l0.uniform_(0.5, 0.8, generator=generator)
    return layer


def state_for(layer: nn.Module, batch: int = BATCH, seed: int = 1) -> tuple[torch.Tensor, ...]:
    """A state to start from; ages and clocks are positive."""
    generator = torch.Generator().manual_seed(seed)
    widths = layer.cell.widths(layer.hidden_size, layer.hidden_size)
    parts = []
    for part, width in widths.items():
        value = torch.randn(1, batch, width, dtype=torch.float64, generator=generator)
        parts.append(value.abs() + 0.5 if part in ("age", "clock") else value)
    return tuple(parts)


def inputs_for(
    layer: nn.Module, steps: int = STEPS, batch: int = BATCH, seed: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, batch, layer.input_size, dtype=torch.float64, generator=generator)
    dt = torch.empty(steps, batch, dtype=torch.float64).uniform_(0.1, 3, generator=generator)
    return x, dt


def run(layer: nn.Module, x, state=None, dt=None) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Output and state, the state always as a tuple."""
    if isinstance(state, tuple) and len(state) == 1:
        state = state[0]
    output, after = layer(x, state) if dt is None else layer(x, state, dt)
    return output, after if isinstance(after, tuple) else (after,)


# The equations as printed.


def sigma(z):
    return 1 / (1 + np.exp(-z))


def printed_gate(gate: str, rows: dict, times: tuple, dt, p, eps: float = EPS):
    """Forget value, and (t, k_t) after the step, of any gate; t and k mean something to the power law alone."""
    z = rows["forget"]
    if gate == "sigmoid":
        return sigma(z), times
    if gate == "fast":
        return sigma(np.sinh(z)), times
    if gate == "softsign":
        return ((z / 2) / (1 + np.abs(z / 2)) + 1) / 2, times
    if gate in ("refine", "ur"):
        f, r = sigma(z), sigma(rows["refine"])
        return r * (1 - (1 - f) ** 2) + (1 - r) * f**2, times
    (t, k), r = times, sigma(z)
    t = t + dt
    k_tilde = r * (t - dt + 1) + (1 - r) * k
    k = r * t + (1 - r) * k
    return ((t - k + 1) / (t - dt - k_tilde + 1 + eps)) ** -p, (t, k)


class Reference:
    """A layer's weights in NumPy, and its cell step by step."""

    def __init__(self, layer: nn.Module, name: str, fixed_p: float | None = None, eps: float = EPS):
        self.kind, self.gate, *self.options = [*name.split("-"), ""] if "-" in name else [name, "", ""]
        self.weights = {key.removesuffix("_l0"): value.detach().numpy() for key, value in layer.named_parameters()}
        self.units, self.eps, self.training = layer.hidden_size, eps, layer.training
        self.heads = getattr(layer.cell, "heads", None)
        self.coupled = self.options[0] == "coupled"
        self.beta = {"beta1": 1.0, "beta0": 0.0}.get(self.options[0])
        self.p = sigma(self.weights["p_hat"]) if "p_hat" in self.weights else fixed_p
        extra = ["refine"] if self.gate in ("refine", "ur") else []
        self.blocks = {
            "lstm": [*([] if self.coupled else ["input"]), "forget", "candidate", "output", *extra],
            "phased": [*([] if self.coupled else ["input"]), "forget", "candidate", "output", *extra],
            "gru": ["candidate_reset", "forget", "candidate", *extra],
            "janet": ["forget", "candidate", *extra],
            "nru": [],
        }[self.kind]

    def named(self, z: np.ndarray) -> dict[str, np.ndarray]:
        return {block: z[:, j * self.units : (j + 1) * self.units] for j, block in enumerate(self.blocks)}

    def halves(self, x, h):
        w = self.weights
        from_input = x @ w["weight_ih"].T + w["bias_ih"]
        from_hidden = h @ w["weight_hh"].T + w.get("bias_hh", 0)
        return from_input, from_hidden

    def run(self, x, state, dt=None):
        """Outputs `(T, B, H)` and the state after the last step; `watched` keeps what kinks depend on."""
        x, state = x.numpy(), tuple(part[0].numpy() for part in state)
        steps = np.ones(x.shape[:2]) if dt is None else dt.numpy()
        if self.gate == "power_law":  # from the age to a time and a reference time: k = t - age
            index = 1 if self.kind == "gru" else 2
            start = np.zeros_like(state[index])
            state = (*state[:index], (start, start - state[index]), *state[index + 1 :])
        outputs, self.watched = [], []
        for j in range(len(x)):
            state = getattr(self, self.kind)(x[j], state, steps[j][:, None])
            outputs.append(state[0])
        if self.gate == "power_law":
            state = tuple(part[0] - part[1] if isinstance(part, tuple) else part for part in state)
        return np.stack(outputs), state

    def gate_of(self, rows, times, dt):
        return printed_gate(self.gate, rows, times, dt, self.p, self.eps)

    def lstm(self, x, state, dt):
        h, c, *times = state
        a, b = self.halves(x, h)
        z = self.named(a + b)
        f, after = self.gate_of(z, times[0] if times else None, dt)
        i = 1 - f if self.coupled else sigma(z["input"])
        c = f * c + i * np.tanh(z["candidate"])
        h = sigma(z["output"]) * np.tanh(c)
        return (h, c, after) if times else (h, c)

    def gru(self, x, state, dt):
        h, *times = state
        a, b = self.halves(x, h)
        z, from_input, from_hidden = self.named(a + b), self.named(a), self.named(b)
        r = sigma(z["candidate_reset"])
        f, after = self.gate_of(z, times[0] if times else None, dt)
        n = np.tanh(from_input["candidate"] + r * from_hidden["candidate"])
        h = (1 - f) * n + f * h
        return (h, after) if times else (h,)

    def janet(self, x, state, dt):
        h, c, *times = state
        a, b = self.halves(x, h)
        z = self.named(a + b)
        f, after = self.gate_of(z, times[0] if times else None, dt)
        shifted, _ = self.gate_of(z | {"forget": z["forget"] - self.beta}, times[0] if times else None, dt)
        c = f * c + (1 - shifted) * np.tanh(z["candidate"])
        return (c, c, after) if times else (c, c)

    def phased(self, x, state, dt):
        h, c, *times, clock = state
        w = self.weights
        clock = clock + dt
        phase = ((clock + w["shift"]) % w["period"]) / w["period"]
        r_on = w["open_ratio"]
        k = np.where(phase < r_on / 2, 2 * phase / r_on, 2 - 2 * phase / r_on)
        k = np.where(phase < r_on, k, (1e-3 if self.training else 0.0) * phase)
        self.watched.append((phase, r_on))

        a, b = self.halves(x, h)
        z = self.named(a + b)
        f, after = self.gate_of(z | {"forget": z["forget"] + w["peephole_forget"] * c}, times[0] if times else None, dt)
        i = 1 - f if self.coupled else sigma(z["input"] + w["peephole_input"] * c)
        new_c = f * c + i * np.tanh(z["candidate"])
        new_h = sigma(z["output"] + w["peephole_output"] * new_c) * np.tanh(new_c)
        old_c, old_h = c, h
        c, h = k * new_c + (1 - k) * old_c, k * new_h + (1 - k) * old_h
        if not times:
            return h, c, clock
        # The age sleeps with its unit.
        t, age = after[0], k * (after[0] - after[1]) + (1 - k) * (times[0][0] - times[0][1])
        return h, c, (t, t - age), clock

    def nru(self, x, state, dt):
        h, m = state
        w = self.weights
        z = np.hstack([x, h, m]) @ np.hstack([w["weight_ih"], w["weight_hh"], w["weight_mh"]]).T + w["bias_ih"]
        self.watched.append(z)
        h = np.maximum(0, z)
        written = np.hstack([h, m]) @ w["weight_write"].T + w["bias_write"]
        size = m.shape[1]
        k = self.heads
        s = math.isqrt(k * size)
        new = np.empty_like(m)
        for n in range(len(m)):
            alpha, beta = written[n, :k], written[n, k : 2 * k]
            u1, u2, w1, w2 = written[n, 2 * k :].reshape(4, s)
            total = np.zeros(size)
            v_a, v_b = np.outer(u1, u2).reshape(k, size), np.outer(w1, w2).reshape(k, size)
            for j in range(k):
                length_a = max((np.abs(v_a[j]) ** 5).sum() ** 0.2, 1e-12)
                length_b = max((np.abs(v_b[j]) ** 5).sum() ** 0.2, 1e-12)
                total += alpha[j] * v_a[j] / length_a - beta[j] * v_b[j] / length_b
            new[n] = m[n] + total / k
        return h, new


def agree(layer, reference: Reference, dt=None, seed: int = 2) -> None:
    x, times = inputs_for(layer, seed=seed)
    before = state_for(layer)
    output, after = run(layer, x, before, times if dt else None)
    expected, expected_after = reference.run(x, before, times if dt else None)
    # Seven steps in float64; the printed power law subtracts times of up to 30 (1e-14) beside eps = 1e-3.
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    for part, expected_part in zip(after, expected_after, strict=True):
        np.testing.assert_allclose(part[0].detach().numpy(), expected_part, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_layer_equals_the_printed_equations(name):
    layer = drawn(name)
    agree(layer, Reference(layer, name))


@pytest.mark.parametrize("name", [name for name in CELLS if takes_dt(name)])
def test_layer_with_variable_dt_equals_the_printed_equations(name):
    layer = drawn(name)
    agree(layer, Reference(layer, name), dt=True)


@pytest.mark.parametrize("name", [name for name in CELLS if name.startswith("phased")])
def test_phased_layer_in_evaluation_sleeps_without_a_leak(name):
    layer = drawn(name).eval()
    reference = Reference(layer, name)
    agree(layer, reference, dt=True)
    phases = np.stack([phase / ratio for phase, ratio in reference.watched])
    for low, high in ((0, 0.5), (0.5, 1), (1, np.inf)):  # rising, falling, asleep: each occurs in these draws
        assert ((phases >= low) & (phases < high)).any()


def test_phased_layer_leaks_in_training_only():
    layer = drawn("phased-sigmoid-separate")
    x, _ = inputs_for(layer)
    with torch.no_grad():
        leaking = layer(x)[0]
        asleep = layer.eval()(x)[0]
    assert not torch.equal(leaking, asleep)


@pytest.mark.parametrize("eps", [1e-5, 0.0])
@pytest.mark.parametrize("p", [0.4, 1.0, 1.5])
@pytest.mark.parametrize("kind", ["coupled", "separate"])
def test_power_law_lstm_with_fixed_p_equals_the_printed_equations(p, eps, kind):
    layer = rm.PowerLawLSTM(INPUTS, UNITS, p=p, eps=eps, input_gate=kind, dtype=torch.float64)
    agree(layer, Reference(layer, f"lstm-power_law-{kind}", fixed_p=p, eps=eps), dt=True)


@pytest.mark.parametrize("name", CELLS)
def test_state_starts_at_zero_when_none_is_given(name):
    layer = drawn(name)
    x, _ = inputs_for(layer)
    zeros = tuple(torch.zeros_like(part) for part in state_for(layer))
    torch.testing.assert_close(run(layer, x), run(layer, x, zeros), rtol=0, atol=0)


@pytest.mark.parametrize("name", CELLS)
def test_state_carries_everything(name):
    layer = drawn(name)
    x, dt = inputs_for(layer)
    times = (dt, dt[:3], dt[3:]) if takes_dt(name) else (None, None, None)
    whole, end = run(layer, x, None, times[0])
    first, middle = run(layer, x[:3], None, times[1])
    second, same_end = run(layer, x[3:], middle, times[2])
    torch.testing.assert_close(torch.cat((first, second)), whole, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(same_end, end, rtol=1e-13, atol=1e-14)


def test_coupled_refine_has_the_parameters_of_an_lstm():
    # Gate tying: r takes the place of the input gate.
    tied = rm.LSTM(INPUTS, UNITS, gate="refine", input_gate="coupled")
    assert size(tied) == size(rm.LSTM(INPUTS, UNITS))


# Gradients.


def smooth_everywhere(layer: nn.Module, name: str, x, state, dt) -> bool:
    """Whether a difference of 1e-6 in anything crosses no kink of the phased LSTM or of a relu."""
    reference = Reference(layer, name)
    reference.run(x, state, dt)
    if name == "nru":
        z = np.stack(reference.watched)
        return bool(np.all(np.abs(z) > 1e-3) and (z > 0).any() and (z < 0).any())
    return all(
        np.all(np.abs(phase / ratio - kink) > 1e-3) and np.all((phase > 1e-3) & (phase < 1 - 1e-3))
        for phase, ratio in reference.watched
        for kink in (0.5, 1.0)
    )


@pytest.mark.parametrize("name", SMALL_CELLS)
def test_gradients_agree_with_finite_differences(name):
    """For the input, every parameter, the initial state, and dt where it is taken."""
    for seed in range(20):
        layer = drawn(name, SMALL_CELLS, inputs=2, units=2, seed=seed)
        state = state_for(layer, batch=1)
        x, dt = inputs_for(layer, steps=3, batch=1)
        if smooth_everywhere(layer, name, x, state, dt):
            break
    else:
        pytest.fail("no draw is away from every kink")
    names = [key for key, _ in layer.named_parameters()]
    timed = takes_dt(name)
    points = [x, *([dt] if timed else []), *state, *(p.detach() for p in layer.parameters())]
    points = [point.clone().requires_grad_() for point in points]

    def outputs(x, *rest):
        times = rest[0] if timed else None
        rest = rest[1:] if timed else rest
        before, weights = rest[: len(state)], dict(zip(names, rest[len(state) :], strict=True))
        before = before[0] if len(before) == 1 else before
        output, after = functional_call(layer, weights, (x, before) if times is None else (x, before, times))
        return (output, *(after if isinstance(after, tuple) else (after,)))

    # Finite differences of 1e-6 in float64 are good to about 1e-7 of slopes of order one.
    assert torch.autograd.gradcheck(outputs, points, eps=1e-6, atol=1e-5, rtol=1e-4)


# Parameter counts. A head is a linear layer with a bias on the last hidden state.


def size(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def head(units: int, classes: int) -> nn.Linear:
    return nn.Linear(units, classes, device="meta")


def single_bias_size(layer: nn.Module, *others: nn.Module) -> int:
    """As counted by a paper with one bias vector a layer: without torch's second one."""
    second = sum(value.numel() for key, value in layer.named_parameters() if key.startswith("bias_hh"))
    return size(layer, *others) - second


@pytest.mark.parametrize(
    ("layer", "others", "expected"),
    [
        pytest.param(lambda: rm.LSTM(10, 128), [head(128, 10)], 72_970, id="copy-lstm"),
        pytest.param(lambda: rm.PowerLawLSTM(10, 128), [head(128, 10)], 54_794, id="copy-plstm"),
        pytest.param(lambda: rm.LSTM(1, 256), [head(256, 10)], 267_786, id="mnist-lstm-256"),
        pytest.param(lambda: rm.LSTM(1, 512), [head(512, 10)], 1_059_850, id="mnist-lstm-512"),
        pytest.param(lambda: rm.PowerLawLSTM(1, 256), [head(256, 10)], 200_970, id="mnist-plstm-256"),
        pytest.param(lambda: rm.PowerLawLSTM(1, 512), [head(512, 10)], 795_146, id="mnist-plstm-512"),
        pytest.param(lambda: rm.LSTM(100, 128), [head(128, 1)], 117_889, id="imdb-lstm"),
        pytest.param(lambda: rm.PowerLawLSTM(100, 154), [head(154, 1)], 118_119, id="imdb-plstm"),
        pytest.param(lambda: rm.LSTM(1, 110), [head(110, 2)], 49_942, id="frequency-lstm"),
        pytest.param(lambda: rm.LSTM(2, 110), [head(110, 2)], 50_382, id="frequency-lstm-with-time"),
        pytest.param(lambda: rm.PowerLawLSTM(1, 110), [head(110, 2)], 37_292, id="frequency-plstm"),
        pytest.param(lambda: rm.PowerLawLSTM(2, 110), [head(110, 2)], 37_622, id="frequency-plstm-with-time"),
        pytest.param(lambda: rm.LSTM(20, 716), [nn.Embedding(50, 20), head(716, 50)], 2_150_482, id="char-ptb-lstm"),
        pytest.param(
            lambda: rm.PowerLawLSTM(20, 828), [nn.Embedding(50, 20), head(828, 50)], 2_152_194, id="char-ptb-plstm"
        ),
        pytest.param(lambda: rm.LSTM(27, 512, 2), [head(512, 27)], 3_223_067, id="text8-lstm"),
        pytest.param(lambda: rm.PowerLawLSTM(27, 592, 2), [head(592, 27)], 3_222_875, id="text8-plstm"),
        pytest.param(lambda: rm.LSTM(4, 256), [head(256, 2)], 268_802, id="dyck-lstm"),
    ],
)
def test_parameter_count_is_the_specified_one(layer, others, expected):
    assert size(layer(), *others) == expected


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        pytest.param(lambda: rm.LSTM(1, 512), 1_057_802, id="lstm"),
        pytest.param(lambda: rm.LSTM(1, 512, gate="fast"), 1_057_802, id="fast"),
        pytest.param(lambda: rm.LSTM(1, 512, gate="softsign"), 1_057_802, id="softsign"),
        pytest.param(lambda: rm.LSTM(1, 512, gate="refine"), 1_320_970, id="refine"),
        pytest.param(lambda: rm.JANET(1, 512), 531_466, id="janet"),
        pytest.param(lambda: rm.NRU(1, 512, memory_size=144, heads=4), 410_354, id="nru"),
    ],
)
def test_parameter_count_of_the_fast_gate_paper_with_one_bias(layer, expected):
    """That paper's counts are for one bias vector; the LSTM here has torch's two unless it is JANET or NRU."""
    assert single_bias_size(layer(), head(512, 10)) == expected


def test_only_power_law_janet_and_nru_have_a_single_bias_vector():
    def single(layer: nn.Module) -> bool:
        return not any(key.startswith("bias_hh") for key, _ in layer.named_parameters())

    assert all(single(layer) for layer in (rm.PowerLawLSTM(2, 3), rm.JANET(2, 3), rm.NRU(2, 8)))
    assert not any(single(rm.LSTM(2, 3, gate=gate)) for gate in GATES if gate != "power_law")
    assert not single(rm.GRU(2, 3))


# How layers start.


def blocks(layer: nn.Module, name: str) -> dict[str, torch.Tensor]:
    """The total bias of every block."""
    total = layer.bias_ih_l0 + getattr(layer, "bias_hh_l0", 0)
    return dict(zip(Reference(layer, name).blocks, total.detach().double().split(layer.hidden_size), strict=True))


def uniform(values: torch.Tensor, low: float, high: float) -> None:
    values = values.detach().double().flatten().numpy()
    slack = 1e-6 * max(abs(low), abs(high))  # float32
    assert values.min() >= low - slack
    assert values.max() <= high + slack
    assert kstest(values, "uniform", (low, high - low)).pvalue > 1e-3


def seeded(make, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make()


def test_chrono_draws_timescales_uniformly_up_to_t_max():
    layer = seeded(lambda: rm.LSTM(2, 2000, timescales=rm.timescales.Chrono(300.0)))
    bias = blocks(layer, "lstm-sigmoid-separate")
    uniform(bias["forget"].exp(), 1, 299)
    torch.testing.assert_close(bias["input"], -bias["forget"], rtol=0, atol=0)
    for name in ("candidate", "output"):
        assert (bias[name] == 0).all()
    assert (layer.bias_ih_l0 == 0).all()
    uniform(layer.weight_hh_l0[:20], -(2000**-0.5), 2000**-0.5)
    (timescales,) = rm.timescales.of(layer)
    assert timescales.min() > 1.4
    assert timescales.max() < 299.6
    assert layer.bias_hh_l0.requires_grad


@pytest.mark.parametrize(
    ("gate", "undo"),
    [("fast", torch.sinh), ("softsign", torch.log1p), ("refine", lambda bias: bias)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_chrono_means_the_same_timescales_in_every_gate(gate, undo):
    layer = seeded(lambda: rm.LSTM(2, 2000, gate=gate, timescales=rm.timescales.Chrono(300.0)))
    bias = blocks(layer, f"lstm-{gate}-separate")
    logit = undo(bias["forget"])  # positive: u >= 1
    uniform(logit.exp(), 1, 299)
    torch.testing.assert_close(bias["input"], -logit, rtol=1e-5, atol=1e-6)  # biases are float32


@pytest.mark.parametrize(("gate", "start"), [("sigmoid", 1.0), ("fast", math.asinh(1)), ("softsign", math.e - 1)])
def test_janet_without_t_max_starts_at_forget_value_0_731_and_candidate_bias_zero(gate, start):
    bias = blocks(rm.JANET(2, 50, gate=gate), f"janet-{gate}-beta1")
    torch.testing.assert_close(bias["forget"], torch.full((50,), start).double(), rtol=1e-7, atol=0)
    assert (bias["candidate"] == 0).all()


def test_janet_with_t_max_draws_forget_biases_from_log_uniform():
    layer = seeded(lambda: rm.JANET(2, 2000, t_max=784))
    bias = blocks(layer, "janet-sigmoid-beta1")
    uniform(bias["forget"].exp(), 1, 784)
    assert (bias["candidate"] == 0).all()
    assert layer.cell.beta == 1


def test_phased_lstm_starts_as_in_the_frequency_task():
    layer = seeded(lambda: rm.PhasedLSTM(2, 1000))
    uniform(layer.period_l0.log(), 1, 3)
    uniform(layer.shift_l0, 0, 100)
    torch.testing.assert_close(layer.open_ratio_l0, torch.full((1000,), 0.05))
    bias = blocks(layer, "phased-sigmoid-separate")
    torch.testing.assert_close(bias["input"], torch.full((1000,), -0.1).double(), rtol=1e-7, atol=0)
    assert (bias["forget"] == 0).all()
    assert all(getattr(layer, name).requires_grad for name in ("period_l0", "shift_l0", "open_ratio_l0"))
    assert layer.cell.leak == 1e-3


def test_power_law_lstm_starts_uniform_within_one_over_root_h():
    units = 150
    layer = seeded(lambda: rm.PowerLawLSTM(30, units))
    assert sorted(key for key, _ in layer.named_parameters()) == [
        "bias_ih_l0",
        "p_hat_l0",
        "weight_hh_l0",
        "weight_ih_l0",
    ]
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
        uniform(getattr(layer, name), -(units**-0.5), units**-0.5)
    uniform(torch.sigmoid(layer.p_hat_l0), 0, 1)


@pytest.mark.parametrize("gate", ["sigmoid", "fast", "refine"])
def test_everything_but_the_forget_bias_starts_as_in_torch(gate):
    units = 150
    layer = seeded(lambda: rm.LSTM(30, units, gate=gate))
    for name in ("weight_ih_l0", "weight_hh_l0"):
        uniform(getattr(layer, name), -(units**-0.5), units**-0.5)
    for vector in (layer.bias_ih_l0, layer.bias_hh_l0):
        i, f, g, o = vector.detach()[: 4 * units].split(units)
        for block in (i, g, o, *([f] if gate == "sigmoid" else [])):
            uniform(block, -(units**-0.5), units**-0.5)


def test_ur_lstm_starts_with_a_refine_bias_of_minus_the_forget_bias():
    units = 500
    layer = seeded(lambda: rm.LSTM(2, units, gate="ur"))
    bias = blocks(layer, "lstm-ur-separate")
    torch.testing.assert_close(bias["refine"], -bias["forget"], rtol=0, atol=0)
    forget = torch.sigmoid(bias["forget"])
    uniform(forget, 1 / units, 1 - 1 / units)
    # At zero input r = 1 - f, so g = 2 f (1 - f) + (2 f - 1) f^2.
    g = 2 * forget * (1 - forget) + (2 * forget - 1) * forget**2
    torch.testing.assert_close(rm.timescales.of(layer)[0], -1 / g.log(), rtol=1e-9, atol=0)


def test_nru_maps_start_as_linear_layers_of_torch():
    layer = seeded(lambda: rm.NRU(3, 60, memory_size=64, heads=4))
    first, second = (3 + 60 + 64) ** -0.5, (60 + 64) ** -0.5
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_mh_l0", "bias_ih_l0"):
        uniform(getattr(layer, name), -first, first)
    for name in ("weight_write_l0", "bias_write_l0"):
        uniform(getattr(layer, name), -second, second)
