"""Heat maps of forget values."""

import json

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import remanence as rm
from remanence import analysis
from remanence.language import Vocabulary
from remanence.models import LanguageModel, SequenceModel
from remanence.tasks import CopyVariable
from remanence.timescales import Fixed

TIMESCALES = [2.0, 90.0, 0.5, 10.0, 400.0]


@torch.no_grad()
def deaf():
    """A layer whose forget values are those of its biases at every step."""
    layer = rm.LSTM(3, len(TIMESCALES), timescales=Fixed(TIMESCALES), dtype=torch.float64)
    layer.weight_hh_l0.zero_()
    layer.weight_ih_l0.zero_()
    return layer


def test_units_are_sorted_by_what_they_keep_and_averaged_in_groups():
    found = analysis.forget_maps(deaf(), torch.randn(7, 3, dtype=torch.float64), group=2)
    (one,) = found.layers
    assert [part.tolist() for part in one.units] == [[4, 1], [3, 0], [2]]
    forget = numpy.exp(-1 / numpy.array(TIMESCALES))
    expected = [forget[[4, 1]].mean(), forget[[3, 0]].mean(), forget[2]]
    numpy.testing.assert_allclose(one.values, numpy.repeat(expected, 7).reshape(3, 7))
    numpy.testing.assert_allclose(one.means, expected)
    numpy.testing.assert_allclose(one.timescales, [245, 6, 0.5])
    assert found.labels is None
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain


@torch.no_grad()
@pytest.mark.parametrize("first", [0, 3, 60])
def test_values_are_those_of_the_record_from_the_step_asked_for(first):
    layer = rm.LSTM(3, 6, 2, bidirectional=False)
    heard = torch.randn(75, 4, 3)
    found = analysis.forget_maps(layer, heard, group=1, first=first, steps=9)
    for one, record in zip(found.layers, rm.record(layer, heard), strict=True):
        values = record["forget"][first : first + 9].double().mean(1).numpy()
        order = numpy.concatenate(one.units)
        numpy.testing.assert_allclose(one.values, values[:, order].T, rtol=1e-5)
        assert (numpy.diff(one.means) <= 0).all()
    assert found.first == first


def test_the_labels_of_a_text_are_its_words():
    vocabulary = Vocabulary(["a", "b", "c", "d"])
    model = LanguageModel(vocabulary, 4, 6, dtype=torch.float64)
    text = ["a", "b", "c", "d", "d", "c", "b", "a", "a", "b"]
    found = analysis.forget_maps(model, text, group=3, first=4, steps=3)
    assert found.labels == ["d", "c", "b"]
    assert [len(one.units) for one in found.layers] == [2, 2, 2]
    assert [one.name for one in found.layers] == ["l0", "l1", "l2"]
    with torch.no_grad():
        model.eval()
        (record, *_), _, _ = model.watch(torch.from_numpy(vocabulary.encode(text)).long().unsqueeze(1))
    values = record["forget"][4:7, 0].numpy()
    units = found.layers[0].units[0]
    numpy.testing.assert_allclose(found.layers[0].values[0], values[:, units].mean(1))


def test_sequences_that_have_ended_do_not_count():
    layer = rm.PowerLawLSTM(3, 4)
    long, short = torch.randn(8, 3), torch.randn(5, 3)
    found = analysis.forget_maps(layer, pack_sequence([long, short]), group=4)
    alone = analysis.forget_maps(layer, long, group=4)
    numpy.testing.assert_allclose(found.layers[0].values[0, 5:], alone.layers[0].values[0, 5:], rtol=1e-5)
    both = analysis.forget_maps(layer, torch.stack((long[:5], short), 1), group=4)
    numpy.testing.assert_allclose(found.layers[0].values[0, :5], both.layers[0].values[0], rtol=1e-5)
    assert found.layers[0].timescales is None  # a power law has none


def test_a_map_of_a_batch_ends_with_its_longest_sequence():
    task = CopyVariable(shortest=3, longest=50, symbols=4, length=2, train_size=None, validation_size=4)
    (batch,) = analysis.sequences_of(task, 4)
    found = analysis.forget_maps(SequenceModel(rm.LSTM(6, 4), 6), batch, group=2)
    assert int(batch.lengths.max()) < len(batch.inputs)
    assert found.layers[0].values.shape == (2, int(batch.lengths.max()))


def test_torchs_own_layer_and_a_model_with_symbols():
    theirs = nn.LSTM(3, 4, bidirectional=True)
    found = analysis.forget_maps(theirs, torch.randn(6, 2, 3), labels=list("abcdef"), first=2)
    assert [one.name for one in found.layers] == ["l0", "l0_reverse"]
    assert found.labels == list("cdef")
    symbols = SequenceModel(rm.GRU(3, 4), 2, symbols=9)
    assert analysis.forget_maps(symbols, torch.randint(9, (5, 2)), group=1).layers[0].values.shape == (4, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": 0}, "expected groups of at least one unit, got 0"),
        ({"first": 7}, "expected steps within the 7 of the input"),
        ({"steps": 8}, "expected steps within the 7 of the input, got 0 to 7"),
        ({"labels": ["a"]}, "expected a label for each of 7 steps, got 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.forget_maps(deaf(), torch.randn(7, 3, dtype=torch.float64), **arguments)


def test_a_layer_without_a_forget_gate_is_refused():
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        analysis.forget_maps(rm.NRU(3, 4), torch.randn(7, 3))
