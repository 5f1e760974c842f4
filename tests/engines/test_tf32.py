"""float32 with TF32 products on the fused GPU engines: as near to float64 as TF32 allows, whatever the magnitudes.

Needs a CUDA device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from test_on_gpu import BOTH, CUDA, errors, numbers, pair, pytestmark  # noqa: F401
from torch import Tensor

import remanence as rm
from remanence.cells import GatedCell, GRUCell, JANETCell, LSTMCell
from remanence.engines import KNOWN, comparison, samples, stacked
from remanence.engines.machine import float32_products
from remanence.gates import Fast, PowerLaw, Refine, Sigmoid, Softsign, UniformRefine

TOLERANCE = comparison.TF32.tolerance


@pytest.fixture(autouse=True)
def _tf32() -> Iterator[None]:
    with float32_products(True):
        yield


# Sizes.

TASKS: list[tuple[GatedCell, int, int]] = [  # units and rows: whole and broken tiles, one program and sixteen
    (LSTMCell(PowerLaw(), coupled=True), 16, 1),
    (GRUCell(Refine()), 48, 8),
    (LSTMCell(Sigmoid()), 128, 20),
    (GRUCell(PowerLaw()), 208, 130),
    (JANETCell(Fast()), 256, 100),
    (LSTMCell(PowerLaw()), 400, 20),
    (LSTMCell(UniformRefine(), coupled=True), 512, 130),
    (GRUCell(Sigmoid()), 512, 1),
    (LSTMCell(Fast()), 528, 8),
    (JANETCell(PowerLaw()), 716, 64),
    (LSTMCell(PowerLaw(), coupled=True), 716, 128),
    (GRUCell(Refine()), 768, 300),
    (JANETCell(Softsign()), 828, 70),
    (GRUCell(Fast()), 1024, 9),
    (LSTMCell(PowerLaw()), 1150, 20),
    (LSTMCell(PowerLaw(), coupled=True), 1150, 20),  # rows of three blocks are no whole vectors
    (GRUCell(Fast()), 829, 9),
]


@pytest.mark.parametrize("engine", [CUDA])
@pytest.mark.parametrize("reverse", [False, True], ids=["plain", "reverse-lengths-dt"])
@pytest.mark.parametrize(
    ("cell", "units", "batch"), TASKS, ids=[f"{cell.name}-{cell.gate.name}-H{h}-B{b}" for cell, h, b in TASKS]
)
def test_any_size_is_the_loops(engine: str, cell: GatedCell, units: int, batch: int, reverse: bool) -> None:
    """From a first state, with every gradient."""
    device = torch.device("cuda", torch.cuda.current_device())
    sizes = samples.Sizes(8, batch, 5, units)
    irregular = reverse and cell.takes_dt
    task = samples.make_task(cell, sizes, torch.float32, device, irregular=irregular, unequal=reverse, reverse=reverse)
    assert KNOWN[engine].refuses(task) is None
    found = comparison.errors_of(KNOWN[engine], task)
    assert not isinstance(found, str), found
    assert found.beyond(TOLERANCE) is None


@pytest.mark.parametrize("engine", [CUDA])
@pytest.mark.parametrize("units", [528, 784])
def test_wide_layers_side_by_side_are_those_alone(engine: str, units: int) -> None:
    """Each layer has its own part of the matrix in shared memory and in L2.

    Results are bitwise equal because there are no more tiles than resident clusters: with more, sums have another
    order. Inputs and their weights are eighths because torch rounds to TF32 in some matmuls and not in others.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    sizes = samples.Sizes(4, 9, 5, units)
    tasks = [samples.make_task(LSTMCell(Fast()), sizes, torch.float32, device, seed=seed) for seed in range(3)]
    for task in tasks:
        for value in (task.inputs, task.weights["weight_ih"]):
            value.detach().mul_(8).round_().div_(8)
    whole = KNOWN[engine].run(stacked(tasks)).output
    for task, output in zip(tasks, whole, strict=True):
        assert torch.equal(output, KNOWN[engine].run(task).output)


@pytest.mark.parametrize("units", [716, 828])
def test_tall_tiles_are_the_loops(units: int) -> None:
    layer, exact = pair(rm.LSTM, 8, units, torch.float32)
    x = torch.randn(6, 128, 8, device="cuda")
    truth = numbers(exact, x.double(), "loop")
    found = errors(numbers(layer, x, "triton"), truth)
    assert max(found.values()) < TOLERANCE, found
    with torch.no_grad():
        output, state = layer(x)
    values = {"output": output.double()} | {f"state {i}": part.double() for i, part in enumerate(state)}
    found = errors(values, {name: truth[name] for name in values})
    assert max(found.values()) < TOLERANCE, found


# Magnitudes. Output gates are nearly closed, so that h times a large matrix is no large number: gates that saturate
# hide errors, and those that switch make them arbitrarily large.


def _all_but_output(matrix: Tensor, factor: float) -> None:
    matrix[: 3 * matrix.shape[1]] *= factor


CHANGES: dict[str, tuple[int, Callable[[Tensor], object]]] = {  # steps, and what is done to the recurrent matrix
    "as it is": (8, lambda matrix: matrix),
    "a millionth": (8, lambda matrix: matrix.mul_(1e-6)),
    "a hundredfold": (8, lambda matrix: _all_but_output(matrix, 100.0)),
    "a thousandfold": (1, lambda matrix: matrix.mul_(1e3)),
    "one huge entry": (8, lambda matrix: matrix[5, 7].fill_(100.0)),
    "rows apart": (8, lambda matrix: matrix.mul_(torch.logspace(-6, 2, len(matrix), device="cuda")[:, None])),
}


@BOTH
@pytest.mark.parametrize("units", [128, 512])
@pytest.mark.parametrize("change", CHANGES)
def test_every_sequence_has_the_error_of_tf32_whatever_the_size_of_weights_and_derivatives(
    engine: str, units: int, change: str
) -> None:
    batch = 20
    steps, changed = CHANGES[change]
    layer, exact = pair(rm.LSTM, 8, units, torch.float32)
    with torch.no_grad():
        layer.bias_ih_l0[3 * units :] = -5
        changed(layer.weight_hh_l0)
        exact.load_state_dict(layer.state_dict())
    x = torch.randn(steps, batch, 8, device="cuda")
    hidden = 1e-3 * torch.randn(1, batch, units, device="cuda")
    size = torch.logspace(-12, 12, batch, device="cuda")  # of the derivatives by the outputs of a sequence
    found, truth = (
        by_sequence(each, name, x.to(dtype), hidden.to(dtype), size.to(dtype))
        for each, name, dtype in ((layer, engine, torch.float32), (exact, "loop", torch.float64))
    )
    for name, value in truth.items():
        error = (found[name] - value).norm(dim=(0, 2)) / value.norm(dim=(0, 2))
        assert error.max() < TOLERANCE, f"{name}: {error.tolist()}"


def by_sequence(layer: rm.nn.Recurrent, engine: str, x: Tensor, hidden: Tensor, size: Tensor) -> dict[str, Tensor]:
    """Outputs and derivatives by inputs and first state, `(..., B, ...)` in float64."""
    layer.engine = engine
    x, hidden = x.clone().requires_grad_(), hidden.clone().requires_grad_()
    output, _ = layer(x, (hidden, torch.zeros_like(hidden)))
    slopes = torch.autograd.grad(output, (x, hidden), size[:, None].expand_as(output))
    return {
        name: value.detach().double()
        for name, value in zip(("output", "by inputs", "by first state"), (output, *slopes), strict=True)
    }
