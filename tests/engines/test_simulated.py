"""The cuda kernels on a simulated GPU, compared with the loop: values and every gradient.

The simulated GPU is `simulated/chip.hpp`. Its threads run in random order and remote stores arrive late, so that a
kernel with a missing wait fails here. Rounding and speed of a real GPU are tested on one: `test_on_gpu.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import astuple, replace
from pathlib import Path

import pytest
import simulation
import torch
from own_gates import Mixture, Votes

import remanence.engines.cuda as clusters
from remanence import engines
from remanence.cells import GRUCell, JANETCell, LSTMCell, PointwiseCell, Step
from remanence.engines import comparison, samples
from remanence.engines.cuda import memos, plan, recurrence
from remanence.engines.doubled import HalfStepCell
from remanence.engines.kernels import layout, operator, run
from remanence.engines.machine import float32_products
from remanence.engines.pieces import run_in_pieces
from remanence.gates import Fast, PowerLaw, Refine, Sigmoid, Softsign, UniformRefine

pytestmark = pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def _simulated(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    simulation.stand_in(recurrence, libraries, monkeypatch)
    monkeypatch.setattr(recurrence, "processors", lambda device: 132)
    monkeypatch.setattr(recurrence, "largest_cluster", lambda device: plan.LARGEST)
    memos.forget()
    yield
    memos.forget()


WIDE = recurrence.NARROW + 1


class SmoothHalfStepCell(HalfStepCell):
    """Half a step of an SRU, or both halves without dt, with tanh: rounding must not switch a ReLU and its gradient."""

    name = "smooth_sru_half"

    def pointwise(self, projected, recurrent, state, weights, dt) -> Step:
        *seen, statistics = self.rows(projected + recurrent).values()
        after = [a * old + (1 - a) * new for a, old, new in zip(self.averages, state[1:], seen, strict=True)]
        summary = weights["bias_summary"].to(statistics.dtype) + sum(after[1:], after[0])
        if dt is None:
            return Step((torch.tanh(statistics + summary), *after), {})
        first = dt > 0.5
        hidden = torch.tanh(torch.where(first, statistics, summary))
        return Step((hidden, *(torch.where(first, *pair) for pair in zip(state[1:], after, strict=True))), {})


FIVE = SmoothHalfStepCell((0.0, 0.5, 0.9, 0.99, 0.999))
"""Six blocks, and four values besides the cell."""
CASES: dict[str, tuple[PointwiseCell, int, int, int, plan.LaunchShape]] = {  # inputs, units, rows, launch shape
    "one program": (LSTMCell(Sigmoid()), WIDE, 16, 5, plan.LaunchShape(4, 1, 1)),
    "two programs, two groups": (LSTMCell(Fast()), 5, 32, 11, plan.LaunchShape(4, 2, 1)),
    "a broken program": (LSTMCell(PowerLaw(), coupled=True), 11, 48, 3, plan.LaunchShape(8, 2, 1)),
    "three programs, two tiles": (GRUCell(Refine()), 16, 96, 12, plan.LaunchShape(8, 3, 2)),
    "wide inputs, two tiles": (GRUCell(Sigmoid()), WIDE, 32, 10, plan.LaunchShape(4, 2, 2)),
    "a full register file": (LSTMCell(Fast()), 2, 288, 3, plan.LaunchShape(8, 9, 1)),
    "five blocks": (LSTMCell(Refine()), WIDE, 16, 5, plan.LaunchShape(4, 1, 1)),
    "five blocks, two programs, two tiles": (LSTMCell(UniformRefine()), 5, 32, 11, plan.LaunchShape(4, 2, 2)),
    "five blocks, three programs": (LSTMCell(Refine()), 9, 96, 3, plan.LaunchShape(8, 3, 1)),
    "five blocks, a full register file": (LSTMCell(Refine()), 2, 288, 3, plan.LaunchShape(8, 9, 1)),
    "six blocks, a broken program": (LSTMCell(Mixture()), 11, 48, 3, plan.LaunchShape(8, 2, 1)),
    "eight blocks, two tiles": (LSTMCell(Votes()), 16, 32, 11, plan.LaunchShape(8, 1, 2)),
    "a whole layer": (LSTMCell(Fast()), 5, 32, 11, plan.make_whole(32, backward=False)),
    "a whole layer, wide inputs": (
        LSTMCell(PowerLaw(), coupled=True),
        WIDE,
        48,
        9,
        plan.make_whole(48, backward=False),
    ),
    "a whole layer, two blocks": (JANETCell(Softsign()), 16, 20, 17, plan.make_whole(20, backward=False)),
    "a whole layer, two blocks, no padding": (JANETCell(Sigmoid()), 9, 32, 9, plan.make_whole(32, backward=False)),
    "a whole layer, padding": (LSTMCell(Fast()), 9, 20, 9, plan.make_whole(20, backward=False)),
    "a whole layer with a part apart": (GRUCell(Refine()), 3, 16, 3, plan.make_whole(16, backward=False)),
    "a whole layer, five blocks": (LSTMCell(Refine()), 5, 48, 11, plan.make_whole(48, backward=False)),
    "a whole layer, five blocks, wide inputs": (
        LSTMCell(UniformRefine()),
        WIDE,
        32,
        9,
        plan.make_whole(32, backward=False),
    ),
    "a whole layer, five blocks, one aside": (LSTMCell(Refine()), 3, 112, 3, plan.make_whole(112, backward=False)),
    "a whole layer, five blocks, a part apart": (GRUCell(Mixture()), 3, 16, 3, plan.make_whole(16, backward=False)),
    "a whole layer, six blocks": (LSTMCell(Mixture()), 9, 20, 9, plan.make_whole(20, backward=False)),
    "padding": (JANETCell(Softsign()), 1, 20, 9, plan.LaunchShape(4, 2, 1)),
    "wide": (LSTMCell(Fast()), WIDE, 32, 11, plan.LaunchShape(4, 2, 1, held=1)),
    "wide, read ahead": (LSTMCell(PowerLaw(), coupled=True), WIDE, 80, 3, plan.LaunchShape(12, 2, 1, held=2, ahead=3)),
    "wide, three tiles": (GRUCell(Refine()), WIDE, 80, 20, plan.LaunchShape(8, 3, 3, held=3, ahead=2)),
    "streamed": (LSTMCell(PowerLaw()), WIDE, 144, 9, plan.LaunchShape(9, 4, 1, held=1, ahead=2, streamed=5)),
    "streamed, two blocks": (JANETCell(Fast()), WIDE, 112, 11, plan.LaunchShape(7, 4, 1, held=2, ahead=6, streamed=3)),
    "wide, ten programs": (LSTMCell(Fast()), WIDE, 160, 2, plan.LaunchShape(4, 10, 1, held=3, ahead=2)),
    "wide, nothing on the shelf": (JANETCell(Softsign()), WIDE, 20, 9, plan.LaunchShape(4, 2, 2, held=20, ahead=4)),
    "wide, no padding": (LSTMCell(PowerLaw()), WIDE, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
    "wide, a part apart, no padding": (GRUCell(PowerLaw()), WIDE, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
    "streamed, an odd number of units": (
        LSTMCell(Fast()),
        3,
        141,
        9,
        plan.LaunchShape(9, 4, 1, held=1, ahead=2, streamed=5),
    ),
    "wide, eight blocks": (LSTMCell(Votes()), WIDE, 30, 9, plan.LaunchShape(8, 1, 2, held=3, ahead=2)),
    "wide, five blocks": (LSTMCell(Refine()), WIDE, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
    "wide, five blocks, read ahead": (
        LSTMCell(UniformRefine()),
        WIDE,
        80,
        3,
        plan.LaunchShape(12, 2, 1, held=2, ahead=3),
    ),
    "streamed, five blocks, three tiles": (
        LSTMCell(Refine()),
        WIDE,
        80,
        20,
        plan.LaunchShape(8, 3, 3, held=1, ahead=2, streamed=3),
    ),
    "streamed, six blocks, a broken four of warps": (
        LSTMCell(Mixture()),
        3,
        141,
        9,
        plan.LaunchShape(9, 4, 1, held=2, ahead=3, streamed=6),
    ),
    "four carried, two tiles": (FIVE, WIDE, 48, 11, plan.LaunchShape(8, 2, 2)),
    "four carried, a whole layer": (FIVE, 5, 20, 11, plan.make_whole(20, backward=False)),
    "four carried, wide": (FIVE, WIDE, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
}
LARGEST = ("a full register file", "a broken four of warps")
SOON = [name for number, name in enumerate(CASES) if number % 2 == 0 and not name.endswith(LARGEST)]
"""Half of them, to limit the time of CI; run all of them manually before a kernel changes."""
every_case = pytest.mark.parametrize(
    ("cell", "inputs", "units", "rows", "sizes"),
    [
        pytest.param(
            *case,
            id=name.replace(" ", "-").replace(",", ""),
            marks=[] if name in SOON else [pytest.mark.slow],
        )
        for name, case in CASES.items()
    ],
)


def force(sizes: plan.LaunchShape, monkeypatch: pytest.MonkeyPatch) -> None:
    """Force a launch shape; the passes of whole and of wide layers derive their own from it."""

    def make(units: int, rows: int, replicas: int, parts: int, backward: bool, *chip: int) -> plan.LaunchShape:
        if sizes.whole:
            return plan.make_whole(units, backward)
        return replace(sizes, tiles=1) if sizes.wide and backward else sizes

    monkeypatch.setattr(plan, "make", make)


def errors(
    cell: PointwiseCell, inputs: int, units: int, rows: int, sizes: plan.LaunchShape, precision: object, special: bool
) -> object:
    """Errors of values and gradients, with an initial state; `special`: reverse, unequal lengths, irregular steps."""
    task = samples.make_task(
        cell,
        samples.Sizes(plan.DEPTH + 3, rows, inputs, units),  # every stage of the prefetch pipeline is reused
        precision.dtype,
        torch.device("cpu"),
        irregular=special and cell.takes_dt,
        unequal=special,
        reverse=special,
    )
    with float32_products(precision.tf32):
        return comparison.errors_of(clusters, task)


@pytest.mark.long
@every_case
@pytest.mark.parametrize(
    ("precision", "special"),
    [
        pytest.param(comparison.TF32, False, id="tf32", marks=pytest.mark.slow),
        pytest.param(comparison.FULL, True, id="full-special"),
    ],
)
def test_kernels_match_the_loop(cell, inputs, units, rows, sizes, precision, special, monkeypatch) -> None:
    force(sizes, monkeypatch)
    if sizes.whole or sizes.wide:
        precision = comparison.TF32  # the only one that fits
    found = errors(cell, inputs, units, rows, sizes, precision, special)
    assert not isinstance(found, str), found
    assert found.beyond(precision.tolerance) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("cell", "inputs"),
    [
        pytest.param(LSTMCell(PowerLaw()), 5, marks=pytest.mark.slow),
        (LSTMCell(PowerLaw()), WIDE),
        (GRUCell(Fast()), 5),
        (LSTMCell(Refine()), 5),
        (LSTMCell(Refine()), WIDE),
    ],
)
@pytest.mark.parametrize(
    "precision",
    [
        pytest.param(comparison.BFLOAT16, id="bfloat16"),
        pytest.param(comparison.FLOAT16, id="float16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("sizes", "units"),
    [
        (plan.LaunchShape(4, 2, 1), 32),
        (plan.make_whole(32, backward=False), 32),
        (plan.LaunchShape(4, 2, 2, held=1), 30),
    ],
    ids=["clusters", "whole", "wide"],
)
def test_half_precision_saves_pre_activations_in_16_bits(sizes, units, precision, cell, inputs, monkeypatch) -> None:
    force(sizes, monkeypatch)
    found = errors(cell, inputs, units, 5, sizes, precision, False)
    assert not isinstance(found, str), found
    assert found.beyond(precision.tolerance) is None


@pytest.mark.parametrize(
    ("cell", "sizes"),
    [
        (LSTMCell(Refine()), plan.LaunchShape(4, 2, 2)),
        pytest.param(LSTMCell(Mixture()), plan.LaunchShape(8, 1, 1), marks=pytest.mark.long),
    ],
    ids=["five", "six"],
)
def test_blocks_after_the_fourth_may_be_in_shared_memory(cell, sizes, monkeypatch) -> None:
    force(sizes, monkeypatch)
    monkeypatch.setattr(plan, "aside", lambda *task: True)
    found = errors(cell, 5, 32, 11, sizes, comparison.TF32, special=True)
    assert not isinstance(found, str), found
    assert found.beyond(comparison.TF32.tolerance) is None


WHOLE = plan.make_whole(32, backward=False)
every_scheme = pytest.mark.parametrize(
    ("sizes", "precision"),
    [
        (plan.LaunchShape(4, 2, 2), comparison.FULL),
        (WHOLE, comparison.TF32),
        (plan.LaunchShape(4, 2, 2, held=1), comparison.TF32),
    ],
    ids=["clusters", "whole", "wide"],
)


@every_scheme
@pytest.mark.parametrize(
    ("cell", "steps"),
    [
        pytest.param(LSTMCell(PowerLaw()), 1, marks=(pytest.mark.long, pytest.mark.slow)),
        pytest.param(LSTMCell(PowerLaw()), 2, marks=pytest.mark.long),
        pytest.param(LSTMCell(PowerLaw()), plan.DEPTH, marks=pytest.mark.long),
        pytest.param(LSTMCell(Refine()), 2, marks=(pytest.mark.long, pytest.mark.slow)),
    ],
    ids=str,
)
def test_few_steps_from_a_state_of_zeros(cell, steps, sizes, precision, monkeypatch) -> None:
    force(sizes, monkeypatch)
    task = samples.make_task(cell, samples.Sizes(steps, 9, 3, 32), torch.float32, torch.device("cpu"))
    with float32_products(precision.tf32):
        found = comparison.errors_of(clusters, replace(task, state=engines.Zeros((32,) * len(task.first_state))))
    assert not isinstance(found, str), found
    assert found.beyond(precision.tolerance) is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("cell", "units", "dtype"),
    [
        (LSTMCell(PowerLaw(), coupled=True), 30, torch.bfloat16),
        (GRUCell(Fast()), 29, torch.float32),
        pytest.param(LSTMCell(PowerLaw(), coupled=True), 30, torch.float32, marks=pytest.mark.slow),
        pytest.param(LSTMCell(Fast()), 29, torch.bfloat16, marks=pytest.mark.slow),
        pytest.param(JANETCell(Fast()), 29, torch.float32, marks=pytest.mark.slow),
        pytest.param(GRUCell(Fast()), 30, torch.bfloat16, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_wide_layers_have_no_padding(cell, units, dtype, monkeypatch) -> None:
    force(plan.LaunchShape(4, 2, 1, held=1), monkeypatch)
    task = samples.make_task(cell, samples.Sizes(3, 3, WIDE, units), dtype, torch.device("cpu"))
    precision = comparison.TF32 if dtype == torch.float32 else comparison.BFLOAT16
    with float32_products(True):
        assert clusters.run(task).output.is_contiguous()
        assert comparison.errors_of(clusters, task).beyond(precision.tolerance) is None


@pytest.mark.parametrize("cell", [LSTMCell(Fast()), LSTMCell(PowerLaw(), coupled=True), GRUCell(Fast())], ids=str)
@pytest.mark.parametrize("units", [829, 837, 1150])
def test_no_sequences(cell, units) -> None:
    task = samples.make_task(cell, samples.Sizes(3, 2, 5, units), torch.float32, torch.device("cpu"))
    weights = {name: weight.requires_grad_() for name, weight in task.weights.items()}
    state = tuple(part[:0] for part in task.first_state)
    with float32_products(True):
        output = clusters.run(replace(task, inputs=task.inputs[:, :0], state=state, weights=weights)).output
        slopes = torch.autograd.grad(output.sum(), list(weights.values()))
    assert output.shape == (3, 0, units)
    assert not any(slope.any() for slope in slopes)


@pytest.mark.long
@pytest.mark.parametrize(
    "cell",
    [
        LSTMCell(Refine()),
        *(pytest.param(cell, marks=pytest.mark.slow) for cell in (LSTMCell(Fast()), GRUCell(Sigmoid()))),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [pytest.param(9, marks=pytest.mark.slow), 8])  # 8 times 5 steps: matmuls are split
@every_scheme
def test_layers_side_by_side_do_not_touch_each_other(sizes, precision, rows, cell, monkeypatch) -> None:
    """Not even one that has diverged."""
    force(sizes if sizes.whole else replace(sizes, cluster=1, tiles=1), monkeypatch)
    with float32_products(precision.tf32):
        run_side_by_side(cell, samples.Sizes(5, rows, 3, 16))


@pytest.mark.long
@every_scheme
def test_a_sequence_in_chunks_is_the_whole_sequence(sizes, precision, monkeypatch) -> None:
    """With gradients from every step and the final state, back to the initial state."""
    force(sizes, monkeypatch)
    task = samples.make_task(
        LSTMCell(PowerLaw()), samples.Sizes(5, 9, 3, 32), torch.float32, torch.device("cpu"), unequal=True
    )
    leaves = [task.inputs, *task.weights.values(), *task.state]
    for leaf in leaves:
        leaf.requires_grad_()
    found = []
    for pieces in (1, 3):
        with float32_products(precision.tf32):
            (result,) = run_in_pieces(lambda tasks: [clusters.run(one) for one in tasks], [task], pieces)
            total = result.output.square().sum() + sum(part.square().sum() for part in result.state)
            found.append([result.output, *result.state, *torch.autograd.grad(total, leaves)])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cell", "units"), [(LSTMCell(Fast()), 29), (LSTMCell(PowerLaw(), coupled=True), 30)], ids=["odd", "three blocks"]
)
def test_rows_end_where_the_next_begins(cell, units, monkeypatch) -> None:
    """The last one of a layer too, before another that has diverged."""
    force(plan.LaunchShape(4, 2, 1, held=1), monkeypatch)
    with float32_products(True):
        run_side_by_side(cell, samples.Sizes(5, 9, 3, units))


def run_side_by_side(cell: PointwiseCell, sizes: object) -> None:
    """Run three layers, one of which gives NaN."""
    tasks = [samples.make_task(cell, sizes, torch.float32, torch.device("cpu"), seed=seed) for seed in range(3)]
    tasks[1].weights["weight_hh"][0, 0] = torch.nan
    leaves = [[task.inputs, *task.weights.values()] for task in tasks]
    for leaf in (leaf for own in leaves for leaf in own):
        leaf.requires_grad_()
    whole = clusters.run(engines.stacked(tasks)).output
    slopes = torch.autograd.grad(whole.square().sum(), [leaf for own in leaves for leaf in own])
    for number in (0, 2):
        alone = clusters.run(tasks[number]).output
        assert torch.equal(whole[number], alone)
        own = slopes[number * len(leaves[0]) :][: len(leaves[0])]
        for slope, expected in zip(own, torch.autograd.grad(alone.square().sum(), leaves[number]), strict=True):
            torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-5)  # reductions may be split differently
    assert whole[1].isnan().any()


@pytest.mark.long
def test_values_beyond_the_range_of_16_bits_are_clamped(monkeypatch) -> None:
    monkeypatch.setattr(plan, "make", lambda *task: plan.LaunchShape(4, 1, 1))
    task = samples.make_task(GRUCell(Fast()), samples.Sizes(3, 2, 3, 16), torch.float16, torch.device("cpu"))
    biases = {name: task.weights[name].float() for name in ("bias_ih", "bias_hh")}
    biases["bias_hh"][-16:] = 1e5  # of the candidate
    task = replace(task, weights={**task.weights, **biases})
    for weight in task.weights.values():
        weight.requires_grad_()
    clusters.run(task).output.sum().backward()
    assert all(weight.grad.isfinite().all() for weight in task.weights.values())


def test_an_infinite_input_saturates_gates_in_full_float32(monkeypatch) -> None:
    monkeypatch.setattr(plan, "make", lambda *task: plan.LaunchShape(4, 1, 1))
    task = samples.make_task(LSTMCell(Sigmoid()), samples.Sizes(3, 2, 3, 16), torch.float32, torch.device("cpu"))
    task.inputs[1, 1, 0] = torch.inf
    with torch.no_grad():
        found, expected = clusters.run(task).output, engines.loop.run(task).output
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@every_scheme
def test_an_infinite_bias_saturates_gates(sizes, precision, monkeypatch) -> None:
    force(sizes, monkeypatch)
    task = samples.make_task(LSTMCell(Sigmoid()), samples.Sizes(3, 2, 3, 32), torch.float32, torch.device("cpu"))
    task.weights["bias_ih"][:4] = torch.inf
    task.weights["bias_ih"][4:8] = -torch.inf
    with torch.no_grad(), float32_products(precision.tf32):
        found, expected = clusters.run(task).output, engines.loop.run(task).output
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=4e-3, atol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("inputs", [1, 7, 15, *(pytest.param(inputs, marks=pytest.mark.slow) for inputs in (6, 8))])
def test_a_whole_layer_takes_any_narrow_inputs(inputs, monkeypatch) -> None:
    """With space for two inputs set to 1, for one only, and for none."""
    sizes = plan.make_whole(32, backward=False)
    force(sizes, monkeypatch)
    found = errors(LSTMCell(Fast()), inputs, 32, 5, sizes, comparison.TF32, special=False)
    assert not isinstance(found, str), found
    assert found.beyond(comparison.TF32.tolerance) is None


@pytest.mark.long
@every_scheme
def test_a_matrix_may_have_any_strides(sizes, precision, monkeypatch) -> None:
    force(sizes, monkeypatch)
    task = samples.make_task(LSTMCell(Fast()), samples.Sizes(3, 9, 3, 32), torch.float32, torch.device("cpu"))
    turned = {name: weight.mT.contiguous().mT if weight.dim() == 2 else weight for name, weight in task.weights.items()}
    with float32_products(precision.tf32):
        found = comparison.errors_of(clusters, replace(task, weights=turned))
    assert not isinstance(found, str), found
    assert found.beyond(precision.tolerance) is None


@pytest.mark.long
@pytest.mark.parametrize("far", [1e-3, *(pytest.param(far, marks=pytest.mark.slow) for far in (1e-8, 1e-30))])
@every_scheme
def test_units_of_other_magnitudes_do_not_lose_precision_of_a_fifth_block(sizes, precision, far, monkeypatch) -> None:
    """Gradients of four warps share a scale: those of a warp with far smaller ones are negligible beside the others."""
    force(sizes, monkeypatch)
    task = samples.make_task(LSTMCell(Refine()), samples.Sizes(4, 3, 3, 32), torch.float32, torch.device("cpu"))
    leaves = [task.inputs.requires_grad_(), *(weight.requires_grad_() for weight in task.weights.values())]
    scale = torch.ones(32)
    scale[:4] = far

    def slopes(engine: object, inputs: list[torch.Tensor], task: engines.EngineTask) -> tuple[torch.Tensor, ...]:
        output = engine.run(task).output
        return torch.autograd.grad((output * scale.to(output)).square().sum(), inputs)

    with float32_products(precision.tf32):
        found = slopes(clusters, leaves, task)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    weights = dict(zip(task.weights, wide[1:], strict=True))
    state = tuple(part.double() for part in task.first_state)
    expected = slopes(engines.loop, wide, replace(task, inputs=wide[0], weights=weights, state=state))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= precision.tolerance * other.norm()


PROBE = """
struct alignas(16) Four { float of[4]; };
void probe(const Four* from, float* to) { to[0] = from->of[1]; }
"""


@pytest.mark.long
@pytest.mark.parametrize("offset", [0, 1])
def test_a_misaligned_access_is_detected(offset, tmp_path) -> None:
    text = simulation.CHIP.read_text("utf-8") + PROBE + simulation.START.format(name="probe")
    kernel = simulation.Kernel(simulation.library(tmp_path, "probe", text), "probe", "2P", 32, 1, 0, None)
    numbers, found = torch.arange(8.0)[offset:], torch.zeros(1)
    with pytest.raises(AssertionError, match="not aligned") if offset else nullcontext():
        kernel.start(1, numbers.data_ptr(), found.data_ptr())
    assert found == (0 if offset else 1)


@pytest.mark.long
@every_scheme
@pytest.mark.parametrize("cell", [LSTMCell(Fast()), LSTMCell(Refine())], ids=str)
def test_a_nan_gradient_reaches_every_weight(cell, sizes, precision, monkeypatch) -> None:
    """Also CUDA's canonical NaN, 0x7FFFFFFF."""
    force(sizes, monkeypatch)
    task = samples.make_task(cell, samples.Sizes(3, 4, 3, 32), torch.float32, torch.device("cpu"))
    weights = {name: weight.requires_grad_() for name, weight in task.weights.items()}
    with float32_products(precision.tf32):
        output = clusters.run(replace(task, weights=weights)).output
        slope = torch.ones_like(output)
        slope[0, 1] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
        found = torch.autograd.grad(output, list(weights.values()), slope)
    assert all(gradient.isnan().any() for gradient in found)


