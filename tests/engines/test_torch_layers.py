"""torch's own kernels as an engine."""

import pytest
import torch

import remanence as rm

LAYERS = {
    "lstm": lambda: rm.LSTM(3, 5, 2, bidirectional=True, dtype=torch.float64),
    "projected": lambda: rm.LSTM(3, 5, proj_size=2, bidirectional=True, dtype=torch.float64),
    "without-bias": lambda: rm.LSTM(3, 5, bias=False, dtype=torch.float64),
    "gru": lambda: rm.GRU(3, 5, 2, bidirectional=True, dtype=torch.float64),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_values_and_gradients_match_the_loop(layer):
    torch.manual_seed(0)
    layer = LAYERS[layer]()
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for engine in ("torch", "loop"):
        layer.engine = engine
        output, state = layer(x)
        parts = state if isinstance(state, tuple) else (state,)
        loss = output.square().sum() + sum(part.sin().sum() for part in parts)
        found.append([output, *parts, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: rm.LSTM(3, 4, gate="fast"), "torch has only the sigmoid gate, and the gate is fast"),
        (lambda: rm.LSTM(3, 4, input_gate="coupled"), "torch has no coupled input gate"),
        (lambda: rm.JANET(3, 4), "torch has only an LSTM and a GRU, and the cell is janet"),
        (lambda: rm.NRU(3, 4), "torch has only an LSTM and a GRU, and the cell is nru"),
    ],
    ids=["gate", "coupled", "janet", "nru"],
)
def test_what_torch_does_not_have_is_refused_in_one_sentence(layer, reason):
    layer = layer()
    layer.engine = "torch"
    with pytest.raises(ValueError, match=f"^expected a task that engine='torch' can run, but {reason}$"):
        layer(torch.ones(2, 1, 3))


def test_narrow_states_are_left_to_other_engines():
    layer = rm.LSTM(3, 4, engine="torch", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"torch would keep the state in torch\.bfloat16"):
        layer(torch.ones(2, 1, 3, dtype=torch.bfloat16))
