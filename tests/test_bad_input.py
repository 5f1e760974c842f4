"""Whatever is wrong is answered by one sentence: what was expected, and what came."""

import re

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import remanence as rm
from remanence.timescales import Chrono, Fixed, InverseGamma

NAN, INF = float("nan"), float("inf")
STEPS, BATCH, INPUTS, UNITS = 5, 2, 3, 4

GATES = "sigmoid, fast, softsign, refine, ur, power_law"
MODELS = (
    "lstm, lstm-chrono, gru, plstm, fast, softsign, refine, ur, janet, nru, phased, mts, exprnn, urnn, eurnn, goru, sru"
)


def lstm(**keywords):
    return rm.LSTM(INPUTS, UNITS, **keywords)


def power_law(**keywords):
    return rm.PowerLawLSTM(INPUTS, UNITS, **keywords)


def zeros(*shape, **keywords):
    return torch.zeros(*shape, **keywords)


X = zeros(STEPS, BATCH, INPUTS)
PART = zeros(1, BATCH, UNITS)


def refused(call, error, message):
    """Call, and compare the message: the whole of a string, or the pattern of a compiled expression."""
    with pytest.raises(error) as caught:
        call()
    found = str(caught.value)
    assert "\n" not in found
    if isinstance(message, re.Pattern):
        assert message.fullmatch(found), found
    else:
        assert found == message
    return found


def cases(*entries):
    return pytest.mark.parametrize(
        ("call", "error", "message"), [pytest.param(*entry[1:], id=entry[0]) for entry in entries]
    )


@cases(
    (
        "gate-misspelled",
        lambda: lstm(gate="sigmoidd"),
        ValueError,
        f"expected gate to be one of {GATES}, got 'sigmoidd'; did you mean 'sigmoid'?",
    ),
    (
        "gate-in-capitals",
        lambda: rm.GRU(INPUTS, UNITS, gate="FAST"),
        ValueError,
        f"expected gate to be one of {GATES}, got 'FAST'; did you mean 'fast'?",
    ),
    (
        "gate-with-a-hyphen",
        lambda: rm.JANET(INPUTS, UNITS, gate="power-law"),
        ValueError,
        f"expected gate to be one of {GATES}, got 'power-law'; did you mean 'power_law'?",
    ),
    (
        "gate-unlike-any",
        lambda: rm.PhasedLSTM(INPUTS, UNITS, gate="xyz"),
        ValueError,
        f"expected gate to be one of {GATES}, got 'xyz'",
    ),
    (
        "gate-of-a-wrong-type",
        lambda: lstm(gate=3),
        TypeError,
        "expected gate to be a name or a gate object, got int",
    ),
    (
        "model-misspelled",
        lambda: rm.make("plsmt", INPUTS, UNITS),
        ValueError,
        f"expected model to be one of {MODELS}, got 'plsmt'; did you mean 'plstm'?",
    ),
    (
        "model-unlike-any",
        lambda: rm.make("transformer!", INPUTS, UNITS),
        ValueError,
        re.compile(rf"expected model to be one of {MODELS}, got 'transformer!'.*"),
    ),
    (
        "model-of-a-wrong-type",
        lambda: rm.make(["lstm"], INPUTS, UNITS),
        (TypeError, ValueError),
        re.compile(r"expected model to be .*got .*lstm.*"),
    ),
    (
        "engine-misspelled",
        lambda: lstm(engine="lop"),
        ValueError,
        re.compile(r"expected engine to be one of .*\bloop\b.*\bauto\b.*, got 'lop'; did you mean 'loop'\?"),
    ),
    (
        "engine-unlike-any",
        lambda: lstm(engine="xyz"),
        ValueError,
        re.compile(r"expected engine to be one of .*\bloop\b.*, got 'xyz'"),
    ),
    (
        "engine-none",
        lambda: lstm(engine=None),
        (TypeError, ValueError),
        re.compile(r"expected engine to be .*\bloop\b.*, got None"),
    ),
)
def test_unknown_name(call, error, message):
    refused(call, error, message)