@pytest.mark.long
@every_scheme
def test_an_initial_state_beyond_16_bits_is_kept_through_padding(sizes, precision, monkeypatch) -> None:
    force(sizes, monkeypatch)
    task = samples.make_task(
        LSTMCell(Fast()), samples.Sizes(4, 4, 3, 32), torch.float32, torch.device("cpu"), unequal=True, reverse=True
    )
    weights = {name: weight * 1e-4 for name, weight in task.weights.items()}
    task = replace(task, weights=weights, state=tuple(torch.full_like(part, 1e5) for part in task.first_state))
    with torch.no_grad(), float32_products(precision.tf32):
        assert clusters.run(task).output.isfinite().all()


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("two programs, two groups", marks=pytest.mark.slow),
        "a whole layer",
        "wide",
        "five blocks, two programs, two tiles",
        pytest.param("streamed, five blocks, three tiles", marks=pytest.mark.slow),
    ],
)
def test_the_order_of_threads_changes_nothing(name, monkeypatch) -> None:
    cell, inputs, units, rows, sizes = CASES[name]
    force(sizes, monkeypatch)
    task = samples.make_task(cell, samples.Sizes(5, rows, inputs, units), torch.float32, torch.device("cpu"))

    def run(seed: int) -> list[torch.Tensor]:
        monkeypatch.setattr(simulation.Kernel, "seed", seed)
        values, gradients = comparison.run(clusters, task, torch.float32)
        return [*values.values(), *gradients.values()]

    first = run(0)
    for seed in range(1, 6):
        assert all(map(torch.equal, run(seed), first))


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "forgotten"),
    [
        ("two programs, two groups", "meet();"),
        pytest.param("two programs, two groups", "__syncthreads();", marks=pytest.mark.slow),
        ("two programs, two groups", "wait_for_fetches<DEPTH - 2>();"),
        ("a whole layer", "__syncthreads();"),
        pytest.param("a whole layer", "        wait_for_fetches<DEPTH - ", marks=pytest.mark.slow),
        pytest.param("wide", "meet();", marks=pytest.mark.slow),
        ("wide", "__syncthreads();"),
        pytest.param("wide, three tiles", "meet();", marks=pytest.mark.slow),
    ],
)
def test_a_kernel_that_does_not_wait_is_detected(case, forgotten, libraries, monkeypatch) -> None:
    force(CASES[case][-1], monkeypatch)

    def compiled(name: str, constants: Mapping[str, object], chip: str, gate: str = "") -> bytes:
        left_out = f"{forgotten}{3 if name == 'whole_forward' else 2}>();" if forgotten.endswith("- ") else forgotten
        return simulation.compiled(libraries, name, constants, gate, left_out)

    monkeypatch.setattr(recurrence, "machine_code", compiled)
    precision = comparison.TF32 if CASES[case][-1].whole or CASES[case][-1].wide else comparison.FULL

    def goes_wrong(seed: int) -> bool:
        monkeypatch.setattr(simulation.Kernel, "seed", seed)
        found = errors(*CASES[case], precision, False)
        if isinstance(found, str):
            return any(mistake in found for mistake in simulation.MISTAKES.values())
        return found.beyond(comparison.TF32.tolerance) is not None

    assert any(map(goes_wrong, range(8)))


