"""Scores by length of the sequence."""

import json
import math

import numpy
import pytest
import torch

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel, forward_together
from remanence.tasks import IMDB, Adding, Batch, Copy, CopyVariable, Dyck2, Frequency, Score, side_by_side
from remanence.tasks.base import Task
from remanence.tasks.imdb import bin_name


def variable(**arguments):
    arguments = {"shortest": 5, "longest": 20, "symbols": 4, "length": 1, "validation_size": 200, **arguments}
    return CopyVariable(train_size=None, **arguments)


def test_a_model_that_forgets_after_known_steps_is_right_up_to_there(storing):
    """Unit k holds symbol k and loses a twentieth of it a step, and the symbol is said above one half."""
    kept = 0.95
    model = storing(forget=math.log(kept / (1 - kept)), threshold=0.5)
    found = analysis.accuracy_by_length(model, variable(), edges=range(7, 24), sequences=200)
    # tanh(c) > 0.5 for c > 0.549: after the symbol come delay + 1 steps. The length is delay + 2.
    right = [float(math.tanh(kept ** (length - 1)) > 0.5) for length in range(7, 23)]
    assert found.labels[0] == "7-7"
    assert found.labels[-1] == "22-23"
    assert found.score == "accuracy"
    assert sorted(set(right)) == [0, 1]
    numpy.testing.assert_array_equal(found.mean, right)
    numpy.testing.assert_array_equal(found.shortest, range(7, 23))
    assert found.sequences.sum() == 200
    assert (found.standard_error == 0).all()
    assert found.overall == pytest.approx([(found.sequences * right).sum() / 200])
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


class Guessing(Task):
    """Right answers to some sequences of known lengths and kinds: what a model says does not matter."""

    name, readout, goal, input_size, output_size = "guessing", "last", "accuracy", 3, 2
    lengths = torch.tensor([2, 2, 3, 5, 5, 5, 8])
    right = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    groups = torch.tensor([0, 1, 1, 0, 0, 3, 1])

    def __init__(self, grouped=False):
        self.grouped = grouped

    def source(self, split, seed, device):
        task = self

        class All:
            size = 7

            def pick(self, numbers):
                inputs = torch.zeros(8, len(numbers), 3)
                groups = task.groups[numbers] if task.grouped else None
                return Batch(inputs, task.right[numbers], lengths=task.lengths[numbers], groups=groups)

        return All()

    def loss(self, outputs, batch):
        raise NotImplementedError

    def scores(self, outputs, batch):
        assert outputs.shape[:2] == batch.targets.shape
        return {"accuracy": Score(batch.targets.sum(1).double(), torch.ones_like(batch.targets).sum(1).double())}


@pytest.mark.parametrize("at_once", [3, 100])
def test_bins_of_length_by_hand(at_once):
    model = SequenceModel(rm.LSTM(3, 4), 2, readout="last")
    found = analysis.accuracy_by_length([model, model], Guessing(), edges=(2, 4, 6, 7, 8), at_once=at_once)
    assert found.labels == ["2-3", "4-5", "6-6", "7-8"]
    assert found.sequences.tolist() == [3, 3, 0, 1]
    numpy.testing.assert_allclose(found.values, [[2 / 3, 2 / 3, math.nan, 0]] * 2)
    numpy.testing.assert_allclose(found.mean, [2 / 3, 2 / 3, math.nan, 0])
    six = numpy.array([1, 0, 1, 1, 0, 1])  # three sequences, two models
    error = six.std(ddof=1) / math.sqrt(6)
    numpy.testing.assert_allclose(found.standard_error, [error, error, math.nan, 0])
    assert found.longest.tolist() == [3, 5, 0, 8]
    equal = analysis.accuracy_by_length(model, Guessing(), bins=3)
    assert (equal.labels, equal.sequences.tolist()) == (["2-3", "4-5", "6-8"], [3, 3, 1])


def test_groups_of_the_task_come_first():
    model = SequenceModel(rm.LSTM(3, 4), 2, readout="last")
    found = analysis.accuracy_by_length(model, Guessing(grouped=True), labels=list("abcd"))
    assert found.labels == list("abcd")
    assert found.sequences.tolist() == [3, 3, 0, 1]
    numpy.testing.assert_allclose(found.mean, [1, 1 / 3, math.nan, 0])
    assert analysis.accuracy_by_length(model, Guessing(grouped=True)).labels[3] == "group 3"
    by_length = analysis.accuracy_by_length(model, Guessing(grouped=True), edges=(2, 8))
    assert by_length.sequences.tolist() == [7]


