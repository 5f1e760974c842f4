"""The separate kernels of the NRU against the loop engine: values, final states and every gradient."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

import remanence as rm
from remanence import engines
from remanence.cells import NRUCell
from remanence.engines import comparison, samples
from remanence.engines.machine import float32_products

operator: Any = import_module("remanence.engines.triton.nru.operator")

TRITON = engines.KNOWN["triton"]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
interprets = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted")
on_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1", reason="no CUDA device"
)


def assert_like_the_loop(task: Any, precision: Any) -> None:
    assert TRITON.refuses(task) is None
    found = comparison.errors_of(TRITON, samples.trained(task))
    assert not isinstance(found, str), found
    # A norm of small values amplifies rounding errors, in the loop as well.
    assert found.beyond(max(precision.tolerance, 2 * comparison.own_error(task))) is None


SPECIAL: dict[str, dict[str, bool]] = {
    "forward": {},
    "backward": {"reverse": True},
    "unequal": {"unequal": True},
    "unequal backward": {"unequal": True, "reverse": True},
}


@pytest.fixture(params=["from L2", "kept", "wide"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels that read the matrices at every step, those that keep them, and those between matmuls by torch."""
    monkeypatch.setattr(operator, "KEPT", 210_000 if request.param == "kept" else 0)
    monkeypatch.setattr(operator, "WIDE", 0 if request.param == "wide" else 10**6)
    if os.environ.get("TRITON_INTERPRET") == "1":
        monkeypatch.setattr(operator, "WIDE_ROWS", 16)  # the interpreter runs one program after another
    return str(request.param)


@interprets
@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize(
    ("memory", "heads", "sizes"),
    [
        (1, 1, (2, 1, 1, 1)),
        (9, 4, (3, 17, 3, 33)),
        (12, 3, (3, 4, 2, 5)),
        (8, 2, (3, 3, 20, 150)),
        (75, 3, (2, 3, 2, 9)),
    ],
    ids=str,
)
def test_kernels_match_the_loop_interpreted(
    memory: int, heads: int, sizes: tuple[int, ...], special: str, form: str
) -> None:
    """One head and several, heads that share a row of the outer product, partial tiles, more columns than a tile."""
    cell = NRUCell(memory, heads)
    for precision in (comparison.FLOAT32,) if form == "wide" else (comparison.FLOAT32, comparison.FLOAT16):
        task = samples.make_task(cell, samples.Sizes(*sizes), precision.dtype, CPU, **SPECIAL[special])
        assert_like_the_loop(task, precision)


@interprets
@pytest.mark.usefixtures("form")
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_sizes_match_the_loop_interpreted(data: Any) -> None:
    heads, factor = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    sizes = samples.Sizes(*(data.draw(st.integers(1, most)) for most in (4, 20, 4, 40)))
    special = data.draw(st.sampled_from(sorted(SPECIAL)))
    cell = NRUCell(heads * factor**2, heads)
    task = samples.make_task(cell, sizes, torch.float32, CPU, seed=data.draw(st.integers(0, 99)), **SPECIAL[special])
    if data.draw(st.booleans()):
        weights = {name: weight for name, weight in task.weights.items() if "bias" not in name}
        task = replace(task, weights=weights)
    if data.draw(st.booleans()):
        task = replace(task, state=engines.Zeros(tuple(cell.widths(sizes.units, sizes.units).values())))
    assert_like_the_loop(task, comparison.FLOAT32)


@interprets
@pytest.mark.usefixtures("form")
def test_replicas_match_single_runs_interpreted() -> None:
    cell = NRUCell(16, 4)
    tasks = [
        samples.trained(samples.make_task(cell, samples.Sizes(4, 18, 3, 12), torch.float32, CPU, seed=seed))
        for seed in range(3)
    ]
    together = engines.run("triton", tasks)
    for task, found in zip(tasks, together, strict=True):
        (alone,) = engines.run("triton", [task])
        torch.testing.assert_close(found.output, alone.output)
        for part, true in zip(found.state, alone.state, strict=True):
            torch.testing.assert_close(part, true)


@interprets
@pytest.mark.usefixtures("form")
def test_zero_writes_do_not_divide_by_zero_interpreted() -> None:
    """Directions of norm zero: nothing is added, and gradients match the loop."""
    task = samples.make_task(NRUCell(16, 4), samples.Sizes(4, 3, 2, 6), torch.float32, CPU)
    nothing = {name: torch.zeros_like(task.weights[name]) for name in ("weight_write", "bias_write")}
    task = replace(task, weights={**task.weights, **nothing})
    found, truth = TRITON.run(task), engines.KNOWN["loop"].run(task)
    assert torch.equal(found.state[1], task.first_state[1])
    torch.testing.assert_close(found.output, truth.output)
    assert_like_the_loop(task, comparison.FLOAT32)


@interprets
@pytest.mark.usefixtures("form")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # from NumPy
def test_nan_inputs_give_nan_outputs_interpreted() -> None:
    task = samples.make_task(NRUCell(16, 4), samples.Sizes(3, 3, 2, 6), torch.float32, CPU)
    inputs = task.inputs.clone()
    inputs[1, 2] = torch.nan
    task = replace(task, inputs=inputs)
    found, truth = TRITON.run(task), engines.KNOWN["loop"].run(task)
    torch.testing.assert_close(found.output, truth.output, equal_nan=True)
    assert found.output[1:, 2].isnan().all()


