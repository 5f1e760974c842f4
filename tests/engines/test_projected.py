"""Projections (proj_size) on engines without them: values and every gradient match the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_cells import Peephole

import remanence as rm
from remanence import engines
from remanence.cells import LSTMCell
from remanence.engines import choice, comparison, loop, samples
from remanence.engines.base import EngineTask, Zeros
from remanence.engines.cpp import engine as host
from remanence.engines.machine import float32_products
from remanence.gates import Fast, PowerLaw, Refine, Sigmoid

compiles = pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CELLS = [LSTMCell(Sigmoid()), LSTMCell(PowerLaw(), coupled=True), LSTMCell(Fast()), LSTMCell(Refine())]
every_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.gate.name)


def task_of(
    cell: LSTMCell,
    sizes: tuple[int, int, int, int, int],
    dtype: torch.dtype,
    *,
    zeros: bool = False,
    device: str = "cpu",
    **special: Any,
) -> EngineTask:
    """A random task of T steps, B sequences, I inputs, H units and P outputs of the projection."""
    *others, units, left = sizes
    task = samples.make_task(cell, samples.Sizes(*others, units), dtype, torch.device(device), **special)
    weights = dict(task.weights)
    weights["weight_hh"] = weights["weight_hh"][:, :left].contiguous()
    source = torch.Generator("cpu").manual_seed(7)
    matrix = torch.randn(left, units, generator=source, dtype=torch.float64) / units**0.5
    weights["weight_hr"] = matrix.to(device, dtype)
    state = tuple(task.first_state)
    state = (state[0][..., :left].contiguous(), *state[1:])
    return replace(task, weights=weights, state=Zeros((left, *(units for _ in state[1:]))) if zeros else state)


def errors(engine: str, task: EngineTask) -> dict[str, float]:
    """Errors of values and gradients, compared with the loop in float64."""

    def run(run: Any, task: EngineTask) -> dict[str, torch.Tensor]:
        leaves = {name: value.detach().clone().requires_grad_() for name, value in task.weights.items()}
        inputs = task.inputs.detach().clone().requires_grad_()
        state = task.state
        if not isinstance(state, Zeros):
            state = tuple(part.detach().clone().requires_grad_() for part in state)
        result = run(replace(task, weights=leaves, inputs=inputs, state=state))
        values = {"output": result.output} | {f"final {i}": part for i, part in enumerate(result.state)}
        given = {"input": inputs} | leaves | ({} if isinstance(state, Zeros) else dict(enumerate(state)))
        source = torch.Generator("cpu").manual_seed(2)
        directions = [
            torch.randn(value.shape, generator=source, dtype=torch.float64).to(value) for value in values.values()
        ]
        slopes = torch.autograd.grad(list(values.values()), list(given.values()), directions, materialize_grads=True)
        values = {name: value.detach() for name, value in values.items()}
        return values | {f"by {name}": slope for name, slope in zip(given, slopes, strict=True)}

    wide = replace(
        task,
        weights={name: value.double() for name, value in task.weights.items()},
        inputs=task.inputs.double(),
        state=task.state if isinstance(task.state, Zeros) else tuple(part.double() for part in task.state),
        dt=None if task.dt is None else task.dt.double(),
    )
    chosen = choice.choose(engine, task)
    assert chosen.name == engine
    return comparison.relative(run(chosen.run, task), run(loop.run, wide))


@every_cell
@pytest.mark.parametrize("zeros", [True, False], ids=["from zeros", "from a state"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("engine", ["cpu", pytest.param("c++", marks=compiles)])
def test_like_the_loop(cell: LSTMCell, zeros: bool, reverse: bool, engine: str) -> None:
    dtype, bound = (torch.float64, 1e-12) if engine == "cpu" else (torch.float32, 1e-5)
    task = task_of(cell, (5, 6, 3, 9, 4), dtype, zeros=zeros, reverse=reverse, irregular=cell.takes_dt)
    assert max(errors(engine, task).values()) <= bound
    one = replace(task, inputs=task.inputs[:1], dt=None if task.dt is None else task.dt[:1])
    assert max(errors(engine, one).values()) <= bound


@every_cell
def test_sequences_of_unequal_length_from_zeros(cell: LSTMCell) -> None:
    task = task_of(cell, (6, 5, 3, 9, 2), torch.float64, zeros=True, unequal=True, reverse=True)
    assert max(errors("cpu", task).values()) <= 1e-12


def test_unequal_lengths_from_a_state_go_to_the_loop() -> None:
    task = task_of(LSTMCell(Fast()), (6, 5, 3, 9, 2), torch.float64, unequal=True)
    assert choice.choose("auto", task) is engines.KNOWN["loop"]
    with pytest.raises(ValueError, match="engine='cpu' can run, but with proj_size it does not take an initial state"):
        choice.choose("cpu", task)


@settings(deadline=None, max_examples=20)
@given(
    cell=st.sampled_from(CELLS),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(2, 12)),
    left=st.integers(1, 11),
    zeros=st.booleans(),
    reverse=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_size(cell, sizes, left, zeros, reverse, seed) -> None:
    task = task_of(cell, (*sizes, min(left, sizes[-1] - 1)), torch.float64, zeros=zeros, reverse=reverse, seed=seed)
    assert max(errors("cpu", task).values()) <= 1e-9  # of single numbers, where slopes cancel


@on_gpu
@pytest.mark.gpu
@every_cell
@pytest.mark.parametrize("zeros", [True, False], ids=["from zeros", "from a state"])
@pytest.mark.parametrize("engine", ["cuda", "triton"])
def test_on_a_gpu(cell: LSTMCell, zeros: bool, engine: str) -> None:
    for precision in (comparison.TF32, comparison.BFLOAT16):
        with float32_products(precision.tf32):
            task = task_of(cell, (7, 19, 5, 128, 48), precision.dtype, zeros=zeros, device="cuda")
            assert max(errors(engine, task).values()) <= 2 * precision.tolerance  # two matrices are rounded


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_layers_are_fast_and_like_torchs() -> None:
    theirs = torch.nn.LSTM(3, 8, num_layers=2, proj_size=3, bidirectional=True)
    ours = rm.LSTM(3, 8, num_layers=2, proj_size=3, bidirectional=True)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(5, 4, 3)
    expected, (hidden, cell) = theirs(inputs)
    assert rm.engines.explain(ours).engine == ("c++" if host.lacks() is None else "cpu")
    output, (own_hidden, own_cell) = ours(inputs)
    for found, true in ((output, expected), (own_hidden, hidden), (own_cell, cell)):
        torch.testing.assert_close(found, true)
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, [5, 4, 2, 1])
    torch.testing.assert_close(ours(packed)[0].data, theirs(packed)[0].data)


def test_a_custom_cell_is_projected_too() -> None:
    class Projected(Peephole):
        name = "projected"
        projects = True

    task = task_of(Projected(PowerLaw()), (5, 6, 3, 9, 4), torch.float64)
    assert max(errors("cpu", task).values()) <= 1e-12


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_chunks_of_packed_sequences(bidirectional: bool) -> None:
    """All chunks but the first have an initial state, and in some of them sequences have ended."""
    layer = rm.LSTM(3, 8, proj_size=3, recompute=2, bidirectional=bidirectional)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(6, 4, 3), [6, 4, 2, 1])
    output, state = layer(packed)
    layer.engine, layer.recompute = "loop", 0
    expected, truth = layer(packed)
    torch.testing.assert_close(output.data, expected.data)
    for part, true in zip(state, truth, strict=True):
        torch.testing.assert_close(part, true)


def test_a_hidden_state_used_by_the_update_is_left_to_the_loop() -> None:
    class Blending(LSTMCell):
        name = "blending"

        def pointwise(self, projected: Any, recurrent: Any, state: Any, weights: Any, dt: Any) -> Any:
            (hidden, *others), seen = super().pointwise(projected, recurrent, state, weights, dt)
            return (hidden + 0.5 * state[0], *others), seen

    task = task_of(Blending(Sigmoid()), (5, 6, 3, 9, 1), torch.float64)
    assert choice.choose("auto", task) is engines.KNOWN["loop"]
    with pytest.raises(ValueError, match="the update of blending uses its hidden state, which is projected"):
        choice.choose("cpu", task)


def test_explain_says_what_runs() -> None:
    found = rm.engines.explain(rm.LSTM(3, 8, proj_size=3, gate="fast"))
    assert found.engine not in found.refusals
