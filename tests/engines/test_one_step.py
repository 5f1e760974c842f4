"""The kernel for single steps matches the cell's equation, on the simulated GPU and on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import simulation
import torch
from own_gates import Mixture
from torch import Tensor

import remanence as rm
from remanence.cells import GatedCell, GRUCell, JANETCell, LSTMCell, PhasedLSTMCell
from remanence.engines import cpp, loop
from remanence.engines.base import EngineTask
from remanence.engines.cuda import device as chips
from remanence.engines.cuda import one_step as on_gpus
from remanence.engines.kernels import bound
from remanence.engines.kernels import one_step as steps
from remanence.engines.kernels.contract import derivation
from remanence.engines.kernels.run import kind_of
from remanence.engines.samples import Sizes, make_task, widened
from remanence.gates import Fast, PowerLaw, Refine, Sigmoid

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
SIMULATED = pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
CELLS: dict[str, GatedCell] = {
    "lstm": LSTMCell(Sigmoid()),
    "lstm fast": LSTMCell(Fast()),
    "lstm coupled": LSTMCell(Fast(), coupled=True),
    "lstm power_law": LSTMCell(PowerLaw(), coupled=True),
    "lstm refine": LSTMCell(Refine()),
    "lstm six blocks": LSTMCell(Mixture()),
    "gru": GRUCell(Sigmoid()),
    "gru power_law": GRUCell(PowerLaw()),
    "janet": JANETCell(Fast(), beta=0.7),
    "phased": PhasedLSTMCell(Sigmoid()),
}
SIZES = [(1, 5, 7), (4, 8, 12), (6, 12, 33), (16, 1, 5)]  # sequences, inputs, units: some are read four at a time
ROWS = [*range(1, 10), 16]


@pytest.fixture(params=[pytest.param("cpu", id="simulated", marks=SIMULATED), pytest.param("cuda", marks=GPU)])
def place(request, libraries, monkeypatch) -> Iterator[torch.device]:
    """Where to compute."""
    if request.param == "cuda":
        device = torch.device("cuda", 0)
        if (reason := chips.lacks(device)) is not None:
            pytest.skip(reason)
        yield device
        return
    simulation.stand_in(on_gpus, libraries, monkeypatch)
    yield torch.device("cpu")


def by_kernel(cell: GatedCell, has_dt: bool, place: torch.device) -> GatedCell:
    """A copy of a cell whose single steps are those of the kernel."""
    known, kind = derivation(cell), kind_of(cell, False, "tf32", "cuda")
    start = on_gpus.make(kind, known, has_dt, place)
    found, index = copy(cell), -1 if place.type == "cpu" else place.index
    steps._steps_of(found)[index, has_dt] = bound.Compiled(
        start, kind.blocks, len(cell.widths(1, 1)), known.own, known.twice, has_dt, known.single
    )
    return found


def assert_near(found: tuple[Tensor, ...] | None, truth: Any, tolerance: float = 2e-5) -> None:
    assert found is not None
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


def tolerance_of(name: str) -> float:
    """That of a cell: the time gate of a phased LSTM opens within a few hundredths of a period."""
    return 2e-4 if name == "phased" else 2e-5


@pytest.mark.parametrize("name", CELLS)
def test_is_the_equation(name: str, place: torch.device) -> None:
    cell = CELLS[name]
    for has_dt in {False, cell.takes_dt}:
        quick = by_kernel(cell, has_dt, place)
        for sizes in SIZES:
            task = make_task(cell, Sizes(1, *sizes), torch.float32, place, irregular=has_dt)
            dt = None if task.dt is None else task.dt[0]
            found = steps.one_step(quick, task.weights, task.inputs[0], task.first_state, dt)
            assert_near(found, loop.run(widened(task)).state, tolerance_of(name))


@pytest.mark.parametrize("name", ["lstm power_law", "gru"])
def test_begins_at_zero_and_without_biases(name: str, place: torch.device) -> None:
    cell = CELLS[name]
    task = make_task(cell, Sizes(1, 3, 4, 9), torch.float32, place)
    weights = {name: value for name, value in task.weights.items() if "bias" not in name}
    zeros = tuple(torch.zeros_like(part) for part in task.first_state)
    truth = loop.run(widened(replace(task, weights=weights, state=zeros)))
    found = steps.one_step(by_kernel(cell, False, place), weights, task.inputs[0], None, None)
    assert_near(found, truth.state)


def test_inputs_may_begin_anywhere(place: torch.device) -> None:
    cell = CELLS["lstm fast"]
    quick = by_kernel(cell, False, place)
    task = make_task(cell, Sizes(1, 2, 8, 12), torch.float32, place)
    truth = loop.run(widened(task)).state
    shifted = torch.cat([torch.full((3,), torch.nan, device=place), task.inputs[0].flatten()])[3:].view(2, 8)
    assert_near(steps.one_step(quick, task.weights, shifted, task.first_state, None), truth)


@pytest.mark.parametrize("rows", ROWS)
def test_any_number_of_sequences_is_right(rows: int, place: torch.device) -> None:
    cell = CELLS["gru power_law"]
    task = make_task(cell, Sizes(1, rows, 9, 37), torch.float32, place, irregular=True)
    assert task.dt is not None
    found = steps.one_step(by_kernel(cell, True, place), task.weights, task.inputs[0], task.first_state, task.dt[0])
    assert_near(found, loop.run(widened(task)).state)


@pytest.mark.parametrize("name", ["lstm power_law", "gru power_law"])
def test_times_that_are_none_become_nan(name: str, place: torch.device) -> None:
    cell = CELLS[name]
    task = make_task(cell, Sizes(1, 6, 4, 9), torch.float32, place, irregular=True)
    dt = torch.tensor([-1.0, 0.5, torch.nan, torch.inf, 0.0, -torch.inf], device=place)
    kept = torch.tensor([1, 4], device=place)
    found = steps.one_step(by_kernel(cell, True, place), task.weights, task.inputs[0], task.first_state, dt)
    valid = torch.where((dt >= 0) & (dt < torch.inf), dt, torch.nan)
    truth = loop.run(widened(replace(task, dt=valid.unsqueeze(0)))).state
    assert found is not None
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-5, equal_nan=True)
        assert torch.equal(one.isnan().all(-1).logical_not().nonzero().flatten(), kept)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_treats_times_as_a_sequence_does() -> None:
    layer = rm.LSTM(4, 9, gate="power_law", device="cuda")
    cell, x = rm.LSTMCell.of(layer), torch.randn(3, 4, device="cuda")
    for times in ([0.5, -1.0, torch.nan], torch.tensor([torch.inf, 0.0, 2.0], device="cuda")):
        dt = torch.as_tensor(times)
        sequence = layer(x.unsqueeze(0), dt=dt.unsqueeze(0))[0][0]
        with torch.no_grad():
            found = cell(x, dt=times)[0], layer(x.unsqueeze(0), dt=dt.cuda().unsqueeze(0))[0][0]
        for one in found:
            torch.testing.assert_close(one, sequence, rtol=1e-4, atol=1e-4, equal_nan=True)
            assert torch.equal(one.isnan().any(-1).cpu(), ~((dt >= 0) & (dt < torch.inf)).cpu())


COMPILES = pytest.mark.skipif(cpp.engine.lacks() is not None, reason="no C++ compiler")
WIDTHS = [(1, 1), (5, 3), (16, 8), (17, 33), (70, 100), (600, 34)]  # inputs, units: with and without a remainder


def compiled(cell: GatedCell, sizes: Sizes, has_dt: bool) -> tuple[EngineTask, tuple[Tensor, ...] | None]:
    """A task, and its state after a step by compiled C++."""
    task = make_task(cell, sizes, torch.float32, torch.device("cpu"), irregular=has_dt)
    dt = None if task.dt is None else task.dt[0]
    return task, steps.one_step(cell, task.weights, task.inputs[0], task.first_state, dt)


@COMPILES
@pytest.mark.parametrize("rows", ROWS)
def test_any_number_of_sequences_is_right_on_a_cpu(rows: int) -> None:
    for name in ("lstm", "gru power_law"):
        for widths in WIDTHS:
            task, found = compiled(CELLS[name], Sizes(1, rows, *widths), CELLS[name].takes_dt)
            assert_near(found, loop.run(widened(task)).state)


@COMPILES
@pytest.mark.parametrize("name", CELLS)
def test_is_the_equation_on_a_cpu(name: str) -> None:
    cell = CELLS[name]
    for has_dt in {False, cell.takes_dt}:
        for sizes in SIZES:
            task, found = compiled(cell, Sizes(1, *sizes), has_dt)
            assert_near(found, loop.run(widened(task)).state, tolerance_of(name))


@COMPILES
@pytest.mark.parametrize("rows", [2, 7])
def test_sequences_do_not_mix_on_a_cpu(rows: int) -> None:
    cell = CELLS["lstm fast"]
    task = make_task(cell, Sizes(1, rows, 19, 21), torch.float32, torch.device("cpu"))
    state = tuple(part.clone() for part in task.first_state)
    inputs = task.inputs[0].clone()
    for part in (inputs, *state):
        part[1] = torch.nan
    found = steps.one_step(cell, task.weights, inputs, state, None)
    assert found is not None
    for one, other in zip(found, loop.run(widened(task)).state, strict=True):
        assert one[1].isnan().all()
        others = [row for row in range(rows) if row != 1]
        torch.testing.assert_close(one[others].double(), other[others], rtol=2e-5, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("gate", ["sigmoid", "fast", "power_law", "refine"])
def test_layers_and_step_modules_take_it_on_a_gpu(gate: str, quick_steps: list[bool]) -> None:
    if (reason := chips.lacks(torch.device("cuda", 0))) is not None:
        pytest.skip(reason)
    layer = rm.LSTM(6, 20, num_layers=2, gate=gate, device="cuda")
    cell = rm.LSTMCell.of(layer)
    truth = rm.LSTM(6, 20, num_layers=2, gate=gate, engine="loop", device="cuda", dtype=torch.float64)
    truth.load_state_dict(layer.state_dict())
    x = torch.randn(5, 3, 6, device="cuda")
    with torch.no_grad():
        expected, after = truth(x.double())
        state = None
        for step in x:
            output, state = layer(step[None], state)
        found = None
        for step in x:
            found = cell(step, found)
        torch.testing.assert_close(output[0].double(), expected[-1], rtol=2e-5, atol=2e-5)
        assert found is not None
        for one, two, other in zip(state, found, after, strict=True):
            torch.testing.assert_close(one.double(), other.double(), rtol=2e-5, atol=2e-5)
            torch.testing.assert_close(two.double(), other[0].double(), rtol=2e-5, atol=2e-5)
        assert quick_steps == [True] * 15
        with torch.autocast("cuda", torch.bfloat16):
            cell(x[0], None)
        assert not any(quick_steps[15:])  # not in 16-bit dtypes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_steps_are_captured_in_a_graph() -> None:
    cell = rm.LSTMCell(6, 20, gate="fast", device="cuda")
    x, h, c = (torch.randn(2, size, device="cuda") for size in (6, 20, 20))
    with torch.no_grad():
        expected = cell(x, (h, c))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = cell(x, (h, c))
        x.mul_(2)
        graph.replay()
        torch.testing.assert_close(found, cell(x, (h, c)), rtol=0, atol=0)
        assert not torch.equal(found[0], expected[0])