@pytest.mark.long
@every_scheme
@pytest.mark.parametrize(
    "cell",
    [
        GRUCell(PowerLaw()),
        pytest.param(LSTMCell(PowerLaw()), marks=pytest.mark.slow),
        pytest.param(JANETCell(Sigmoid()), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_compiler_is_told_how_results_are_laid_out(cell, sizes, precision, monkeypatch) -> None:
    """Strides of the gradients of two stacked layers, which the kernel stores in one tensor."""
    force(sizes, monkeypatch)
    large = samples.Sizes(3, 2, 3, 16)
    tasks = [samples.make_task(cell, large, torch.float32, torch.device("cpu"), seed=seed) for seed in range(2)]
    kind = run.make_kind(cell, reverse=False, precision="tf32", kernels="cuda")
    given = layout.with_padding(kind.blocks, run.operands_of(engines.stacked(tasks)))
    forward = (*given, True, *astuple(kind))
    outputs, *_, pre, cells, carried, parts, before = operator.fused_forward(*forward)
    assert (before.numel() > 0) == sizes.whole
    kept = (outputs, pre, cells, carried, parts, before)
    backward = (*given, *kept, torch.ones_like(outputs), None, None, None, True, False, True, *astuple(kind))
    for operation, arguments in ((operator.fused_forward, forward), (operator.fused_backward, backward)):
        torch.library.opcheck(operation, arguments, test_utils=("test_schema", "test_faketensor"))
