"""Delays a model was not trained on."""

import json
import math

import numpy
import pytest
import torch

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel


def test_a_model_that_never_forgets_is_right_at_every_delay(storing, copy_at):
    found = analysis.generalisation(storing(), copy_at, (3, 10, 40), sequences=50)
    assert found.goal == "accuracy"
    assert found.mean.tolist() == [1, 1, 1]
    assert found.std.tolist() == [0, 0, 0]


def test_a_model_that_forgets_fails_where_its_memory_falls_below_what_it_needs(storing, copy_at):
    """After a delay of T the cell has decayed T + 1 times, by sigmoid(3) each; it is said as long as tanh(c) > 0.5."""
    forget = 1 / (1 + math.exp(-3))
    delays = range(3, 22, 3)
    expected = [float(math.tanh(forget ** (delay + 1)) > 0.5) for delay in delays]
    assert set(expected) == {0.0, 1.0}
    found = analysis.generalisation(storing(forget=3.0), copy_at, delays, sequences=30)
    assert found.mean.tolist() == expected


def test_several_models_run_side_by_side_give_what_each_gives_alone(copy_at):
    models = [SequenceModel(rm.PowerLawLSTM(6, 5), 6) for _ in range(3)]

    def task_at(delay):
        return copy_at(delay, length=3)

    found = analysis.generalisation(models, task_at, (4, 9), sequences=40, at_once=15)
    alone = [analysis.generalisation(model, task_at, (4, 9), sequences=40) for model in models]
    assert set(found.scores) == {"loss", "accuracy", "sequence_accuracy"}
    for name, values in found.scores.items():
        assert values.shape == (3, 2)
        numpy.testing.assert_allclose(values, numpy.concatenate([one.scores[name] for one in alone]), rtol=1e-6)
    numpy.testing.assert_allclose(found.mean, found.scores["accuracy"].mean(0))
    numpy.testing.assert_allclose(found.std, found.scores["accuracy"].std(0, ddof=1))
    assert all(model.training for model in models)
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_scores_are_those_of_the_task_on_the_same_sequences(copy_at):
    model, task = SequenceModel(rm.LSTM(6, 5), 6), copy_at(7, length=2)
    found = analysis.generalisation(model, lambda _: task, (7,), sequences=20)
    (batch,) = analysis.sequences_of(task, 20)
    with torch.no_grad():
        said = model(batch.inputs)[0][-2:].argmax(-1)
    assert found.mean[0] == pytest.approx(float((said == batch.targets[-2:]).double().mean()))


def test_nothing_to_do_is_refused(storing, copy_at):
    with pytest.raises(ValueError, match="expected at least one model and one delay, got 0 and 1"):
        analysis.generalisation([], copy_at, (3,))
    with pytest.raises(ValueError, match="expected at least one model and one delay, got 1 and 0"):
        analysis.generalisation(storing(), copy_at, ())