SIZED = {
    "LSTM": rm.LSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "PowerLawLSTM": rm.PowerLawLSTM,
    "mts": lambda inputs, units, layers=3: rm.make("mts", inputs, units, num_layers=layers),
}


@pytest.mark.parametrize("value", [0, -3, 2.5, "8", True, None], ids=repr)
@pytest.mark.parametrize("kind", SIZED)
class TestSizes:
    def test_hidden_size(self, kind, value):
        refused(
            lambda: SIZED[kind](INPUTS, value),
            (TypeError, ValueError),
            f"expected hidden_size to be a positive integer, got {value!r}",
        )

    def test_input_size(self, kind, value):
        refused(
            lambda: SIZED[kind](value, UNITS),
            (TypeError, ValueError),
            f"expected input_size to be a positive integer, got {value!r}",
        )

    def test_num_layers(self, kind, value):
        if kind == "mts":
            expected = f"expected model 'mts' to have 3 layers, got num_layers={value}"
        else:
            expected = f"expected num_layers to be a positive integer, got {value!r}"
        refused(lambda: SIZED[kind](INPUTS, UNITS, value), (TypeError, ValueError), expected)


@cases(
    (
        "dropout-above-one",
        lambda: lstm(num_layers=2, dropout=1.5),
        ValueError,
        "expected dropout to be a number in [0, 1], got 1.5",
    ),
    (
        "dropout-negative",
        lambda: rm.GRU(INPUTS, UNITS, 2, dropout=-0.1),
        ValueError,
        "expected dropout to be a number in [0, 1], got -0.1",
    ),
    (
        "dropout-nan",
        lambda: lstm(num_layers=2, dropout=NAN),
        ValueError,
        "expected dropout to be a number in [0, 1], got nan",
    ),
    (
        "dropout-text",
        lambda: lstm(num_layers=2, dropout="0.5"),
        ValueError,
        "expected dropout to be a number in [0, 1], got '0.5'",
    ),
    (
        "dropout-true",
        lambda: lstm(num_layers=2, dropout=True),
        ValueError,
        "expected dropout to be a number in [0, 1], got True",
    ),
    (
        "weight_drop-above-one",
        lambda: lstm(weight_drop=2),
        ValueError,
        "expected weight_drop to be a number in [0, 1], got 2",
    ),
    (
        "weight_drop-nan",
        lambda: rm.NRU(INPUTS, UNITS, weight_drop=NAN),
        ValueError,
        "expected weight_drop to be a number in [0, 1], got nan",
    ),
    (
        "locked-dropout",
        lambda: rm.LockedDropout(-1),
        ValueError,
        "expected p to be a number in [0, 1], got -1",
    ),
    (
        "proj_size-as-large-as-hidden",
        lambda: lstm(proj_size=UNITS),
        ValueError,
        "expected proj_size to be 0 or smaller than hidden_size 4, got 4",
    ),
    (
        "proj_size-negative",
        lambda: lstm(proj_size=-1),
        ValueError,
        "expected proj_size to be 0 or smaller than hidden_size 4, got -1",
    ),
    (
        "proj_size-fraction",
        lambda: lstm(proj_size=1.5),
        ValueError,
        "expected proj_size to be 0 or smaller than hidden_size 4, got 1.5",
    ),
    (
        "proj_size-true",
        lambda: lstm(proj_size=True),
        ValueError,
        "expected proj_size to be 0 or smaller than hidden_size 4, got True",
    ),
    (
        "proj_size-of-a-gru",
        lambda: rm.GRU(INPUTS, UNITS, proj_size=2),
        TypeError,
        re.compile(r".*GRU.* got an unexpected keyword argument 'proj_size'.*"),
    ),
    (
        "proj_size-of-a-gru-by-name",
        lambda: rm.make("gru", INPUTS, UNITS, proj_size=2),
        TypeError,
        "expected keyword arguments of model 'gru', got 'proj_size'",
    ),
    (
        "input_gate",
        lambda: lstm(input_gate="cupled"),
        ValueError,
        "expected input_gate to be 'separate' or 'coupled', got 'cupled'",
    ),
    (
        "input_gate-of-the-phased-lstm",
        lambda: rm.PhasedLSTM(INPUTS, UNITS, input_gate=True),
        ValueError,
        "expected input_gate to be 'separate' or 'coupled', got True",
    ),
    (
        "from_torch-of-another-layer",
        lambda: rm.LSTM.from_torch(torch.nn.GRU(INPUTS, UNITS)),
        TypeError,
        "expected a torch.nn.LSTM, got GRU",
    ),
)
def test_layer_argument(call, error, message):
    refused(call, error, message)


