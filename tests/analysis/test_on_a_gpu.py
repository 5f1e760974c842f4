"""Analyses of a model on a GPU give what they give on a CPU."""

import copy

import numpy
import pytest
import torch

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel
from remanence.tasks import Batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Same:
    """A task whose sequences are the same on every device: random numbers are not."""

    def __init__(self, task):
        self.task = task
        self.name, self.goal, self.length, self.scores = task.name, task.goal, task.length, task.scores

    def source(self, split, seed, device):
        source = self.task.source("validation", seed, torch.device("cpu"))

        class Moved:
            size = source.size

            def pick(self, numbers):
                batch = source.pick(numbers.cpu())
                return Batch(batch.inputs.to(device), batch.targets.to(device))

        return Moved()


@pytest.fixture
def models():
    torch.manual_seed(0)
    here = SequenceModel(rm.PowerLawLSTM(6, 64), 6)
    return here, copy.deepcopy(here).cuda()


@pytest.mark.parametrize("where", ["everywhere", "head"])
def test_ablation(models, copy_at, where):
    task = Same(copy_at(20, length=3))
    here, there = (
        analysis.unit_ablation(model, task, orders=4, step=10, sequences=100, where=where) for model in models
    )
    numpy.testing.assert_allclose(there.scores["loss"], here.scores["loss"], rtol=1e-3)
    numpy.testing.assert_allclose(there.mean, here.mean, atol=0.02)


def test_generalisation(models, copy_at):
    here, there = (
        analysis.generalisation([model, model], lambda delay: Same(copy_at(delay, length=3)), (5, 30), sequences=100)
        for model in models
    )
    numpy.testing.assert_allclose(there.scores["loss"], here.scores["loss"], rtol=1e-3)


def test_ages(models, copy_at):
    here, there = (analysis.ages_and_resets(model, Same(copy_at(20, length=3)), sequences=20) for model in models)
    numpy.testing.assert_allclose(there.age_at_signal, here.age_at_signal, rtol=1e-2)
    numpy.testing.assert_allclose(there.p, here.p, rtol=1e-6)
    assert there.later.tolist() == here.later.tolist()


def test_sequences_are_made_on_the_device(models, copy_at):
    (batch,) = analysis.sequences_of(copy_at(5), 10, device="cuda")
    assert batch.inputs.is_cuda
    found = analysis.generalisation(models[1], copy_at, (5,), sequences=10)
    assert found.mean.shape == (1,)
