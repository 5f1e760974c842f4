"""Sequences to measure on, and results as plain data."""

import json
import math

import numpy
import pytest
import torch

from remanence import analysis
from remanence.analysis.sequences import measuring, repeated


def test_validation_sequences_serve_where_there_is_no_test_split(copy_at):
    batches = analysis.sequences_of(copy_at(5), 30, at_once=12)
    assert [batch.inputs.shape[1] for batch in batches] == [12, 12, 6]
    again = analysis.sequences_of(copy_at(5), 30)
    torch.testing.assert_close(torch.cat([batch.inputs for batch in batches], 1), again[0].inputs)
    other = analysis.sequences_of(copy_at(5), 30, seed=1)
    assert not torch.equal(other[0].inputs, again[0].inputs)


def test_a_split_may_have_fewer_sequences_than_requested(copy_at):
    assert sum(batch.inputs.shape[1] for batch in analysis.sequences_of(copy_at(5), 10_000)) == 200


def test_endless_splits_are_drawn_from_the_seed(copy_at):
    class Drawn:
        def __init__(self, task):
            self.task = task

        name, size = "drawn", None

        def source(self, split, seed, device):
            return None if split == "test" else self.task.source("train", seed, device)

    first, second = (analysis.sequences_of(Drawn(copy_at(5)), 7, seed=3, at_once=4) for _ in range(2))
    assert [batch.inputs.shape[1] for batch in first] == [4, 3]
    assert all(torch.equal(one.inputs, two.inputs) for one, two in zip(first, second, strict=True))


def test_a_task_without_such_a_split_and_no_sequences_are_refused(copy_at):
    class Nothing:
        name = "nothing"

        def source(self, split, seed, device):
            return None

    with pytest.raises(ValueError, match="expected a task with a test or validation split, got 'nothing'"):
        analysis.sequences_of(Nothing(), 5)
    with pytest.raises(ValueError, match="expected at least one sequence"):
        analysis.sequences_of(copy_at(5), 0)


def test_measuring_restores_the_mode(storing):
    training, evaluating = storing(), storing().eval()
    with measuring(training, evaluating):
        assert not training.training
        assert not torch.is_grad_enabled()
    assert training.training
    assert not evaluating.training
    assert torch.is_grad_enabled()


def test_a_batch_for_several_models_has_them_as_first_dimension(copy_at):
    (batch,) = analysis.sequences_of(copy_at(5), 3)
    together = repeated(batch, 4)
    assert together.inputs.shape == (4, *batch.inputs.shape)
    assert together.targets.shape == (4, *batch.targets.shape)
    assert together.dt is None


def test_plain_data_is_json_serialisable():
    value = {1: numpy.float32(0.5), "a": torch.arange(3), "b": (numpy.int64(2), math.inf, None, True), "c": math.nan}
    plain = analysis.as_plain(value)
    assert plain == {"1": 0.5, "a": [0, 1, 2], "b": [2, None, None, True], "c": None}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    with pytest.raises(TypeError, match="expected numbers, strings or arrays"):
        analysis.as_plain(object())