def test_the_bins_of_dyck2_are_those_of_its_scores():
    task = Dyck2(longest=40, train_size=10, validation_size=150, test_size=0)
    model = SequenceModel(rm.LSTM(task.input_size, 8), task.output_size)
    found = analysis.accuracy_by_length(model, task, score="accuracy")
    by_dependency = analysis.accuracy_by_dependency(model, task)
    assert found.sequences.tolist() == by_dependency.strings.tolist()
    numpy.testing.assert_allclose(found.mean, by_dependency.mean)


TASKS = {
    "copy": Copy(delay=4, symbols=3, length=2, validation_size=9),
    "copy-variable": variable(length=2, validation_size=9),
    "adding": Adding(length=12, validation_size=9),
    "frequency": Frequency(sampling="async", validation_size=9),
    "dyck2": Dyck2(longest=20, train_size=5, validation_size=9, test_size=0),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("layer", [rm.LSTM, rm.PowerLawLSTM])
def test_scores_of_single_sequences_add_up_to_those_of_the_task(name, layer):
    task = TASKS[name]
    models = [SequenceModel(layer(task.input_size, 5), task.output_size, readout=task.readout) for _ in range(2)]
    (batch,) = analysis.sequences_of(task, 9)
    together = side_by_side([batch] * 2)
    with torch.no_grad():
        dt = together.dt if models[0].layer.cell.takes_dt else None
        outputs, _ = forward_together(models, together.inputs, together.lengths, dt)
    for score, expected in task.scores(outputs, together).items():
        found = analysis.scores_of_sequences(models, task, score=score, sequences=9, at_once=4)
        numpy.testing.assert_allclose(found.totals.sum(1), expected.total.expand(2), rtol=1e-5)
        numpy.testing.assert_allclose(found.counts.sum(1), expected.count.expand(2))


def test_wrong_arguments_are_refused():
    model = SequenceModel(rm.LSTM(3, 4), 2, readout="last")
    with pytest.raises(ValueError, match="expected at least two edges in ascending order"):
        analysis.accuracy_by_length(model, Guessing(), edges=(5, 2))
    with pytest.raises(ValueError, match="expected score to be one of accuracy, got 'loss'"):
        analysis.accuracy_by_length(model, Guessing(), score="loss")
    with pytest.raises(ValueError, match="expected labels of 8 bins, got 1"):
        analysis.accuracy_by_length(SequenceModel(rm.LSTM(6, 4), 6), variable(), labels=["a"])
    with pytest.raises(ValueError, match="expected at least one model"):
        analysis.accuracy_by_length([], Guessing())
    with pytest.raises(ValueError, match="expected at least one bin"):
        analysis.accuracy_by_length(model, Guessing(), bins=0)


@torch.no_grad()
def test_the_bins_of_imdb_are_those_of_its_scores():
    class SomeReviews(IMDB):
        """The scores of the task on vectors that are made up."""

        def source(self, split, seed, device):
            class Some:
                size = 60

                def pick(self, numbers):
                    generator = torch.Generator().manual_seed(0)
                    inputs = torch.randn(20, 60, 100, generator=generator)
                    whole = {
                        "targets": torch.randint(2, (60,), generator=generator),
                        "lengths": torch.randint(1, 21, (60,), generator=generator),
                        "groups": torch.randint(9, (60,), generator=generator),
                    }
                    return Batch(inputs[:, numbers], **{name: value[numbers] for name, value in whole.items()})

            return Some()

    task = SomeReviews()
    model = SequenceModel(rm.LSTM(100, 6), 1, readout="last").eval()
    found = analysis.accuracy_by_length(model, task, at_once=25)
    (batch,) = analysis.sequences_of(task, 60)
    outputs, _ = model(batch.inputs, batch.lengths)
    scores = task.scores(outputs.unsqueeze(0), side_by_side([batch]))
    expected = [float(scores[bin_name(number)].total / scores[bin_name(number)].count) for number in range(9)]
    numpy.testing.assert_allclose(found.mean, expected)
    assert found.overall == pytest.approx([float(scores["accuracy"].total / 60)])
