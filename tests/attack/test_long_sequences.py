"""Float32 gradients of long sequences against float64: within bounds that are stated for every gate."""

import pytest
import torch

import remanence as rm

STEPS, UNITS, INPUTS = 20_000, 6, 3
REMEMBERED = STEPS // 4
"""Steps that units remember, at most."""
BOUNDS = {"values": REMEMBERED * 2**-25, "gradients": 2 * REMEMBERED * 2**-25}
"""Of the norm of a difference over the norm of the truth. A forget value just below one is rounded by up to 2^-25, and
what is remembered for n steps is multiplied by n of them: 1.5e-4. A gradient goes there and back."""
LIKE_THE_LOOP = 3.0
"""An engine may lose so many times what the loop engine loses in float32, which is rounding alone."""


def long_run(gate, dtype, engine, state):
    torch.manual_seed(1)
    layer = rm.LSTM(INPUTS, UNITS, gate=gate, engine=engine)
    layer.load_state_dict(state)
    layer = layer.to(dtype)
    inputs = torch.randn(STEPS, 1, INPUTS, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    output, after = layer(inputs)
    # The loss looks at all steps, so that gradients come from near and from far.
    loss = output.square().mean() + sum(part.square().mean() for part in after[:2])
    slopes = torch.autograd.grad(loss, [inputs, *layer.parameters()])
    names = ["inputs", *(name for name, _ in layer.named_parameters())]
    values = {"output": output, **{f"state {n}": part for n, part in enumerate(after)}}
    return (
        {name: value.detach().double() for name, value in values.items()},
        {name: slope.double() for name, slope in zip(names, slopes, strict=True)},
    )


def largest(found, truth):
    return max(float((found[name] - truth[name]).norm() / truth[name].norm().clamp(min=1e-12)) for name in truth)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("gate", list(rm.gates.KNOWN))
def test_gradients_of_twenty_thousand_steps_are_those_of_float64(gate, capsys):
    torch.manual_seed(0)
    start = rm.LSTM(INPUTS, UNITS, gate=gate)
    if gate != "power_law":  # units that remember for thousands of steps
        start = rm.LSTM(INPUTS, UNITS, gate=gate, timescales=rm.timescales.Chrono(REMEMBERED))
    state = start.state_dict()
    values, gradients = long_run(gate, torch.float64, "cpu", state)
    errors = {}
    for engine in ("auto", "loop"):
        found_values, found_gradients = long_run(gate, torch.float32, engine, state)
        errors[engine] = {"values": largest(found_values, values), "gradients": largest(found_gradients, gradients)}
    with capsys.disabled():
        print(
            f"\n{gate}: "
            + ", ".join(f"{name} {errors['auto'][name]:.1e} (loop {errors['loop'][name]:.1e})" for name in BOUNDS)
        )
    for name, bound in BOUNDS.items():
        assert errors["auto"][name] <= bound, f"{name}: {errors['auto'][name]:.1e}"
        assert errors["auto"][name] <= LIKE_THE_LOOP * errors["loop"][name], f"{name}: {errors}"
