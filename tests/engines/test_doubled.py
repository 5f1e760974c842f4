"""SRUs on engines with one matmul per step: two half steps give the loop's values and gradients."""

from __future__ import annotations

import os
from typing import Any

import pytest
import simulation
import torch

import remanence as rm
import remanence.engines.cuda as clusters
from remanence import engines
from remanence.cells import SRUCell
from remanence.engines import comparison, samples
from remanence.engines.cpp import engine as host
from remanence.engines.cuda import plan
from remanence.engines.doubled import Doubled, HalfStepCell
from remanence.engines.kernels.contract import derivation
from remanence.engines.machine import float32_products

CPU = torch.device("cpu")
compiles = pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler")
interprets = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted")
CELLS = {
    "more statistics": SRUCell(7, 3),
    "more summary": SRUCell(3, 5, (0.0, 0.5, 0.999)),
    "one average": SRUCell(4, 4, (0.9,)),
}
SPECIAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "unequal": {"unequal": True},
    "reverse": {"reverse": True},
    "unequal, reverse": {"unequal": True, "reverse": True},
}
cells = pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
specials = pytest.mark.parametrize("special", SPECIAL.values(), ids=SPECIAL)


def assert_like_the_loop(engine: str, cell: SRUCell, precision: Any, **special: Any) -> None:
    task = samples.make_task(cell, samples.Sizes(9, 4, 3, 6), precision.dtype, CPU, **special)
    fitted = engines.fitted_to(engines.KNOWN[engine], task)
    assert isinstance(fitted, Doubled)
    assert fitted.refuses(task) is None
    found = comparison.errors_of(fitted, task)
    assert not isinstance(found, str), found
    assert found.beyond(max(precision.tolerance, 2 * comparison.own_error(task))) is None


@cells
@specials
def test_on_the_engine_cpu(cell: SRUCell, special: dict[str, Any]) -> None:
    assert_like_the_loop("cpu", cell, comparison.FLOAT64, **special)


@compiles
@pytest.mark.long
@cells
def test_on_the_engine_cpp(cell: SRUCell) -> None:
    for special in SPECIAL.values():
        assert_like_the_loop("c++", cell, comparison.FLOAT32, **special)


@interprets
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy computes both sides of a choice
@specials
def test_on_the_engine_triton_interpreted(special: dict[str, Any]) -> None:
    with float32_products(False):
        assert_like_the_loop("triton", CELLS["more statistics"], comparison.FLOAT32, **special)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("engine", ["cuda", "triton"])
def test_on_a_gpu(engine: str) -> None:
    cell, device = SRUCell(155, 50), torch.device("cuda")
    task = samples.make_task(cell, samples.Sizes(20, 19, 1, 150), torch.float32, device)
    fitted = engines.fitted_to(engines.KNOWN[engine], task)
    reason = fitted.refuses(task)
    if reason is not None:
        pytest.skip(reason)
    with float32_products(False):
        found = comparison.errors_of(fitted, task)
        assert not isinstance(found, str), found
        assert found.beyond(1e-4) is None


@pytest.mark.parametrize("bias", [True, False])
def test_layers_from_zeros_without_biases_and_in_both_directions(bias: bool) -> None:
    torch.manual_seed(0)
    layer = rm.SRU(3, 5, 2, bias=bias, bidirectional=True, dtype=torch.float64, engine="cpu")
    x, lengths = torch.randn(6, 3, 3, dtype=torch.float64), torch.tensor([6, 2, 4])
    results = [layer(x, lengths=lengths)]
    layer.recompute = 3  # sequences end before the last chunk begins
    results.append(layer(x, lengths=lengths))
    layer.engine = "loop"
    expected, other = layer(x, lengths=lengths)
    for found, state in results:
        for one, two in zip((found, *state), (expected, *other), strict=True):
            torch.testing.assert_close(one, two)


@interprets
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@specials
def test_stacked_tasks_match_the_loop_interpreted(special: dict[str, Any]) -> None:
    """Several SRUs in one launch."""
    tasks = [
        samples.make_task(CELLS["more statistics"], samples.Sizes(9, 4, 3, 6), torch.float32, CPU, seed=seed, **special)
        for seed in range(3)
    ]
    with float32_products(False):
        together = engines.run("triton", tasks)
    for task, found in zip(tasks, together, strict=True):
        truth = engines.KNOWN["loop"].run(task)
        for one, two in zip((found.output, *found.state), (truth.output, *truth.state), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
@pytest.mark.long
def test_stacked_tasks_match_the_loop_on_a_simulated_gpu(simulated: pytest.MonkeyPatch) -> None:
    """Values and gradients of several SRUs with the usual five averages, in one launch of the cuda engine.

    With low-order parts of the matrix in shared memory, as in layers of more than 128 units.
    """
    from test_simulated import force

    force(plan.LaunchShape(8, 1, 1, shelved=True), simulated)
    special = SPECIAL["unequal, reverse"]
    tasks = [
        samples.make_task(SRUCell(7, 3), samples.Sizes(5, 4, 3, 6), torch.float32, CPU, seed=seed, **special)
        for seed in range(3)
    ]
    leaves = [[task.inputs, *task.weights.values()] for task in tasks]
    for leaf in (leaf for own in leaves for leaf in own):
        leaf.requires_grad_()
    with float32_products(False):
        together = Doubled(clusters).run(engines.stacked(tasks))
        slopes = torch.autograd.grad(together.output.square().sum(), [leaf for own in leaves for leaf in own])
    for number, task in enumerate(tasks):
        truth = engines.KNOWN["loop"].run(task)
        own = slopes[number * len(leaves[0]) :][: len(leaves[0])]
        expected = torch.autograd.grad(truth.output.square().sum(), leaves[number])
        found = (together.output[number], *(part[number] for part in together.state), *own)
        for one, two in zip(found, (truth.output, *truth.state, *expected), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_half_a_step_is_derived() -> None:
    known = derivation(HalfStepCell((0.0, 0.5, 0.9)))
    assert known.float32 == (None, None)
    assert known.padding == (None, None)
