"""Whether a model forgets its initial state."""

import json

import numpy
import pytest
import torch
from torch import nn

import remanence as rm
from remanence import analysis
from remanence.models import LanguageModel, SequenceModel


@pytest.fixture
def undecided():
    """A unit that drives itself to where it began: from nothing it goes up, and once it is down it stays down."""
    layer = rm.LSTM(1, 1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[:] = torch.tensor([5.0, -5.0, 0.0, 5.0])  # writes, forgets, shows
        layer.weight_hh_l0[2] = 4.0  # what it writes is what it was
        layer.weight_ih_l0[2] = 1.0
    return layer


def inputs_that_push(ways, steps=60, until=20, dtype=torch.float64):
    """Pushes up or down at first, and a faint one up at the end."""
    inputs = torch.full((steps, len(ways), 1), 0.05, dtype=dtype)
    inputs[:until] = 3.0 * torch.tensor(ways, dtype=dtype)[:, None]
    return inputs


def test_sequences_that_never_recover_are_found(undecided):
    found = analysis.attractors(undecided, inputs_that_push([1.0, -1.0, 1.0, -1.0, 1.0]), warm=20)
    assert found.locked.tolist() == [1, 3]
    assert found.share == 0.4
    assert found.steps.tolist() == [10, 20, 30, 40]
    assert found.distance.shape == (4, 5)
    numpy.testing.assert_allclose(found.distance[-1, [1, 3]], 2.0, atol=1e-6)
    numpy.testing.assert_allclose(found.distance[-1, [0, 2, 4]], 0.0, atol=1e-6)
    assert json.loads(json.dumps(found.plain()))["locked"] == [1, 3]


def test_the_state_of_another_sequence_as_initial_state(undecided):
    found = analysis.attractors(undecided, inputs_that_push([1.0, 1.0, -1.0]), warm=20, start="others", every=7)
    assert found.locked.tolist() == [0, 2]  # the first has what the last had, the last what the second had
    assert found.steps.tolist() == [7, 14, 21, 28, 35, 40]


@pytest.mark.parametrize(
    "model",
    [
        rm.GRU(3, 5, 2),
        nn.LSTM(3, 5),
        rm.LSTM(3, 5, batch_first=True),
        SequenceModel(rm.JANET(3, 5), 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_that_forgets_has_no_second_attractor(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)  # small weights, gates at a half: it forgets
    inputs = torch.randn(300, 4, 3)
    given = inputs.transpose(0, 1) if getattr(model, "batch_first", False) else inputs
    found = analysis.attractors(model, given, warm=150, every=50)
    assert found.share == 0.0
    assert (found.distance[-1] < 1e-4).all()


def test_language_models_work_as_well():
    model = LanguageModel(11, 4, 6, 2)
    found = analysis.attractors(model, torch.randint(11, (200, 3)), warm=100)
    assert found.distance.shape == (10, 3)
    assert found.share == 0.0


def test_a_model_that_never_forgets_keeps_its_initial_state():
    layer = rm.LSTM(1, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[:] = torch.tensor([0.0, 50.0, 3.0, 5.0])  # keeps, has something to write, shows
        layer.weight_ih_l0[0] = 50.0  # and writes when it is told to
    told = torch.ones(60, 2, 1)
    told[20:] = -1
    found = analysis.attractors(layer, told, warm=20)
    assert found.locked.tolist() == [0, 1]
    numpy.testing.assert_allclose(found.distance, 2.0, atol=1e-5)


def test_nothing_changes_and_the_mode_stays(undecided):
    undecided.train()
    before = {name: value.clone() for name, value in undecided.state_dict().items()}
    analysis.attractors(undecided, inputs_that_push([1.0]), warm=20)
    assert undecided.training
    assert all(torch.equal(value, before[name]) for name, value in undecided.state_dict().items())


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"warm": 0}, "expected warm to be between 1 and 59 for 60 steps, got 0"),
        ({"warm": 60}, "expected warm to be between 1 and 59"),
        ({"warm": 9, "every": 0}, "expected every to be at least 1, got 0"),
        ({"warm": 9, "start": "noise"}, "expected start to be 'zeros' or 'others', got 'noise'"),
    ],
)
def test_invalid_arguments_are_refused(undecided, keywords, sentence):
    with pytest.raises(ValueError, match=sentence):
        analysis.attractors(undecided, inputs_that_push([1.0]), **keywords)


def test_bidirectional_models_are_refused():
    with pytest.raises(ValueError, match="expected a unidirectional model"):
        analysis.attractors(rm.LSTM(1, 2, bidirectional=True), inputs_that_push([1.0], dtype=torch.float32), warm=9)