@interprets
@pytest.mark.usefixtures("form")
def test_tensors_may_have_any_strides_interpreted() -> None:
    """Bias, initial memory, lengths, and the gradient of the final memory."""
    results = []
    for engine in ("triton", "loop"):
        torch.manual_seed(0)
        layer = rm.NRU(2, 6, memory_size=4, engine=engine)
        layer.bias_ih_l0.data = torch.randn(6, 3)[:, 0]
        layer.bias_write_l0.data = torch.randn(len(layer.bias_write_l0), 2)[:, 1]
        memory = torch.randn(4, 3).requires_grad_()
        output, (_, last) = layer(torch.randn(5, 3, 2), (torch.randn(1, 3, 6), memory.t().unsqueeze(0)))
        (last.permute(0, 2, 1) * torch.randn(1, 4, 3)).sum().backward(retain_graph=True)
        output.square().sum().backward()
        results.append([output, last, memory.grad, *(weight.grad for weight in layer.parameters())])
    for found, truth in zip(*results, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-4)


LAYERS: dict[str, Callable[[str], rm.NRU]] = {
    "plain": lambda engine: rm.NRU(3, 6, memory_size=4, engine=engine),
    "stacked": lambda engine: rm.NRU(3, 6, 2, memory_size=9, bidirectional=True, batch_first=True, engine=engine),
    "without bias": lambda engine: rm.NRU(3, 6, bias=False, memory_size=4, engine=engine),
}


@interprets
@pytest.mark.parametrize("name", LAYERS)
def test_layers_match_the_loop_interpreted(name: str) -> None:
    layers = {}
    for engine in ("triton", "loop"):
        torch.manual_seed(0)
        layers[engine] = LAYERS[name](engine)
    inputs = torch.randn(4, 5, 3)
    packed = pack_padded_sequence(
        inputs,
        torch.tensor([4, 2, 3, 1] if name == "stacked" else [4, 2, 3, 1, 4]),
        batch_first=name == "stacked",
        enforce_sorted=False,
    )
    for given_inputs in (inputs, packed):
        results = []
        for layer in layers.values():
            layer.zero_grad()
            output, state = layer(given_inputs)
            flat = output if isinstance(output, Tensor) else output.data
            flat.square().sum().backward()
            results.append([flat, *state, *(weight.grad for weight in layer.parameters())])
        for found, truth in zip(*results, strict=True):
            torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-5)


@interprets
def test_compiled_layers_match_the_loop_interpreted() -> None:
    layer, inputs = rm.NRU(3, 6, memory_size=4, engine="triton"), torch.randn(4, 2, 3)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager")(inputs)[0], layer(inputs)[0])


def test_unsupported_tasks_are_refused() -> None:
    task = samples.make_task(NRUCell(4, 1), samples.Sizes(2, 2, 2, 2), torch.float64, CPU)
    refusal = TRITON.refuses(task)
    if os.environ.get("TRITON_INTERPRET") == "1":
        assert refusal == "it computes in float32, bfloat16 and float16, and the input is torch.float64"
    else:
        assert refusal == "it runs on CUDA devices, and the input is on cpu"


# On a GPU.

SIZES = {  # memory, heads, then T, B, I, H
    "one unit": (1, 1, 3, 1, 1, 1),
    "copy": (64, 4, 12, 128, 10, 128),
    "pixels": (144, 4, 9, 100, 1, 512),
    "permuted": (256, 4, 9, 37, 1, 212),
    "characters": (1089, 16, 5, 20, 200, 650),
    "broken": (75, 3, 7, 33, 5, 70),
}


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    "precision", [comparison.FULL, comparison.TF32, comparison.BFLOAT16, comparison.FLOAT16], ids=str
)
@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("size", SIZES)
def test_on_a_gpu(size: str, special: str, precision: Any, form: str) -> None:
    memory, heads, *sizes = SIZES[size]
    if form == "kept" and size not in ("one unit", "copy", "broken"):
        pytest.skip("too large to keep")
    if form == "wide" and precision.dtype != torch.float32:
        pytest.skip("for float32")
    with float32_products(precision.tf32):
        task = samples.make_task(
            NRUCell(memory, heads), samples.Sizes(*sizes), precision.dtype, CUDA, **SPECIAL[special]
        )
        assert_like_the_loop(task, precision)


@on_gpu
@pytest.mark.gpu
def test_it_is_chosen_on_a_gpu_and_is_deterministic() -> None:
    layer, inputs = rm.NRU(10, 128, device="cuda"), torch.randn(20, 33, 10, device="cuda")
    assert rm.engines.explain(layer).engine == "triton"
    runs = []
    for _ in range(2):
        layer.zero_grad()
        output, state = layer(inputs)
        output.square().sum().backward()
        runs.append([output, *state, *(weight.grad for weight in layer.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@on_gpu
@pytest.mark.gpu
def test_replicas_match_single_runs_on_a_gpu() -> None:
    tasks = [
        samples.make_task(NRUCell(64, 4), samples.Sizes(9, 40, 5, 100), torch.float32, CUDA, seed=seed)
        for seed in range(3)
    ]
    for task, found in zip(tasks, engines.run("triton", tasks), strict=True):
        (alone,) = engines.run("triton", [task])
        torch.testing.assert_close(found.output, alone.output)
