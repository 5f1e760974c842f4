"""What is said of the units of a model on a GPU is what is said of them on a CPU."""

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


@pytest.fixture
def models():
    torch.manual_seed(0)
    here = SequenceModel(rm.PowerLawLSTM(6, 16), 6).double()
    return here, copy.deepcopy(here).cuda()


@pytest.fixture
def batch():
    return Batch(torch.randn(30, 5, 6), torch.zeros(30, 5), lengths=torch.tensor([30, 4, 12, 30, 29]))


@pytest.mark.parametrize("off", ["input", "gates"])
def test_free_decay(models, batch, off):
    here, there = (analysis.free_decay(model, batch, steps=40, off=off).layers[0] for model in models)
    numpy.testing.assert_allclose(there.remaining, here.remaining, rtol=1e-6)
    assert there.fits.better == here.fits.better


def test_forget_maps_and_timescales(models, batch):
    here, there = (analysis.forget_maps(model, batch, group=4).layers[0] for model in models)
    numpy.testing.assert_allclose(there.values, here.values, rtol=1e-6)
    here, there = (analysis.timescale_distribution(model, batch).layers[0] for model in models)
    numpy.testing.assert_allclose(there.from_gates, here.from_gates, rtol=1e-6)
    here, there = (analysis.gates_at_rest(model)[0] for model in models)
    numpy.testing.assert_allclose(there.ages, here.ages, rtol=1e-9)


def test_accuracy_by_length_and_reset_maps(models, copy_at):
    """Random numbers differ between devices: only that everything comes to one place."""
    task = copy_at(9, length=2)
    for model in models:
        assert analysis.accuracy_by_length(model.float(), task, sequences=20).sequences.tolist() == [20]
        assert len(analysis.reset_maps(model, task, among=4).maps) == 2
