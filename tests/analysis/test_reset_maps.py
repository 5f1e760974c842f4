"""Reference times in sequences with different delays."""

import json

import numpy
import pytest
import torch
from torch import nn

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel
from remanence.tasks import CopyVariable

LENGTH = 3
TASK = CopyVariable(shortest=10, longest=30, symbols=4, length=LENGTH, train_size=None, validation_size=60)


def test_the_shortest_and_the_longest_delay_are_shown_with_known_reference_times(holding):
    found = analysis.reset_maps(holding, TASK, among=60)
    (batch,) = analysis.sequences_of(TASK, 60)
    delays = (batch.lengths - 2 * LENGTH).tolist()
    short, long = found.maps
    assert (short.delay, long.delay) == (min(delays), max(delays))
    for one in found.maps:
        assert one.signal == LENGTH + one.delay + 1
        steps = numpy.arange(1, one.delay + 2 * LENGTH + 1)
        assert one.k.shape == (len(steps), 4)
        # Holds until the signal; resets at every step; never resets.
        expected = numpy.where(steps < one.signal, numpy.minimum(steps, LENGTH), one.signal)
        numpy.testing.assert_allclose(one.k[:, 0], expected, atol=0.01)
        numpy.testing.assert_allclose(one.k[:, 1], steps, atol=0.01)
        numpy.testing.assert_allclose(one.k[:, 2], 0, atol=0.01)
        assert one.reset_step[:3].tolist() == [one.signal, LENGTH + 1, len(steps) + 1]
    assert found.order.tolist() == [1, 3, 0, 2]
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


def test_more_maps_are_spread_over_the_delays(holding):
    delays = [one.delay for one in analysis.reset_maps(holding, TASK, maps=5, among=60).maps]
    assert delays == sorted(delays)
    assert len(set(delays)) == 5


def test_it_is_what_ages_and_resets_says_of_one_sequence(holding):
    one = analysis.reset_maps(holding, TASK, maps=1, among=1)
    ages = analysis.ages_and_resets(holding, TASK, sequences=1)
    numpy.testing.assert_allclose(one.maps[0].k, ages.example_k[: len(one.maps[0].k)], atol=0.011)
    assert one.order.tolist() == ages.example_order.tolist()
    assert one.maps[0].signal == ages.example_signal


def test_wrong_arguments_are_refused(holding):
    with pytest.raises(ValueError, match="expected to show between 1 and 5 sequences, got 6"):
        analysis.reset_maps(holding, TASK, maps=6, among=5)
    with pytest.raises(ValueError, match="expected signals after 40 steps with symbols and a delay"):
        analysis.reset_maps(holding, TASK, shown=40)
    with pytest.raises(ValueError, match="expected a model with gate power_law"):
        analysis.reset_maps(SequenceModel(rm.LSTM(6, 3), 6), TASK)


@torch.no_grad()
@pytest.mark.parametrize("readout", ["every", "last"])
@pytest.mark.parametrize("layer", [nn.LSTM(6, 5, 2, batch_first=True), nn.GRU(6, 5), rm.PowerLawLSTM(6, 5)])
def test_a_layer_and_a_read_out_become_a_model_for_all_analyses(layer, readout, copy_at):
    head = nn.Linear(5, 6)
    model = analysis.as_model(layer, head, readout=readout)
    heard = torch.randn(8, 3, 6)
    batch_first = getattr(layer, "batch_first", False)
    hidden = layer(heard.transpose(0, 1))[0].transpose(0, 1) if batch_first else layer(heard)[0]
    expected = head(hidden if readout == "every" else hidden[-1])
    torch.testing.assert_close(model(heard)[0], expected, atol=1e-5, rtol=1e-5)
    if readout == "every":
        found = analysis.unit_ablation(model, copy_at(3), orders=2, ablated=5, step=5, sequences=10)
        assert found.mean.shape == (2,)
    model.head.weight.zero_()
    assert head.weight.abs().sum() > 0


def test_a_read_out_of_another_width_is_refused():
    with pytest.raises(ValueError, match="expected a read-out with 10 input features, got 5"):
        analysis.as_model(nn.LSTM(6, 5, bidirectional=True), nn.Linear(5, 6))
    without_bias = analysis.as_model(nn.LSTM(6, 5), nn.Linear(5, 6, bias=False))
    assert without_bias.head.bias.tolist() == [0] * 6
