"""Scores over a split: every sequence once, and lanes of a stream that are warmed up."""

from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import Made

import remanence
from remanence.models import SequenceModel
from remanence.tasks.text import Text
from remanence.training import Training
from remanence.training.evaluation import WORST_LANE, evaluate, index_batches, warmed
from remanence.training.forward import Forward

CPU = torch.device("cpu")


class Replica:
    """A model alone."""

    def __init__(self, model):
        self.model = model


def numbers_of(state):
    return [state] if isinstance(state, torch.Tensor) else [one for part in state for one in numbers_of(part)]


@pytest.fixture(params=["lstm", "gru", "plstm"])
def replicas(request):
    torch.manual_seed(1)
    layers = [remanence.make(request.param, 6, 10) for _ in range(2)]
    return [Replica(SequenceModel(layer, 20, readout="every", symbols=20).eval()) for layer in layers]


def read(model, source, numbers, state=None):
    """The state after these sequences, one lane."""
    for number in numbers:
        _, state = model(source.pick(torch.tensor([number])).inputs, state=state)
    return state


def test_a_lane_has_read_the_beginning_and_what_is_before_it(replicas):
    source = Made().source("validation", 1, CPU)  # 19 chunks of 8
    starts = next(index_batches(19, 4, CPU, True))
    assert starts.tolist() == [0, 5, 10, 15]
    states = warmed(replicas, [source, source], Forward(Training(), CPU), starts, 2)
    for replica, state in zip(replicas, states, strict=True):
        assert all(bool((part[:, 0] == 0).all()) for part in numbers_of(state))
        for lane, start in list(enumerate(starts.tolist()))[1:]:
            expected = read(replica.model, source, [0, 1, start - 2, start - 1])
            for part, one in zip(numbers_of(state), numbers_of(expected), strict=True):
                torch.testing.assert_close(part[:, lane], one[:, 0])


def test_one_lane_is_read_from_its_beginning_whatever_comes_before_it(replicas):
    source, task = Made().source("test", 1, CPU), Text(corpus="ptb-char")
    forward = Forward(Training(), CPU)
    cold = evaluate(replicas, task, [source] * 2, forward, batch=1, stateful=True)
    warm = evaluate(replicas, task, [source] * 2, forward, batch=1, stateful=True, warm=3)
    for one, other in zip(cold, warm, strict=True):
        assert one == pytest.approx(other)
    lanes = evaluate(replicas, task, [source] * 2, forward, batch=4, stateful=True, warm=1)
    assert [one["bits"] for one in lanes] == pytest.approx([one["bits"] for one in cold], rel=0.05)


def test_the_worst_lane_is_told(replicas):
    source, task = Made().source("validation", 1, CPU), Text(corpus="ptb-char")
    count, width = source.size, 4
    found = evaluate(replicas, task, [source] * 2, Forward(Training(), CPU), batch=width, stateful=True)
    steps, longer = divmod(count, width)
    assert longer  # the last lanes end before the others
    for replica, scores in zip(replicas, found, strict=True):
        means, first = [], 0
        for lane in range(width):
            numbers = torch.arange(first, first := first + steps + (lane < longer))
            batch = source.pick(numbers)  # chunks of one lane, one after another
            inputs, targets = (part.T.reshape(-1, 1) for part in (batch.inputs, batch.targets))
            with torch.no_grad():
                outputs, _ = replica.model(inputs)
            losses = torch.nn.functional.cross_entropy(outputs[:, 0], targets[:, 0].long(), reduction="none")
            counts = None if batch.counts is None else batch.counts.T.reshape(-1)
            means.append(float((losses if counts is None else losses[counts]).mean()))
        assert first == count
        assert scores[WORST_LANE] == pytest.approx(max(means))
        assert scores[WORST_LANE] > scores["loss"]


def test_only_a_stream_has_lanes(replicas):
    source, task = Made().source("test", 1, CPU), Text(corpus="ptb-char")
    found = evaluate(replicas, task, [source] * 2, Forward(Training(), CPU), batch=4)
    assert all(WORST_LANE not in scores for scores in found)


def test_the_number_of_chunks_is_checked():
    with pytest.raises(ValueError, match=r"^expected training.evaluate_warm to be at least 0, got -1$"):
        replace(Training(), evaluate_warm=-1)


@given(count=st.integers(1, 40), width=st.integers(1, 12), stateful=st.booleans())
def test_evaluation_takes_every_sequence_once(count, width, stateful):
    rows = [row.tolist() for row in index_batches(count, width, CPU, stateful)]
    assert sorted(chain(*rows)) == list(range(count))
    assert all(len(row) <= width for row in rows)
    if stateful:  # what stays of the lanes are the first, and each goes on where it was
        for row, later in pairwise(rows):
            assert later == [number + 1 for number in row[: len(later)]]