@cases(
    (
        "not-a-square",
        lambda: rm.NRU(INPUTS, UNITS, memory_size=7, heads=4),
        ValueError,
        "expected memory_size * heads to be a square, got 7 * 4 = 28; use for example memory_size=4",
    ),
    (
        "memory-zero",
        lambda: rm.NRU(INPUTS, UNITS, memory_size=0),
        ValueError,
        "expected memory_size to be a positive integer, got 0",
    ),
    (
        "heads-zero",
        lambda: rm.NRU(INPUTS, UNITS, memory_size=9, heads=0),
        ValueError,
        "expected heads to be a positive integer, got 0",
    ),
    (
        "memory-fraction",
        lambda: rm.NRU(INPUTS, UNITS, memory_size=2.5, heads=1),
        (TypeError, ValueError),
        re.compile(r"expected memory_size .*got 2\.5.*"),
    ),
    (
        "heads-fraction",
        lambda: rm.NRU(INPUTS, UNITS, heads=2.0),
        (TypeError, ValueError),
        re.compile(r"expected .*heads .*got .*2\.0.*"),
    ),
)
def test_memory_of_the_nru(call, error, message):
    refused(call, error, message)


def test_the_memory_that_the_nru_suggests_works():
    message = refused(
        lambda: rm.NRU(INPUTS, UNITS, memory_size=50, heads=3), ValueError, re.compile(".*use for example.*")
    )
    suggested = int(re.search(r"memory_size=(\d+)", message).group(1))
    assert rm.NRU(INPUTS, UNITS, memory_size=suggested, heads=3)(X)[0].shape == (STEPS, BATCH, UNITS)


@cases(
    *(
        (
            f"p={p}",
            lambda p=p: power_law(p=p),
            ValueError,
            f"expected p to be a positive number, or None to learn it, got {p}",
        )
        for p in (0, -0.5, NAN, INF)
    ),
    ("p-text", lambda: power_law(p="0.5"), (TypeError, ValueError), re.compile(r"expected p to be .*got '?0\.5'?")),
    (
        "p-per-unit",
        lambda: power_law(p=torch.tensor([0.5, 0.6])),
        (TypeError, ValueError),
        re.compile(r"expected p to be .*got .*0\.6.*"),
    ),
    *(
        (
            f"eps={eps}",
            lambda eps=eps: power_law(eps=eps),
            ValueError,
            f"expected eps to be a number in [0, 1), got {eps}",
        )
        for eps in (-1e-3, 1, 1.0, NAN)
    ),
    (
        "eps-text",
        lambda: power_law(eps="small"),
        (TypeError, ValueError),
        re.compile(r"expected eps to be .*got '?small'?"),
    ),
)
def test_power_law_argument(call, error, message):
    refused(call, error, message)


