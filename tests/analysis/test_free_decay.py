"""The remanence curve of models whose curve is known."""

import copy
import json

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import remanence as rm
from remanence import analysis
from remanence.analysis.free_decay import _distance
from remanence.models import LanguageModel, SequenceModel
from remanence.tasks import CopyVariable, Frequency
from remanence.timescales import Fixed

TIMESCALES = [1.0, 5.0, 40.0, 700.0]
STEPS = 60


@torch.no_grad()
def remembering(layer=rm.LSTM, **arguments):
    """A layer whose units have set timescales, receive no input from each other, and write nothing without input."""
    made = layer(3, len(TIMESCALES), timescales=Fixed(TIMESCALES), dtype=torch.float64, **arguments)
    made.weight_hh_l0.zero_()
    units = len(TIMESCALES)
    names = made.cell.blocks
    for vector in (made.bias_ih_l0, getattr(made, "bias_hh_l0", None)):
        if vector is not None:
            start = names.index("candidate") * units
            vector[start : start + units] = 0
    return made


@pytest.mark.parametrize("off", ["input", "gates"])
@pytest.mark.parametrize("gate", ["sigmoid", "fast", "refine"])
@pytest.mark.parametrize("layer", [rm.LSTM, rm.GRU, rm.JANET])
def test_units_with_set_timescales_decay_with_them(layer, gate, off):
    model = remembering(layer, gate=gate)
    found = analysis.free_decay(model, torch.randn(30, 5, 3, dtype=torch.float64), steps=STEPS, off=off)
    (decay,) = found.layers
    n = numpy.arange(STEPS + 1)
    assert (decay.name, found.sequences) == ("l0", 5)
    numpy.testing.assert_allclose(decay.remaining, numpy.exp(-n[:, None] / TIMESCALES), rtol=1e-6, atol=1e-13)
    numpy.testing.assert_allclose(decay.mean, decay.remaining @ decay.start / decay.start.sum())
    numpy.testing.assert_allclose(decay.fits.timescale, TIMESCALES, rtol=1e-4)
    assert decay.fits.better == ["exponential"] * 4
    assert decay.mean_fit.better == ["power law"]  # of four timescales together
    numpy.testing.assert_allclose(rm.timescales.of(model)[0], TIMESCALES)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


@torch.no_grad()
def holding_power_law(p, dtype=torch.float64):
    """Power-law units that reset at input alone: in silence their ages grow by one a step."""
    layer = rm.PowerLawLSTM(2, len(p), dtype=dtype, eps=1e-6)
    layer.weight_hh_l0.zero_()
    layer.weight_ih_l0[:].normal_()
    layer.bias_ih_l0.zero_()
    layer.weight_ih_l0[: len(p)] = torch.tensor([60.0, 0.0])  # the reset gate hears the first input
    layer.bias_ih_l0[: len(p)] = -30.0
    layer.p_hat_l0.copy_(torch.logit(torch.tensor(p, dtype=dtype)))
    return layer


@pytest.mark.parametrize("off", ["input", "gates"])
@pytest.mark.parametrize("since", [1, 8])
def test_power_law_units_decay_by_their_age_and_exponent(since, off):
    torch.manual_seed(0)
    exponents = [0.1, 0.4, 0.8]
    heard = torch.randn(20, 6, 2, dtype=torch.float64)
    heard[:, :, 0] = 0
    heard[20 - since, :, 0] = 1  # the last reset, after which the age is 0
    found = analysis.free_decay(holding_power_law(exponents), heard, steps=STEPS, off=off, against="zero")
    (decay,) = found.layers
    n = numpy.arange(STEPS + 1)
    expected = (1 + n[:, None] / since) ** -numpy.array(exponents)
    numpy.testing.assert_allclose(decay.remaining, expected, rtol=1e-4)
    assert decay.fits.better == ["power law"] * 3
    numpy.testing.assert_allclose(decay.fits.exponent, exponents, rtol=1e-2)
    numpy.testing.assert_allclose(decay.fits.age, since, rtol=2e-2)


