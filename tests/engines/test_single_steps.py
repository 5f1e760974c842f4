"""The fused engine with one launch per step, for drivers that refuse cooperative launches."""

from __future__ import annotations

import pytest
import torch
from test_engines import CELLS, ENGINES, Case, Contender, assert_like_the_loop, run

import remanence as rm

pytest.importorskip("triton")
from remanence.engines.triton import single_steps, starting, tiling

FUSED = pytest.mark.parametrize("contender", [param for param in ENGINES if param.values[0].engine == "triton"])


@pytest.fixture
def several_tiles(monkeypatch):
    """Sixteen units per program, also in the interpreter, which would use a single program: here none waits."""

    def make(units, rows, replicas, blocks, itemsize, backward, on):
        return tiling.Tiling(16, 16, 16, 4, blocks, at_once=1)

    monkeypatch.setattr(tiling, "make", make)


@pytest.fixture
def stepping(monkeypatch, several_tiles):
    """Run as after a refused cooperative launch."""
    monkeypatch.setattr(single_steps, "is_needed", lambda device: True)


@FUSED
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("gate", ["fast", "refine", "power_law"])
def test_cells_and_gates_match_the_loop(contender: Contender, cell: str, gate: str, stepping) -> None:
    assert_like_the_loop(Case(cell, gate, steps=3, batch=18, units=20), contender)


@FUSED
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_lengths_both_directions_and_dt_match_the_loop(contender: Contender, cell: str, stepping) -> None:
    case = Case(cell, "power_law", steps=3, lengths=(1, 3, 2), bidirectional=True, dt=True, units=20)
    assert_like_the_loop(case, contender)


@FUSED
def test_no_initial_state_and_a_fixed_exponent_match_the_loop(contender: Contender, stepping) -> None:
    assert_like_the_loop(Case("lstm-coupled", "power_law-fixed", steps=3, state=False, bias=False), contender)


@FUSED
def test_layers_side_by_side_match_single_layers(contender: Contender, stepping) -> None:
    dtype = contender.dtypes[0]
    case = Case("lstm", "power_law", steps=3, batch=3, units=20, state=False)
    layers = [case.layer("triton", contender.device, dtype) for _ in range(2)]
    layers[1].weight_hh_l0.data.mul_(0.5)
    x = torch.randn(3, 3, 2, dtype=dtype, device=contender.device)
    expected = []
    for layer in layers:
        output, _ = layer(x)
        output.square().sum().backward()
        expected.append((output.detach(), [parameter.grad.clone() for parameter in layer.parameters()]))
        layer.zero_grad()
    results = rm.together(layers, x)
    sum(output.square().sum() for output, _ in results).backward()
    for layer, (output, _), (values, gradients) in zip(layers, results, expected, strict=True):
        torch.testing.assert_close(output, values)
        for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


@FUSED
def test_without_gradients_the_values_are_the_same(contender: Contender, stepping) -> None:
    case, dtype = Case("lstm", "fast", state=False, units=20), contender.dtypes[0]
    layer = case.layer("triton", contender.device, dtype)
    x = case.numbers(layer, dtype)["inputs"].to(contender.device)
    expected, _ = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x)[0], expected)


@FUSED
def test_a_refusal_warns_once_and_the_results_are_right(contender: Contender, monkeypatch, several_tiles) -> None:
    """The message is CUDA's; no test can make the driver raise it."""
    asked = []

    def refusing(kernel, constants, kind, grid, tensors, numbers):
        if constants(*kind)["launch_cooperative_grid"]:
            asked.append(kernel)
            raise RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch")
        return start(kernel, constants, kind, grid, tensors, numbers)

    start = starting.start
    monkeypatch.setattr(starting, "start", refusing)
    monkeypatch.setattr(single_steps, "_refused", set())
    case = Case("lstm", "fast", steps=3, units=20)
    with pytest.warns(UserWarning, match="refused a cooperative launch"):
        run(case, "triton", contender.device, contender.dtypes[0])
    assert len(asked) == 1
    assert_like_the_loop(case, contender)
    assert len(asked) == 1


@FUSED
@pytest.mark.parametrize("by_step", [False, True], ids=["whole", "by steps"])
def test_with_less_shared_memory_results_are_right_and_the_tiling_that_fits_is_remembered(
    contender: Contender, monkeypatch, by_step: bool
) -> None:
    from triton.runtime.errors import OutOfResources

    tried = []

    def cramped(kernel, constants, kind, grid, tensors, numbers):
        tried.append(constants(*kind)["RESIDENT"])
        if tried[-1] > 2:
            raise OutOfResources(2, 1, "shared memory")
        return start(kernel, constants, kind, grid, tensors, numbers)

    start = starting.start
    monkeypatch.setattr(starting, "start", cramped)
    monkeypatch.setattr(tiling, "_smaller", {})
    monkeypatch.setattr(single_steps, "is_needed", lambda device: by_step)
    case = Case("lstm", "fast", steps=3, units=20)
    assert_like_the_loop(case, contender)
    assert {4, 3, 2} == set(tried)
    tried.clear()
    assert_like_the_loop(case, contender)
    assert {2} == set(tried)