@cases(
    *(
        (
            f"t_max={t_max}",
            lambda t_max=t_max: Chrono(t_max),
            ValueError,
            f"expected t_max to be a number of at least 2, got {t_max}",
        )
        for t_max in (1.5, 0, -10, NAN, INF)
    ),
    (
        "t_max-text",
        lambda: Chrono("784"),
        (TypeError, ValueError),
        re.compile(r"expected t_max to be .*got '?784'?"),
    ),
    (
        "t_max-of-a-model",
        lambda: rm.make("lstm-chrono", INPUTS, UNITS, t_max=1),
        ValueError,
        "expected t_max to be a number of at least 2, got 1",
    ),
    (
        "t_max-of-janet-is-named-as-it-was-given",
        lambda: rm.JANET(INPUTS, UNITS, t_max=0),
        ValueError,
        re.compile(r"expected t_max to be .*at least 1, got 0"),
    ),
    (
        "t_max-of-janet-text",
        lambda: rm.JANET(INPUTS, UNITS, t_max="784"),
        (TypeError, ValueError),
        re.compile(r"expected t_max to be .*got '?784'?"),
    ),
    *(
        (
            f"alpha={alpha}",
            lambda alpha=alpha: InverseGamma(alpha),
            ValueError,
            f"expected alpha to be a positive number, got {alpha}",
        )
        for alpha in (0, -0.56, NAN, INF)
    ),
    (
        "alpha-text",
        lambda: InverseGamma("0.56"),
        (TypeError, ValueError),
        re.compile(r"expected alpha to be .*got '?0\.56'?"),
    ),
    (
        "scale-zero",
        lambda: InverseGamma(0.56, scale=0.0),
        ValueError,
        "expected scale to be a positive number, got 0.0",
    ),
    *(
        (
            f"fixed-{name}",
            lambda values=values: Fixed(values),
            ValueError,
            f"expected timescales to be positive and finite, got {worst}",
        )
        for name, values, worst in (
            ("zero", 0, "0.0"),
            ("negative-in-a-list", [3.0, -4.0, 5.0], "-4.0"),
            ("nan", [NAN, 1.0], "nan"),
            ("infinite", torch.tensor([1.0, INF]), "inf"),
            ("negative-in-a-layer", [[3.0, 4.0], None, [1.0, -2.0]], "-2.0"),
        )
    ),
    ("fixed-text", lambda: Fixed(["long"]), TypeError, re.compile(r"expected timescales to be numbers, got .*long.*")),
    (
        "freeze-misspelled",
        lambda: Fixed(3.0, freeze="al"),
        (TypeError, ValueError),
        re.compile(r"expected freeze to be .*'all'.*, got 'al'"),
    ),
    (
        "too-few",
        lambda: lstm(timescales=Fixed([1.0, 2.0, 3.0])),
        ValueError,
        "expected one timescale, or 4, one per unit, got shape (3,)",
    ),
    (
        "none-at-all",
        lambda: lstm(timescales=Fixed([])),
        ValueError,
        "expected one timescale, or 4, one per unit, got shape (0,)",
    ),
    (
        "too-many-in-a-layer",
        lambda: lstm(num_layers=2, timescales=Fixed([3.0, [1.0] * 5])),
        ValueError,
        "expected one timescale, or 4, one per unit, got shape (5,)",
    ),
    (
        "too-few-layers-in-fixed",
        lambda: lstm(num_layers=2, timescales=Fixed([[1.0] * 4])),
        ValueError,
        "expected timescales for 2 layers, got 1",
    ),
    (
        "too-few-layers-in-a-list",
        lambda: lstm(num_layers=3, timescales=[Fixed(3.0), None]),
        ValueError,
        "expected timescales for 3 layers, got 2",
    ),
    (
        "a-number",
        lambda: lstm(timescales=5.0),
        TypeError,
        "expected timescales to be one of Chrono, Uniform, InverseGamma, Fixed, or a list of these and None, got 5.0",
    ),
    (
        "a-name",
        lambda: lstm(timescales="chrono"),
        TypeError,
        "expected timescales to be one of Chrono, Uniform, InverseGamma, Fixed, or a list of these and None, "
        "got 'chrono'",
    ),
    (
        "with-power-law",
        lambda: lstm(gate="power_law", timescales=Fixed(3.0)),
        ValueError,
        re.compile("expected a gate .*, got power_law, which has no bias timescale: .*"),
    ),
    (
        "with-the-power-law-layer",
        lambda: rm.make("plstm", INPUTS, UNITS, timescales=Fixed(3.0)),
        ValueError,
        re.compile("expected a gate .*, got power_law, which has no bias timescale: .*"),
    ),
    (
        "without-biases",
        lambda: lstm(bias=False, timescales=Fixed(3.0)),
        ValueError,
        "expected bias=True with timescales, got bias=False",
    ),
    (
        "with-forget-bias",
        lambda: lstm(forget_bias=1.0, timescales=Fixed(3.0)),
        ValueError,
        "expected forget_bias or timescales, which set the same biases, got both",
    ),
)
def test_timescales(call, error, message):
    refused(call, error, message)


