"""Absolute times of steps instead of dt."""

import warnings

import numpy
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import remanence as rm
from remanence.models import SequenceModel


def some_times(steps, batch, dtype=torch.float64):
    return 5 + torch.rand(steps, batch, dtype=dtype).cumsum(0)


def as_dt(times):
    return torch.cat((torch.ones_like(times[:1]), times.diff(dim=0)))


@pytest.mark.parametrize("layer", [rm.PowerLawLSTM, rm.PhasedLSTM])
@pytest.mark.parametrize("batch_first", [False, True])
def test_times_equal_their_differences_as_dt(layer, batch_first):
    made = layer(3, 5, batch_first=batch_first, bidirectional=True, dtype=torch.float64)
    x, times = torch.randn(7, 4, 3, dtype=torch.float64), some_times(7, 4)
    dt = as_dt(times)
    if batch_first:
        x, times, dt = x.transpose(0, 1), times.T, dt.T
    torch.testing.assert_close(made(x, times=times), made(x, dt=dt), rtol=1e-12, atol=1e-12)


def test_times_of_shape_t_as_a_list_and_unbatched():
    layer = rm.PowerLawLSTM(3, 5, dtype=torch.float64)
    x, times = torch.randn(6, 2, 3, dtype=torch.float64), some_times(6, 1)[:, 0]
    expected = layer(x, dt=as_dt(times[:, None]).expand(6, 2))
    for given in (times, times.tolist(), times.numpy()):
        torch.testing.assert_close(layer(x, times=given), expected)
    torch.testing.assert_close(layer(x[:, 0], times=times)[0], expected[0][:, 0])


def test_times_past_the_end_of_a_sequence_are_ignored():
    layer = rm.PowerLawLSTM(3, 5, bidirectional=True, dtype=torch.float64)
    x, times, lengths = torch.randn(6, 3, 3, dtype=torch.float64), some_times(6, 3), torch.tensor([6, 2, 4])
    broken = times.clone()
    broken[2:, 1] = -100
    broken[4:, 2] = 0
    expected = layer(x, dt=as_dt(times), lengths=lengths)
    torch.testing.assert_close(layer(x, times=broken, lengths=lengths), expected)
    packed, packed_times = (pack_padded_sequence(one, lengths, enforce_sorted=False) for one in (x, times))
    for given in (broken, packed_times):
        output, state = layer(packed, times=given)
        torch.testing.assert_close(state, expected[1])
        torch.testing.assert_close(output.data, layer(packed, dt=as_dt(times))[0].data)


def test_a_model_takes_them_and_gradients_flow_to_them():
    model = SequenceModel(rm.PowerLawLSTM(3, 5, dtype=torch.float64), 2)
    x, times = torch.randn(5, 2, 3, dtype=torch.float64), some_times(5, 2).requires_grad_()
    torch.testing.assert_close(model(x, times=times), model(x, dt=as_dt(times)))
    assert torch.autograd.gradcheck(lambda times: model(x, times=times)[0], times)


def test_a_compiled_layer_takes_them():
    layer = rm.PowerLawLSTM(2, 3)
    x, times = torch.randn(4, 2, 2), some_times(4, 2, torch.float32)
    found = torch.compile(layer, backend="eager", fullgraph=True)(x, times=times)
    torch.testing.assert_close(found, layer(x, times=times))


@pytest.mark.parametrize(
    ("times", "kind", "sentence"),
    [
        (
            [0.0, 1.0, 0.5, 2.0],
            ValueError,
            "expected times that do not decrease, got a decrease at step 2",
        ),
        (torch.zeros(2, 2, 2), ValueError, r"expected times of shape \(T, B\) or \(T,\), got \(2, 2, 2\)"),
        (numpy.array([True, False]), TypeError, "expected times to hold real numbers, got torch.bool"),
        ([1.0, float("nan"), 2.0, 3.0], ValueError, "expected dt to be finite and not negative"),
        ([1.0, 2.0], ValueError, "expected dt of shape"),
    ],
)
def test_invalid_times_are_refused(times, kind, sentence):
    with pytest.raises(kind, match=sentence):
        rm.PowerLawLSTM(1, 2)(torch.randn(4, 1, 1), times=times)


def test_dt_with_times_and_layers_that_do_not_use_dt_are_refused():
    x = torch.randn(4, 1, 1)
    with pytest.raises(ValueError, match="expected dt or times, got both"):
        rm.PowerLawLSTM(1, 2)(x, dt=torch.ones(4), times=torch.arange(4.0))
    with pytest.raises(ValueError, match="expected no dt, got one: LSTM with gate 'sigmoid'"):
        rm.LSTM(1, 2)(x, times=torch.arange(4.0))


def test_dt_that_looks_like_times_warns_once():
    layer, x = rm.PowerLawLSTM(1, 2), torch.randn(20, 2, 1)
    times = torch.arange(20.0)[:, None].expand(20, 2)
    layer(x[:1], dt=times[:1])  # tells nothing
    with pytest.warns(UserWarning, match="dt increases at every step, up to 19, like absolute times"):
        layer(x, dt=times)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x, dt=times)
        for fine in (torch.rand(20, 2), torch.full((20, 2), 50.0), torch.linspace(0.1, 1, 20), None):
            rm.PowerLawLSTM(1, 2)(x, dt=fine)
        rm.PowerLawLSTM(1, 2)(x[:5], dt=times[:5])  # too few to tell
        rm.PowerLawLSTM(1, 2)(x, times=times)
