"""Accuracy by longest dependency."""

import json

import numpy
import pytest
import torch

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel
from remanence.tasks import Dyck2, side_by_side
from remanence.tasks.brackets import PADDING, SYMBOLS

TASK = Dyck2(longest=92, train_size=400, validation_size=10, test_size=300)


class Forgetful(SequenceModel):
    """Reads brackets with a stack, and has forgotten a bracket that was opened more than `memory` steps ago.

    A bracket of timescale T is asked for again when the last pair inside it closes, T - 2 steps after it was opened. So
    a string is right if its longest timescale is at most memory + 2, and wrong otherwise.
    """

    def __init__(self, memory):
        super().__init__(rm.LSTM(4, 2), 2)
        self.memory = memory

    def forward(self, inputs, lengths=None, dt=None, state=None):
        outputs = torch.full((*inputs.shape[:2], 2), -1.0)
        for column in range(inputs.shape[1]):
            stack = []
            for step, symbol in enumerate(inputs[:, column]):
                if symbol.sum() == 0:
                    break
                number = int(symbol.argmax())
                if number < 2:
                    stack.append((number, step))
                else:
                    stack.pop()
                if stack and step - stack[-1][1] <= self.memory:
                    outputs[step, column, stack[-1][0]] = 1.0
        return outputs, None


def strings(task, split):
    return ["".join(SYMBOLS[symbol] for symbol in row if symbol != PADDING) for row in task.strings(split).T]


@pytest.mark.parametrize(
    ("string", "timescales"),
    [("()", [2]), ("([])", [2, 4]), ("()[[]()]", [2, 2, 2, 6]), ("[()()][]", [2, 2, 6, 2]), ("", [])],
)
def test_timescales_count_both_ends(string, timescales):
    assert analysis.pair_timescales(string).tolist() == timescales


@pytest.mark.parametrize("string", ["(", ")", "(]", "([)]", "(a)"])
def test_what_is_not_balanced_is_refused(string):
    with pytest.raises(ValueError, match=r"expected balanced brackets of \(\[\)\], got"):
        analysis.pair_timescales(string)


def test_longest_timescale_of_every_string_of_a_batch():
    batch = TASK.source("test", 0, torch.device("cpu")).pick(torch.arange(50))
    expected = [analysis.pair_timescales(string).max() for string in strings(TASK, "test")[:50]]
    assert analysis.longest_dependencies(batch).tolist() == expected


def test_distribution_of_timescales_is_that_of_each_string():
    found = analysis.pair_timescale_distribution(TASK)
    every = numpy.concatenate([analysis.pair_timescales(string) for string in strings(TASK, "train")])
    assert found.timescales.tolist() == list(range(2, 93, 2))
    assert found.pairs.tolist() == [(every == value).sum() for value in found.timescales]
    assert found.share.sum() == pytest.approx(1)
    assert found.pairs[0] == found.pairs.max()
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_a_model_that_forgets_is_right_below_its_memory_and_wrong_above():
    found = analysis.accuracy_by_dependency(Forgetful(memory=40), TASK, at_once=70)
    assert found.edges.tolist() == [2, 12, 22, 32, 42, 52, 62, 72, 82, 92]
    longest = numpy.array([analysis.pair_timescales(string).max() for string in strings(TASK, "test")])
    assert found.strings.tolist() == numpy.histogram(longest, found.edges)[0].tolist()
    assert (found.strings > 0).all()
    fifth = longest[(longest >= 42) & (longest < 52)]
    numpy.testing.assert_allclose(found.accuracy[0], [1, 1, 1, 1, (fifth == 42).mean(), 0, 0, 0, 0])
    assert found.overall[0] == pytest.approx((longest <= 42).mean())
    assert found.mean.tolist() == found.accuracy[0].tolist()
    assert not found.std.any()


def test_bins_agree_with_the_scores_of_the_task():
    model = Forgetful(memory=30)
    found = analysis.accuracy_by_dependency(model, TASK)
    (batch,) = analysis.sequences_of(TASK, 300)
    scores = TASK.scores(model(batch.inputs)[0].unsqueeze(0), side_by_side([batch]))
    for number, accuracy in enumerate(found.accuracy[0]):
        score = scores[TASK.bin_name(number)]
        assert (score.total / score.count).item() == pytest.approx(accuracy)
        assert score.count.item() == found.strings[number]


def test_several_models_run_side_by_side_give_what_each_gives_alone():
    task = Dyck2(longest=20, train_size=20, validation_size=20, test_size=60)
    torch.manual_seed(0)
    models = [reacting(strength) for strength in (0.0, 4.0, 40.0)]
    found = analysis.accuracy_by_dependency(models, task, at_once=25)
    alone = [analysis.accuracy_by_dependency(model, task) for model in models]
    assert found.accuracy.shape == (3, 9)
    numpy.testing.assert_allclose(found.accuracy, numpy.concatenate([one.accuracy for one in alone]))
    numpy.testing.assert_allclose(found.overall, [one.overall[0] for one in alone])
    numpy.testing.assert_allclose(found.mean, found.accuracy.mean(0))
    numpy.testing.assert_allclose(found.std, found.accuracy.std(0, ddof=1))
    assert all(model.training for model in models)


@torch.no_grad()
def reacting(strength):
    """An LSTM without memory: it answers an opening bracket rightly, and nothing after a closing one.

    So it is right where brackets close at once: the longest timescale is 2. Without strength it is never right.
    """
    model = SequenceModel(rm.LSTM(4, 2), 2)
    for parameter in model.parameters():
        parameter.zero_()
    layer, head = model.layer, model.head
    layer.bias_ih_l0[2:4] = -40  # forgets all
    layer.bias_ih_l0[0:2] = 40  # and takes all in
    layer.bias_ih_l0[6:8] = 40
    layer.weight_ih_l0[4, 0] = layer.weight_ih_l0[5, 1] = strength
    head.weight.copy_(torch.eye(2))
    head.bias.fill_(-0.5)
    return model


def test_a_model_without_memory_is_right_where_every_bracket_closes_at_once():
    task = Dyck2(longest=20, train_size=20, validation_size=20, test_size=60)
    found = analysis.accuracy_by_dependency(reacting(40.0), task)
    assert found.strings[0] > 0
    numpy.testing.assert_allclose(found.accuracy[0], [1] + [0] * 8)


def test_bins_without_strings_have_no_accuracy():
    task = Dyck2(longest=200, train_size=5, validation_size=5, test_size=3)
    found = analysis.accuracy_by_dependency(Forgetful(memory=200), task, bins=50)
    assert found.strings.sum() == 3
    assert numpy.isnan(found.accuracy[0][found.strings == 0]).all()
    assert (found.accuracy[0][found.strings > 0] == 1).all()
    assert None in found.plain()["accuracy"][0]


def test_nothing_to_do_is_refused():
    with pytest.raises(ValueError, match="expected at least one model and one bin, got 0 and 9"):
        analysis.accuracy_by_dependency([], TASK)