@cases(
    *(
        (
            f"forget_bias={value!r}",
            lambda value=value: lstm(forget_bias=value),
            ValueError,
            f"expected forget_bias to be a number, 'matched' or None, got {value!r}",
        )
        for value in ("mached", NAN, INF, True, [1.0])
    ),
    (
        "without-biases",
        lambda: lstm(bias=False, forget_bias=1.0),
        ValueError,
        "expected bias=True with forget_bias, got bias=False",
    ),
    (
        "with-power-law",
        lambda: lstm(gate="power_law", forget_bias=1.0),
        ValueError,
        re.compile("expected a gate .*, got power_law, which has no bias timescale: .*"),
    ),
)
def test_forget_bias(call, error, message):
    refused(call, error, message)


LAYERS = {
    "LSTM": lstm,
    "PowerLawLSTM": power_law,
    "GRU": lambda **k: rm.GRU(INPUTS, UNITS, **k),
    "JANET": lambda **k: rm.JANET(INPUTS, UNITS, **k),
    "NRU": lambda **k: rm.NRU(INPUTS, UNITS, **k),
    "PhasedLSTM": lambda **k: rm.PhasedLSTM(INPUTS, UNITS, **k),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        pytest.param(
            zeros(STEPS, BATCH, 2),
            ValueError,
            "expected input with 3 features in its last dimension, got 2",
            id="features",
        ),
        pytest.param(
            pack_sequence([zeros(STEPS, 2)]),
            ValueError,
            "expected input with 3 features in its last dimension, got 2",
            id="features-packed",
        ),
        pytest.param(zeros(INPUTS), ValueError, "expected input with 2 or 3 dimensions, got 1", id="one-dimension"),
        pytest.param(
            zeros(1, 1, 1, INPUTS), ValueError, "expected input with 2 or 3 dimensions, got 4", id="four-dimensions"
        ),
        pytest.param(
            zeros(STEPS, BATCH, INPUTS, dtype=torch.long),
            TypeError,
            "expected input of a floating-point dtype, got torch.int64",
            id="integers",
        ),
        pytest.param(
            zeros(STEPS, BATCH, INPUTS, dtype=torch.float64),
            ValueError,
            "expected input of dtype torch.float32 like the weights, got torch.float64",
            id="float64",
        ),
        pytest.param(
            zeros(STEPS, BATCH, INPUTS, dtype=torch.float16),
            ValueError,
            "expected input of dtype torch.float32 like the weights, got torch.float16",
            id="float16",
        ),
        pytest.param(
            zeros(0, BATCH, INPUTS), ValueError, "expected sequences of at least one step, got none", id="no-steps"
        ),
        pytest.param(
            zeros(0, INPUTS), ValueError, "expected sequences of at least one step, got none", id="no-steps-unbatched"
        ),
        pytest.param(
            None, TypeError, "expected input to be a tensor or a PackedSequence, got NoneType", id="not-a-tensor"
        ),
    ],
)
def test_input(kind, x, error, message):
    refused(lambda: LAYERS[kind]()(x), error, message)


