"""Sequence models with torch layers, batch first, missing values, and dt as an input."""

import copy

import pytest
import torch

import remanence as rm
from remanence.models import SequenceModel, forward_together
from remanence.models.inputs import filled

NAN = float("nan")
LENGTHS = torch.tensor([5, 1, 3])


def ours(model):
    """The same model with torch's layer converted."""
    kind = rm.LSTM if isinstance(model.layer, torch.nn.LSTM) else rm.GRU
    converted = copy.deepcopy(model)
    converted.layer = kind.from_torch(model.layer)
    return converted


def turned(values):
    return values.transpose(0, 1)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("readout", ["every", "last"])
@pytest.mark.parametrize(
    ("layer", "keywords"),
    [
        (torch.nn.LSTM, {}),
        (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (torch.nn.LSTM, {"proj_size": 2}),
        (torch.nn.GRU, {"bidirectional": True}),
    ],
)
def test_torchs_layers_give_what_ours_with_their_weights_give(layer, keywords, readout, lengths, batch_first):
    made = layer(2, 4, batch_first=batch_first, dtype=torch.float64, **keywords)
    model = SequenceModel(made, 3, readout=readout)
    x = torch.randn(5, 3, 2, dtype=torch.float64, requires_grad=True)
    given = turned(x) if batch_first else x
    found, state = model(given, lengths)
    expected, expected_state = ours(model)(given, lengths)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(state, expected_state)
    slopes = torch.autograd.grad(found.square().sum(), [x, *made.parameters()])
    others = ours(model)
    x2 = x.detach().requires_grad_()
    again, _ = others(turned(x2) if batch_first else x2, lengths)
    torch.testing.assert_close(slopes, torch.autograd.grad(again.square().sum(), [x2, *others.layer.parameters()]))


def test_a_state_goes_on_through_torchs_layer():
    model = SequenceModel(torch.nn.LSTM(2, 4), 3)
    x = torch.randn(6, 2, 2)
    first, state = model(x[:4])
    second, _ = model(x[4:], state=state)
    torch.testing.assert_close(torch.cat((first, second)), model(x)[0])


@pytest.mark.parametrize("readout", ["every", "last"])
def test_a_model_with_batches_first_is_the_other_turned(readout):
    keywords = {"readout": readout, "missing": "forward", "mask_input": True, "dt_input": True}
    layer = rm.PowerLawLSTM(5, 4, dtype=torch.float64)
    model = SequenceModel(layer, 3, **keywords)
    first = copy.deepcopy(model)
    first.layer.batch_first = True
    x, dt = torch.randn(5, 3, 2, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    mask, times = torch.rand(5, 3, 2) < 0.5, dt.cumsum(0)
    for own in ({"dt": dt}, {"times": times}, {"dt": dt[:, 0]}):
        expected, state = model(x, LENGTHS, mask=mask, **own)
        other = {name: value.T if value.dim() == 2 else value for name, value in own.items()}
        found, found_state = first(turned(x), LENGTHS, mask=turned(mask), **other)
        torch.testing.assert_close(found, turned(expected) if readout == "every" else expected)
        torch.testing.assert_close(found_state, state)


def by_hand(x, mask, how):
    """One value after the other."""
    result = torch.zeros_like(x)
    for b in range(x.shape[1]):
        for i in range(x.shape[2]):
            held = 0.0
            for t in range(len(x)):
                if mask[t, b, i]:
                    held = float(x[t, b, i])
                result[t, b, i] = held if how == "forward" or mask[t, b, i] else 0.0
    return result


@pytest.mark.parametrize("how", ["zero", "forward"])
def test_missing_values_are_filled_and_never_read(how):
    x, mask = torch.randn(9, 4, 3), torch.rand(9, 4, 3) < 0.4
    mask[:3, 0] = False
    expected = by_hand(x, mask, how)
    holes = torch.where(mask, x, NAN).requires_grad_()
    torch.testing.assert_close(filled(holes, mask, how), expected)
    model = SequenceModel(rm.LSTM(6, 5), 2, missing=how, mask_input=True)
    output, _ = model(holes, mask=mask)
    torch.testing.assert_close(output, model.head(model.layer(torch.cat((expected, mask.float()), -1))[0]))
    output.sum().backward()
    assert holes.grad.isfinite().all()
    assert (holes.grad[~mask] == 0).all()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_dt_goes_into_the_layer_as_an_input_beside_the_values():
    model = SequenceModel(torch.nn.LSTM(3, 4), 2, dt_input=True)
    x, dt = torch.randn(5, 3, 2), torch.rand(5, 3)
    expected = model.head(model.layer(torch.cat((x, dt.unsqueeze(-1)), -1))[0])
    torch.testing.assert_close(model(x, dt=dt)[0], expected)
    ones = model.head(model.layer(torch.cat((x, torch.ones(5, 3, 1)), -1))[0])
    torch.testing.assert_close(model(x)[0], ones)
    assert model.takes_dt
    assert model.input_size == 2


def test_a_layer_that_uses_dt_gets_it_beside_the_input():
    model = SequenceModel(rm.PowerLawLSTM(3, 4), 2, dt_input=True)
    x, dt = torch.randn(5, 3, 2), torch.rand(5, 3)
    expected = model.head(model.layer(torch.cat((x, dt.unsqueeze(-1)), -1), dt=dt)[0])
    torch.testing.assert_close(model(x, dt=dt)[0], expected)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("readout", ["every", "last"])
@pytest.mark.parametrize("layer", [rm.PowerLawLSTM, rm.LSTM, torch.nn.GRU])
def test_several_models_give_what_each_gives_alone(layer, readout, batch_first):
    keywords = {"readout": readout, "missing": "zero", "dt_input": True}
    models = [SequenceModel(layer(3, 4, batch_first=batch_first), 2, **keywords) for _ in range(2)]
    x, dt, mask = torch.randn(2, 5, 3, 2), torch.rand(2, 5, 3), torch.rand(2, 5, 3, 2) < 0.6
    lengths = LENGTHS.expand(2, 3)
    outputs, _ = forward_together(models, x, lengths, dt, mask=mask)
    for number, model in enumerate(models):
        one = copy.deepcopy(model)
        one.layer.batch_first = False
        torch.testing.assert_close(outputs[number], one(x[number], LENGTHS, dt[number], mask=mask[number])[0])


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: SequenceModel(torch.nn.RNN(2, 3), 1), TypeError, "expected a recurrent layer of remanence, a torch"),
        (lambda: SequenceModel(rm.LSTM(2, 3), 1, missing="mean"), ValueError, "one of zero, forward, or None, got 'me"),
        (lambda: SequenceModel(rm.LSTM(2, 3), 1, mask_input=True), ValueError, "with mask_input=True, got missing=No"),
        (
            lambda: SequenceModel(rm.LSTM(3, 3), 1, missing="zero", mask_input=True),
            ValueError,
            r"the values and the mask \(2 I inputs\), got one of 3 inputs",
        ),
        (
            lambda: SequenceModel(rm.LSTM(2, 3), 1, missing="zero", mask_input=True, dt_input=True),
            ValueError,
            r"the mask and dt \(2 I \+ 1 inputs\), got one of 2 inputs",
        ),
        (lambda: SequenceModel(rm.LSTM(2, 3), 1, symbols=5, missing="zero"), ValueError, "inputs that are symbols"),
        (
            lambda: SequenceModel(rm.LSTM(2, 3), 1)(torch.ones(4, 1, 2), mask=torch.ones(4, 1, 2)),
            ValueError,
            "expected a model with missing='zero' or missing='forward' for a mask",
        ),
        (
            lambda: SequenceModel(rm.LSTM(2, 3), 1, missing="zero")(torch.ones(4, 1, 2), mask=torch.ones(4, 1)),
            ValueError,
            r"the shape of the inputs, \(4, 1, 2\), got \(4, 1\)",
        ),
        (
            lambda: SequenceModel(torch.nn.GRU(2, 3), 1)(torch.ones(4, 1, 2), dt=torch.ones(4, 1)),
            ValueError,
            "expected no dt, got one: torch.nn.GRU does not use it without dt_input=True",
        ),
        (
            lambda: SequenceModel(torch.nn.GRU(3, 3), 1, dt_input=True)(torch.ones(4, 1, 2), dt=torch.ones(5, 1)),
            ValueError,
            r"expected dt of shape \(4, 1\) or \(4,\), got \(5, 1\)",
        ),
        (
            lambda: SequenceModel(torch.nn.GRU(2, 3), 1)(torch.ones(4, 1, 2), torch.tensor([5])),
            ValueError,
            "expected lengths from 1 to 4",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
