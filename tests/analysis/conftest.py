"""Hand-built models whose behaviour is known."""

import pytest
import torch

import remanence as rm
from remanence.models import SequenceModel
from remanence.tasks import Copy

SYMBOLS = 4
LARGE = 40.0
"""A pre-activation at which a sigmoid is as good as zero or one."""


def block(weight, number, units):
    return weight[number * units : (number + 1) * units]


@pytest.fixture
def storing():
    return make_storing


@torch.no_grad()
def make_storing(units=8, forget=LARGE, threshold=0.5):
    """An LSTM that copies one symbol of four: unit k stores symbol k, the others do nothing.

    It says symbol k as long as unit k holds more than the threshold.

    Args:
        units: four, and spare ones.
        forget: forget bias.
        threshold: hidden value above which a symbol is said.
    """
    layer = rm.LSTM(SYMBOLS + 2, units, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.zero_()
    weight, bias = layer.weight_ih_l0, layer.bias_ih_l0
    block(weight, 0, units)[:, :SYMBOLS] = 2 * LARGE  # input gate: open at symbols
    block(bias, 0, units)[:] = -LARGE
    block(bias, 1, units)[:] = forget
    block(weight, 2, units)[range(SYMBOLS), range(SYMBOLS)] = LARGE  # candidate of unit k: symbol k
    block(bias, 3, units)[:] = LARGE  # output gate: open
    model = SequenceModel(layer, SYMBOLS + 2)
    model.head.weight.zero_()
    model.head.bias.zero_()
    model.head.weight[range(SYMBOLS), range(SYMBOLS)] = 1
    model.head.bias[SYMBOLS] = threshold  # else the dummy is said
    return model


KINDS = ("holds until the signal", "resets at every step", "never resets", "resets a tenth")


@pytest.fixture
@torch.no_grad()
def holding():
    """A power-law LSTM with one unit of each of KINDS."""
    layer = rm.PowerLawLSTM(SYMBOLS + 2, len(KINDS), dtype=torch.float64)
    layer.weight_hh_l0.zero_()
    layer.weight_ih_l0.zero_()
    layer.bias_ih_l0.zero_()
    reset, bias = layer.weight_ih_l0[: len(KINDS)], layer.bias_ih_l0[: len(KINDS)]
    reset[0] = LARGE
    reset[0, SYMBOLS] = -LARGE  # the dummy
    bias[1:3] = torch.tensor([LARGE, -LARGE])
    bias[3] = torch.logit(torch.tensor(0.1))
    layer.p_hat_l0.copy_(torch.logit(torch.tensor([0.1, 0.9, 0.3, 0.6], dtype=torch.float64)))
    return SequenceModel(layer, SYMBOLS + 2)


@pytest.fixture
def copy_at():
    """The copy task by delay, with as many symbols to remember as asked for."""

    def make(delay, length=1):
        return Copy(delay=delay, length=length, symbols=SYMBOLS, train_size=None, validation_size=200)

    return make
