"""`together` gives the results of each layer alone."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import remanence as rm

MODELS = {
    "plstm": lambda: rm.PowerLawLSTM(3, 5, 2, bidirectional=True, dtype=torch.float64),
    "gru": lambda: rm.GRU(3, 5, gate="fast", dtype=torch.float64),
    "nru": lambda: rm.NRU(3, 5, dtype=torch.float64),
    "urnn": lambda: rm.UnitaryRNN(3, 6, 2, bidirectional=True, dtype=torch.float64),
    "goru": lambda: rm.GORU(3, 6, dtype=torch.float64),
    "sru": lambda: rm.SRU(3, 5, dtype=torch.float64),
}


@pytest.mark.parametrize("engine", ["auto", "loop"])
@pytest.mark.parametrize("model", MODELS)
def test_outputs_states_and_gradients_are_those_of_each_alone(model, engine):
    layers = [MODELS[model]() for _ in range(3)]
    for layer in layers:
        layer.engine = engine
    xs = [torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True) for _ in layers]
    for layer, x, (output, state) in zip(layers, xs, rm.together(layers, xs), strict=True):
        alone, state_alone = layer(x)
        assert torch.equal(output, alone)
        for part, expected in zip(state, state_alone, strict=True):
            assert torch.equal(part, expected)
        wanted = [x, *layer.parameters()]
        slopes = torch.autograd.grad(output.square().sum(), wanted, retain_graph=True)
        for slope, expected in zip(slopes, torch.autograd.grad(alone.square().sum(), wanted), strict=True):
            torch.testing.assert_close(slope, expected)


def test_one_input_serves_all_and_states_and_dt_are_passed_on():
    layers = [rm.PowerLawLSTM(3, 4) for _ in range(2)]
    x, dt = torch.randn(7, 2, 3), torch.rand(7, 2)
    first = rm.together(layers, x[:4], dts=dt[:4])
    second = rm.together(layers, x[4:], [state for _, state in first], dt[4:])
    for layer, (start, _), (end, _) in zip(layers, first, second, strict=True):
        torch.testing.assert_close(torch.cat((start, end)), layer(x, dt=dt)[0])


def test_packed_input_comes_back_packed():
    layers = [rm.LSTM(3, 4, gate="fast") for _ in range(2)]
    packed = pack_padded_sequence(torch.randn(5, 3, 3), torch.tensor([2, 5, 3]), enforce_sorted=False)
    for layer, (output, _) in zip(layers, rm.together(layers, packed), strict=True):
        torch.testing.assert_close(output.data, layer(packed)[0].data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rm.together([], torch.ones(2, 1, 3)), "expected at least one layer, got none"),
        (
            lambda: rm.together([rm.LSTM(3, 4), rm.LSTM(3, 5)], torch.ones(2, 1, 3)),
            "expected layers with the same arguments, got LSTM.3, 4. and LSTM.3, 5.",
        ),
        (
            lambda: rm.together([rm.LSTM(3, 4)] * 2, [torch.ones(2, 1, 3)]),
            "expected inputs for 2 layers, got 1",
        ),
        (
            lambda: rm.together([rm.LSTM(3, 4)] * 2, [torch.ones(2, 1, 3), torch.ones(3, 1, 3)]),
            "expected inputs of one shape, got .2, 1, 3. and .3, 1, 3.",
        ),
    ],
    ids=["no layer", "other sizes", "too few inputs", "other shapes"],
)
def test_layers_that_cannot_run_together_are_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()