@torch.no_grad()
def test_cells_written_by_biases_do_not_count_as_memory():
    model = remembering()
    model.bias_hh_l0[8:12] = 1.0  # the candidate: in silence cells go to a value that is not zero
    heard = torch.randn(30, 5, 3, dtype=torch.float64)
    cells = analysis.free_decay(model, heard, steps=STEPS, against="zero").layers[0]
    trace = analysis.free_decay(model, heard, steps=STEPS).layers[0]
    n = numpy.arange(STEPS + 1)
    numpy.testing.assert_allclose(trace.remaining, numpy.exp(-n[:, None] / TIMESCALES), atol=1e-9)
    assert cells.remaining[-1, 0] > 0.05  # T = 1: nothing is left of what was heard after 60 steps
    by_gates = analysis.free_decay(model, heard, steps=STEPS, off="gates").layers[0]
    numpy.testing.assert_allclose(by_gates.remaining, numpy.exp(-n[:, None] / TIMESCALES), rtol=1e-9)


def test_free_decay_equals_running_the_layer_on_zeros():
    model = SequenceModel(rm.LSTM(3, 6, 2), 4)
    heard = torch.randn(70, 4, 3)  # more than is watched at a time
    found = analysis.free_decay(model, heard, steps=57, against="zero")
    with torch.no_grad():
        whole = rm.record(model.layer, torch.cat((heard, torch.zeros(57, 4, 3))))
    for decay, record in zip(found.layers, whole, strict=True):
        sizes = record["cell"][69:].double().abs().mean(1).numpy()
        numpy.testing.assert_allclose(decay.remaining, sizes / sizes[0], rtol=1e-4)
    assert [decay.name for decay in found.layers] == ["l0", "l1"]
    assert model.training


def test_torch_layers_are_accepted():
    theirs = nn.LSTM(3, 5, 2, batch_first=True)
    heard = torch.randn(4, 20, 3)
    ours = rm.LSTM.from_torch(theirs)
    for off in ("input", "gates"):
        one, other = (analysis.free_decay(model, heard, steps=30, off=off) for model in (theirs, ours))
        for left, right in zip(one.layers, other.layers, strict=True):
            numpy.testing.assert_array_equal(left.remaining, right.remaining)
    timescales = rm.timescales.of(ours)
    for decay, own in zip(one.layers, timescales, strict=True):
        numpy.testing.assert_allclose(decay.fits.timescale, own, rtol=1e-4)
    gru = analysis.free_decay(nn.GRU(3, 5), torch.randn(20, 4, 3), steps=30, off="gates")
    assert gru.layers[0].fits.better == ["exponential"] * 5


def test_sequences_of_different_lengths_are_each_run_to_their_end():
    layer = rm.LSTM(3, 4)
    parts = [torch.randn(length, 3) for length in (5, 12, 9)]
    together = analysis.free_decay(layer, pack_sequence(parts, enforce_sorted=False), steps=10, against="zero")
    apart = [analysis.free_decay(layer, part, steps=10, against="zero").layers[0] for part in parts]
    starts = numpy.stack([one.start for one in apart])
    numpy.testing.assert_allclose(together.layers[0].start, starts.mean(0), rtol=1e-5)
    sizes = sum(one.remaining * one.start for one in apart)
    numpy.testing.assert_allclose(together.layers[0].remaining, sizes / starts.sum(0), rtol=1e-4)


def test_a_batch_of_a_task_is_run_to_the_end_of_every_sequence():
    task = CopyVariable(shortest=3, longest=9, symbols=4, length=2, train_size=None, validation_size=6)
    (batch,) = analysis.sequences_of(task, 6)
    model = SequenceModel(rm.PowerLawLSTM(6, 5), 6)
    found = analysis.free_decay(model, batch, steps=5, against="zero").layers[0]
    with torch.no_grad():
        cells = [
            model.layer(batch.inputs[: int(length), number : number + 1])[1][1]
            for number, length in enumerate(batch.lengths)
        ]
    numpy.testing.assert_allclose(found.start, torch.stack(cells).abs().mean((0, 1, 2)), rtol=1e-5)


def test_dt_is_used_while_driving_the_model():
    task = Frequency(sampling="async", validation_size=5)
    (batch,) = analysis.sequences_of(task, 5)
    model = SequenceModel(rm.PowerLawLSTM(task.input_size, 4), task.output_size, readout="last")
    lengths = torch.full((5,), len(batch.inputs)) if batch.lengths is None else batch.lengths
    with torch.no_grad():
        cells = [
            model.layer(batch.inputs[:length, [number]], dt=batch.dt[:length, [number]])[1][1]
            for number, length in enumerate(lengths.tolist())
        ]
    found = analysis.free_decay(model, batch, steps=3, against="zero").layers[0]
    numpy.testing.assert_allclose(found.start, torch.stack(cells).abs().mean((0, 1, 2)), rtol=1e-4)