@cases(
    (
        "one-tensor-for-an-lstm",
        lambda: lstm()(X, PART),
        ValueError,
        "expected state to be the 2 tensors (hidden, cell), got 1; cell is missing",
    ),
    (
        "age-is-missing",
        lambda: power_law()(X, (PART, PART)),
        ValueError,
        "expected state to be the 3 tensors (hidden, cell, age), got 2; age is missing",
    ),
    (
        "clock-is-missing",
        lambda: rm.PhasedLSTM(INPUTS, UNITS)(X, (PART, PART)),
        ValueError,
        "expected state to be the 3 tensors (hidden, cell, clock), got 2; clock is missing",
    ),
    (
        "memory-is-missing",
        lambda: rm.NRU(INPUTS, UNITS)(X, PART),
        ValueError,
        "expected state to be the 2 tensors (hidden, memory), got 1; memory is missing",
    ),
    (
        "too-many-tensors",
        lambda: lstm()(X, (PART, PART, PART)),
        ValueError,
        "expected state to be the 2 tensors (hidden, cell), got 3",
    ),
    (
        "too-many-tensors-for-a-gru",
        lambda: rm.GRU(INPUTS, UNITS)(X, (PART, PART)),
        ValueError,
        re.compile(r"expected state to be the .*\(hidden\), got 2"),
    ),
    (
        "another-batch",
        lambda: lstm()(X, (PART, zeros(1, 3, UNITS))),
        ValueError,
        "expected cell state of shape (1, 2, 4), got (1, 3, 4)",
    ),
    (
        "another-width",
        lambda: rm.GRU(INPUTS, UNITS)(X, zeros(1, BATCH, 5)),
        ValueError,
        "expected hidden state of shape (1, 2, 4), got (1, 2, 5)",
    ),
    (
        "another-number-of-layers",
        lambda: lstm(num_layers=2)(X, (PART, PART)),
        ValueError,
        "expected hidden state of shape (2, 2, 4), got (1, 2, 4)",
    ),
    (
        "width-of-the-projection",
        lambda: lstm(proj_size=2)(X, (PART, PART)),
        ValueError,
        "expected hidden state of shape (1, 2, 2), got (1, 2, 4)",
    ),
    (
        "width-of-the-clock",
        lambda: rm.PhasedLSTM(INPUTS, UNITS)(X, (PART, PART, PART)),
        ValueError,
        "expected clock state of shape (1, 2, 1), got (1, 2, 4)",
    ),
    (
        "batched-state-for-unbatched-input",
        lambda: lstm()(X[:, 0], (PART, PART)),
        ValueError,
        "expected hidden state of shape (1, 4), got (1, 2, 4)",
    ),
    (
        "unbatched-state-for-batched-input",
        lambda: lstm()(X, (PART[:, 0], PART[:, 0])),
        ValueError,
        "expected hidden state of shape (1, 2, 4), got (1, 4)",
    ),
    (
        "text",
        lambda: lstm()(X, "zeros"),
        TypeError,
        "expected state to be the tensors (hidden, cell), got str",
    ),
    (
        "mapping",
        lambda: lstm()(X, {"hidden": PART, "cell": PART}),
        TypeError,
        "expected state to be the tensors (hidden, cell), got dict",
    ),
    (
        "a-part-that-is-no-tensor",
        lambda: lstm()(X, (PART, None)),
        TypeError,
        re.compile(r"expected state to be the tensors \(hidden, cell\), got .*None.*"),
    ),
    (
        "state-and-hx",
        lambda: lstm()(X, (PART, PART), hx=(PART, PART)),
        TypeError,
        "expected either state or hx, which are the same argument, got both",
    ),
    (
        "record-checks-as-well",
        lambda: rm.record(power_law(), X, (PART, PART)),
        ValueError,
        "expected state to be the 3 tensors (hidden, cell, age), got 2; age is missing",
    ),
)
def test_state(call, error, message):
    refused(call, error, message)


def spoiled(value):
    dt = torch.ones(STEPS, BATCH)
    dt[3, 1] = value
    return dt