def test_the_layers_of_a_language_model_decay_each_with_its_timescale():
    torch.manual_seed(1)
    timescales = [Fixed(3.0, freeze=True), Fixed(50.0, freeze=True), None]
    model = LanguageModel(20, 6, 8, timescales=timescales, dtype=torch.float64)
    text = torch.randint(20, (120,))
    found = analysis.free_decay(model, text, steps=40, off="gates")
    first, second, third = found.layers
    numpy.testing.assert_allclose(first.fits.timescale, 3.0, rtol=1e-6)
    numpy.testing.assert_allclose(second.fits.timescale, 50.0, rtol=1e-6)
    numpy.testing.assert_allclose(third.fits.timescale, rm.timescales.of(model)[2], rtol=1e-5)
    quiet = analysis.free_decay(model, text, steps=40)
    assert quiet.layers[0].mean[-1] < quiet.layers[1].mean[-1] < 1
    assert model.training


def holds_nothing(decay):
    nan = numpy.isnan(decay.remaining).all() and numpy.isnan(decay.mean).all()
    return nan and not decay.start.any() and set(decay.fits.better) == {None}


@pytest.mark.parametrize("off", ["input", "gates"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [rm.LSTM, rm.GRU, rm.PowerLawLSTM])
def test_zero_input_before_the_switch_leaves_nothing_to_forget(layer, dtype, off):
    model, silence = layer(3, 64, 2, dtype=dtype), torch.zeros(40, 33, 3, dtype=dtype)
    found = analysis.free_decay(model, silence, steps=20, off=off, against="rest")
    assert all(map(holds_nothing, found.layers))
    heard = silence.clone()
    heard[-1, 0, 0] = 1.0  # one sequence hears something, once
    assert not any(map(holds_nothing, analysis.free_decay(model, heard, steps=20, off=off, against="rest").layers))


@pytest.mark.parametrize("eps", [torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps])
def test_a_distance_within_rounding_counts_as_zero(eps):
    rest = torch.tensor([0.7, 1e-4, -0.3, 0.5], dtype=torch.float64).expand(3, 2, 4)
    heard = rest.clone()
    heard[:, 0] += 3 * eps * torch.tensor([1, -1, 0, 0])  # of the largest cell, so for the small one too
    heard[:, 1] += torch.tensor([0, 0, 100 * eps, 1e-3])
    distance = _distance(heard, rest, eps)
    assert (distance[0] != 0).tolist() == [[False] * 4, [False, False, True, True]]
    assert torch.equal(distance[1:], (heard - rest)[1:])  # what comes later may come from other units
    assert torch.equal(distance[0, :, 2:], (heard - rest)[0, :, 2:])


def test_models_are_not_changed():
    model = rm.PowerLawLSTM(3, 4).train()
    before = copy.deepcopy(model.state_dict())
    analysis.free_decay(model, torch.randn(9, 3), steps=4)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (lambda: rm.LSTM(3, 4, bidirectional=True), {}, "expected a unidirectional model, got a bidirectional one"),
        (lambda: rm.NRU(3, 4), {}, "expected layers with cells, got NRU, which has none"),
        (lambda: rm.PhasedLSTM(3, 4), {"off": "gates"}, "expected off='input' with a PhasedLSTM"),
        (lambda: rm.LSTM(3, 4), {"off": "everything"}, "expected off to be 'input' or 'gates', got 'everything'"),
        (lambda: rm.LSTM(3, 4), {"against": "one"}, "expected against to be 'rest' or 'zero', got 'one'"),
        (lambda: rm.LSTM(3, 4), {"steps": 0}, "expected at least one step without input, got 0"),
        (lambda: rm.LSTM(2, 4), {}, "expected sequences of 2 features"),
    ],
)
def test_unsupported_models_are_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.free_decay(model(), torch.randn(5, 2, 3), **arguments)


def test_something_that_is_not_a_model_is_refused():
    with pytest.raises(TypeError, match="expected a recurrent layer, a SequenceModel, a LanguageModel"):
        analysis.free_decay(nn.Linear(3, 4), torch.randn(5, 2, 3))