@cases(
    *(
        (
            name,
            lambda value=value: power_law()(X, dt=spoiled(value)),
            ValueError,
            f"expected dt to be finite and not negative, got values from {bounds}",
        )
        for name, value, bounds in (
            ("negative", -0.5, "-0.5 to 1.0"),
            ("nan", NAN, "nan to nan"),
            ("infinite", INF, "1.0 to inf"),
        )
    ),
    (
        "negative-for-the-phased-lstm",
        lambda: rm.PhasedLSTM(INPUTS, UNITS)(X, dt=spoiled(-2.0)),
        ValueError,
        "expected dt to be finite and not negative, got values from -2.0 to 1.0",
    ),
    (
        "transposed",
        lambda: power_law()(X, dt=torch.ones(BATCH, STEPS)),
        ValueError,
        "expected dt of shape (5, 2) or (5,), got (2, 5)",
    ),
    (
        "time-first-for-batch-first-input",
        lambda: power_law(batch_first=True)(X.transpose(0, 1), dt=torch.ones(STEPS, BATCH)),
        ValueError,
        "expected dt of shape (2, 5) or (5,), got (5, 2)",
    ),
    (
        "three-dimensions",
        lambda: power_law()(X, dt=torch.ones(STEPS, BATCH, 1)),
        ValueError,
        "expected dt of shape (5, 2) or (5,), got (5, 2, 1)",
    ),
    (
        "one-number",
        lambda: power_law()(X, dt=2.0),
        ValueError,
        "expected dt of shape (5, 2) or (5,), got ()",
    ),
    (
        "unbatched",
        lambda: power_law()(X[:, 0], dt=torch.ones(STEPS, 1)),
        ValueError,
        "expected dt of shape (5,), got (5, 1)",
    ),
    (
        "packed-for-padded-input",
        lambda: power_law()(X, dt=pack_sequence([torch.ones(STEPS)] * 2)),
        ValueError,
        "expected dt to be a tensor like the input, got a PackedSequence",
    ),
    (
        "packed-with-other-lengths",
        lambda: power_law()(pack_sequence([zeros(5, 3), zeros(2, 3)]), dt=pack_sequence([zeros(5), zeros(3)])),
        ValueError,
        re.compile(r"expected packed dt with one value per packed step \(7\) and the same lengths .*, got .*\(8,\).*"),
    ),
    (
        "booleans",
        lambda: power_law()(X, dt=torch.ones(STEPS, BATCH, dtype=torch.bool)),
        TypeError,
        "expected dt to hold real numbers, got torch.bool",
    ),
    (
        "text",
        lambda: power_law()(X, dt="fast"),
        TypeError,
        re.compile(r"expected dt to .*got .*(str|fast).*"),
    ),
    (
        "lstm-has-no-use-for-it",
        lambda: lstm()(X, dt=torch.ones(STEPS, BATCH)),
        ValueError,
        "expected no dt, got one: LSTM with gate 'sigmoid' does not use the time between steps",
    ),
    (
        "gru-has-no-use-for-it",
        lambda: rm.GRU(INPUTS, UNITS, gate="fast")(X, dt=torch.ones(STEPS, BATCH)),
        ValueError,
        "expected no dt, got one: GRU with gate 'fast' does not use the time between steps",
    ),
    (
        "janet-has-no-use-for-it",
        lambda: rm.JANET(INPUTS, UNITS)(X, dt=torch.ones(STEPS, BATCH)),
        ValueError,
        "expected no dt, got one: JANET with gate 'sigmoid' does not use the time between steps",
    ),
    (
        "nru-has-no-use-for-it",
        lambda: rm.NRU(INPUTS, UNITS)(X, dt=torch.ones(STEPS, BATCH)),
        ValueError,
        "expected no dt, got one: NRU does not use the time between steps",
    ),
)
def test_dt(call, error, message):
    refused(call, error, message)


def test_dt_past_the_end_of_a_packed_sequence_is_not_looked_at():
    layer = power_law()
    packed = pack_sequence([zeros(5, INPUTS), zeros(2, INPUTS)])
    dt = torch.ones(5, 2)
    expected = layer(packed, dt=dt)[0].data
    dt[2:, 1] = NAN
    assert torch.equal(layer(packed, dt=dt)[0].data, expected)


@cases(
    ("a-number", lambda: rm.timescales.estimate(lstm(), 5), TypeError, re.compile(r"expected .*got int")),
    ("numbers", lambda: rm.timescales.estimate(lstm(), [5]), TypeError, re.compile(r"expected .*got int")),
)
def test_batches_to_estimate_from(call, error, message):
    refused(call, error, message)
