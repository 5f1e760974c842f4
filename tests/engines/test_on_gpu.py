"""What is special about the fused GPU engines: tiles and exchange, precisions, launches, graphs, layers side by side.

Needs a CUDA device. What can be interpreted on a CPU is in `test_engines.py`, what is special about TF32 in
`test_tf32.py`.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import torch
from test_engines import has_clusters
from torch import Tensor

import remanence as rm
from remanence import engines, gates
from remanence.cells import Cell, GRUCell, JANETCell, LSTMCell
from remanence.engines.machine import float32_products

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter cannot exchange"),
]

CUDA = pytest.param("cuda", marks=pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters"))
BOTH = pytest.mark.parametrize("engine", [CUDA, "triton"])
MOST, MOST_IN_FULL = 1152, 512
"""Units that the engine "cuda" has room for, and in full float32."""

SIZES = {  # T, B, H: one program and many, whole and broken tiles, one launch and several, resident and streamed
    "one-unit": (4, 3, 1),
    "one-tile": (5, 16, 32),
    "broken-tiles": (6, 17, 33),
    "copy": (8, 128, 128),
    "several-chunks": (5, 70, 200),
    "pixels": (4, 100, 512),
    "characters": (3, 40, 716),
    "words": (3, 20, 1150),
    "streamed": (3, 5, 2048),
    "several-launches": (3, 300, 512),
    "half-a-cluster": (5, 12, 208),
    "full-registers": (5, 20, 256),
    "a-shelf": (7, 12, 400),
    "two-tiles-a-cluster": (4, 300, 256),
}


def taken_in_full(sizes: dict[str, tuple[int, int, int]]) -> list[Any]:
    """Engines and sizes that they run in full float32."""
    return [pytest.param("triton", size, id=f"triton-{name}") for name, size in sizes.items()] + [
        pytest.param(*CUDA.values, size, id=f"cuda-{name}", marks=CUDA.marks)
        for name, size in sizes.items()
        if size[-1] <= MOST_IN_FULL
    ]


def numbers(layer: rm.nn.Recurrent, x: Tensor, engine: str, dt: Tensor | None = None) -> dict[str, Tensor]:
    """Outputs, final states and gradients, in float64."""
    layer.engine = engine
    layer.zero_grad()
    x = x.detach().requires_grad_()
    output, state = layer(x, None, dt)
    found = {"output": output} | {
        f"state {i}": part for i, part in enumerate(state if isinstance(state, tuple) else [state])
    }
    weight = torch.linspace(-1, 1, output.numel(), device=x.device).view_as(output)
    loss = (output * weight.to(output.dtype)).sum() + sum(part.float().sin().sum() for part in found.values())
    loss.backward()
    found["gradient of x"] = x.grad
    found |= {f"gradient of {name}": parameter.grad for name, parameter in layer.named_parameters()}
    return {name: value.detach().double() for name, value in found.items()}


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    return {name: float((found[name] - value).norm() / (value.norm() + 1e-30)) for name, value in truth.items()}


def pair(maker: Any, features: int, units: int, dtype: torch.dtype, **keywords: Any) -> tuple[Any, Any]:
    """A layer on the GPU, and the same in float64."""
    torch.manual_seed(0)
    layer = maker(features, units, device="cuda", dtype=dtype, **keywords)
    exact = maker(features, units, device="cuda", dtype=torch.float64, **keywords)
    exact.load_state_dict(layer.state_dict())
    return layer, exact


def compare(
    engine: str, maker: Any, size: tuple[int, int, int], dtype: torch.dtype, **keywords: Any
) -> dict[str, float]:
    steps, batch, units = size
    layer, exact = pair(maker, 3, units, dtype, **keywords)
    x = torch.randn(steps, batch, 3, device="cuda", dtype=dtype)
    return errors(numbers(layer, x, engine), numbers(exact, x.double(), "loop"))


@pytest.mark.parametrize(("engine", "size"), taken_in_full(SIZES))
def test_power_law_of_any_size_is_the_loops_in_full_float32(engine, size):
    assert max(compare(engine, rm.PowerLawLSTM, size, torch.float32).values()) < 1e-5


@pytest.mark.parametrize("maker", [rm.LSTM, rm.GRU, rm.JANET])
@pytest.mark.parametrize(
    ("engine", "size"), taken_in_full({name: SIZES[name] for name in ("several-chunks", "characters")})
)
def test_fast_gate_in_every_cell_is_the_loops_across_tiles(maker, engine, size):
    assert max(compare(engine, maker, size, torch.float32, gate="fast").values()) < 1e-5


@BOTH
@pytest.mark.parametrize("gate", ["fast", "power_law"])
@pytest.mark.parametrize("size", ["several-chunks", "pixels"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 4e-3)], ids=["bf16", "fp16"])
def test_half_precision_rounds_products_only(engine, gate, size, dtype, tolerance):
    # A few roundings of 2^-9 and 2^-12; gates, state and age are float32.
    assert max(compare(engine, rm.LSTM, SIZES[size], dtype, gate=gate).values()) < tolerance


FIVE_IN_FULL = 384
"""Units that the engine "cuda" has room for in full float32 where they have five blocks."""


@pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters")
@pytest.mark.parametrize("gate", ["refine", "ur"])
@pytest.mark.parametrize("size", [name for name, size in SIZES.items() if size[-1] <= MOST])
@pytest.mark.parametrize(
    ("dtype", "tf32", "tolerance"),
    [
        (torch.float32, False, 1e-5),
        (torch.float32, True, 2e-3),
        (torch.bfloat16, True, 2e-2),
        (torch.float16, True, 4e-3),
    ],
    ids=["full", "tf32", "bf16", "fp16"],
)
def test_five_blocks_of_any_size_are_the_loops(gate, size, dtype, tf32, tolerance):
    if dtype == torch.float32 and not tf32 and SIZES[size][-1] > FIVE_IN_FULL:
        pytest.skip("no room")
    with float32_products(tf32):
        assert max(compare("cuda", rm.LSTM, SIZES[size], dtype, gate=gate).values()) < tolerance


MANY = 1100
"""Rows with which the engine "cuda" gives every program all of a narrow layer."""


@pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("units", [16, 40, 112, 128])
@pytest.mark.parametrize(
    ("maker", "gate"),
    [(rm.LSTM, "fast"), (rm.LSTM, "power_law"), (rm.LSTM, "refine"), (rm.GRU, "sigmoid"), (rm.JANET, "refine")],
)
def test_many_rows_of_a_narrow_layer_are_the_loops(maker, gate, units, dtype, tolerance):
    with float32_products(True):
        assert max(compare("cuda", maker, (6, MANY, units), dtype, gate=gate).values()) < tolerance


@pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters")
@pytest.mark.parametrize("gate", ["fast", "power_law"])
def test_many_rows_side_by_side_are_those_one_by_one_and_repeat(gate):
    layers = [rm.LSTM(10, 128, gate=gate, engine="cuda", device="cuda") for _ in range(8)]
    x = torch.randn(7, 128, 10, device="cuda")
    parameters = [parameter for layer in layers for parameter in layer.parameters()]

    def slopes(outputs: list[Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(sum(output.square().mean() for output in outputs), parameters))

    with float32_products(True):
        first, again = (slopes([output for output, _ in rm.together(layers, x)]) for _ in range(2))
        alone = slopes([layer(x)[0] for layer in layers])
    assert all(map(torch.equal, first, again))
    for found, expected in zip(first, alone, strict=True):
        assert (found - expected).norm() < 2e-3 * expected.norm()


PRECISE = [
    *(
        ("tf32", 128, 64),
        ("tf32", 256, 64),
        ("tf32", 512, 64),
        ("tf32", 720, 64),
        ("tf32", 1152, 24),
        ("tf32", 128, MANY),
    ),
    *(("ieee", 128, 64), ("ieee", 256, 64), ("ieee", 512, 64)),
]
"""Precision, units and rows."""


@pytest.mark.parametrize(
    ("engine", "precision", "units", "rows"),
    [pytest.param("triton", *case) for case in PRECISE]
    + [pytest.param(*CUDA.values, *case, marks=CUDA.marks) for case in PRECISE],
)
def test_float32_error_is_no_worse_than_that_of_torch(engine, precision, units, rows):
    torch.backends.cudnn.rnn.fp32_precision = precision
    torch.backends.cuda.matmul.fp32_precision = precision
    layer, exact = pair(rm.LSTM, 8, units, torch.float32)
    x = torch.randn(60, rows, 8, device="cuda")
    theirs = torch.nn.LSTM(8, units, device="cuda")
    theirs.load_state_dict(layer.state_dict())
    truth = numbers(exact, x.double(), "loop")
    ours = errors(numbers(layer, x, engine), truth)
    reference = rm.LSTM.from_torch(theirs)
    cudnn = errors(numbers(reference, x, "torch"), truth)
    # Both are sums of many roundings: allow the noise between two of them.
    assert sum(ours.values()) < 1.25 * sum(cudnn.values())


@BOTH
def test_long_sequences_with_many_rows_need_more_than_32_bits_of_address(engine):
    # In float16, in which a state that is returned is the very one that goes on.
    layer = rm.LSTM(1, 128, gate="fast", engine=engine, device="cuda", dtype=torch.float16)
    x = torch.randn(40_000, 128, 1, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        whole, last = layer(x)  # 40,000 x 128 x 512 pre-activations are 2.6e9
        _, state = layer(x[:20_000])
        second, again = layer(x[20_000:], state)
    assert torch.equal(whole[-1], second[-1])
    assert torch.equal(last[1], again[1])


@BOTH
def test_gradients_of_long_sequences_need_more_than_32_bits_of_address(engine):
    layer = rm.LSTM(1, 128, gate="fast", engine=engine, device="cuda", dtype=torch.float16)
    layer.requires_grad_(False)
    x = torch.randn(40_000, 128, 1, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        _, state = layer(x[:39_980])
    slopes = []
    for values, before in ((x, None), (x[39_980:], state)):
        piece = values.clone().requires_grad_()
        layer(piece, before)[0][-1].sum().backward()
        slopes.append(piece.grad[-20:])
    assert slopes[0][-1].abs().sum() > 0
    torch.testing.assert_close(*slopes)


@BOTH
def test_a_hundred_thousand_steps(engine):
    layer = rm.PowerLawLSTM(1, 16, engine=engine, device="cuda")
    x = torch.randn(100_000, 2, 1, device="cuda", requires_grad=True)
    output, (_, _, age) = layer(x)
    output[-1].sum().backward()
    assert torch.isfinite(output).all()
    assert torch.isfinite(age).all()
    assert torch.isfinite(x.grad).all()


@BOTH
@pytest.mark.parametrize("maker", [rm.PowerLawLSTM, rm.GRU])
def test_layers_side_by_side_are_the_layers_one_by_one(engine, maker):
    layers = [maker(3, 40, num_layers=2, bidirectional=True, engine=engine, device="cuda") for _ in range(3)]
    xs = [torch.randn(7, 20, 3, device="cuda") for _ in layers]
    alone = [numbers(layer, x, engine) for layer, x in zip(layers, xs, strict=True)]
    for layer in layers:
        layer.zero_grad()
    xs = [x.requires_grad_() for x in xs]
    for (output, _), x, expected in zip(rm.together(layers, xs), xs, alone, strict=True):
        torch.testing.assert_close(output.double(), expected["output"], rtol=1e-5, atol=1e-6)
        weight = torch.linspace(-1, 1, output.numel(), device=x.device).view_as(output)
        assert torch.autograd.grad((output * weight).sum(), x, retain_graph=True)[0].abs().sum() > 0


@BOTH
@pytest.mark.parametrize(("count", "units"), [(8, 40), (20, 200)], ids=["a few", "more than fit at once"])
def test_side_by_side_gradients_are_those_one_by_one(engine, count, units):
    layers = [rm.PowerLawLSTM(3, units, engine=engine, device="cuda") for _ in range(count)]
    x = torch.randn(7, 20, 3, device="cuda")
    sum(output.square().sum() for output, _ in rm.together(layers, x)).backward()
    found = [layer.weight_hh_l0.grad.clone() for layer in layers]
    for layer, gradient in zip(layers, found, strict=True):
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
        assert_near(gradient, layer.weight_hh_l0.grad)


def assert_near(found: Tensor, expected: Tensor) -> None:
    """Two sums of the same float32 numbers."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.detach().abs().max()))


@pytest.mark.parametrize("engine", ["auto", CUDA, "triton"])
def test_runs_inside_a_cuda_graph(engine):
    layer = rm.LSTM(3, 64, gate="fast", engine=engine, device="cuda")
    x = torch.randn(9, 20, 3, device="cuda")
    with torch.no_grad():
        expected = layer(x)[0].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output, _ = layer(x)
        output.zero_()
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(output, expected)


@pytest.mark.parametrize("engine", ["auto", CUDA, "triton"])
def test_a_whole_training_step_runs_inside_a_cuda_graph(engine):
    recorded, plain = (rm.PowerLawLSTM(3, 64, engine=engine, device="cuda") for _ in range(2))
    plain.load_state_dict(recorded.state_dict())
    x = torch.randn(9, 20, 3, device="cuda")

    def step(layer: rm.nn.Recurrent) -> None:
        parameters = list(layer.parameters())
        slopes = torch.autograd.grad(layer(x)[0].square().sum(), parameters)
        with torch.no_grad():
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter.sub_(slope, alpha=1e-3)

    step(recorded)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(recorded)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    before = {name: value.clone() for name, value in plain.named_parameters()}
    for _ in range(4):
        step(plain)
    for name, parameter in plain.named_parameters():
        assert not torch.equal(parameter, before[name])
        assert_near(recorded.get_parameter(name), parameter)


@BOTH
@pytest.mark.parametrize("gate", ["fast", "power_law"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's tracer looks at every tensor's
def test_compiled_layers_give_the_same(engine, gate):
    layer = rm.LSTM(3, 64, gate=gate, engine=engine, device="cuda")
    x = torch.randn(9, 20, 3, device="cuda")
    expected = numbers(layer, x, engine)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    x = x.requires_grad_()
    output, _ = compiled(x)
    torch.testing.assert_close(output.double(), expected["output"])
    output.sum().backward()
    assert torch.isfinite(x.grad).all()


@BOTH
@pytest.mark.parametrize("maker", [rm.PowerLawLSTM, rm.GRU, partial(rm.LSTM, gate="refine")])
def test_runs_of_many_tiles_repeat_to_the_last_bit(engine, maker):
    layer = maker(3, 200, engine=engine, device="cuda")
    x = torch.randn(9, 150, 3, device="cuda")
    first, again = (numbers(layer, x, engine) for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)


@BOTH
def test_autocast_runs_fused_with_a_float32_state(engine):
    layer = rm.PowerLawLSTM(3, 64, engine=engine, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output, (hidden, cell, age) = layer(torch.randn(5, 20, 3, device="cuda"))
    assert output.dtype == hidden.dtype == torch.bfloat16
    assert cell.dtype == age.dtype == torch.float32
    output.float().sum().backward()
    assert layer.weight_hh_l0.grad.dtype == torch.float32


@BOTH
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("maker", [rm.PowerLawLSTM, rm.GRU, partial(rm.LSTM, gate="refine")])
@pytest.mark.parametrize("tf32", [True, False], ids=["tf32", "full"])
def test_what_is_no_number_stays_in_its_sequence(engine, number, maker, tf32):
    layer = maker(3, 40, engine=engine, device="cuda")
    x = torch.randn(6, 20, 3, device="cuda")
    others = torch.arange(20, device="cuda") != 11
    found = []
    for value in (x[2, 11, 0].item(), number):
        given = x.clone()
        given[2, 11, 0] = value
        given.requires_grad_()
        with float32_products(tf32):
            output, state = layer(given)
            output.sum().backward()
        parts = state if isinstance(state, tuple) else (state,)
        found.append([output[:, others], *(part[:, others] for part in parts), given.grad[:, others]])
    assert all(part.isfinite().all() for part in found[0])
    assert all(torch.equal(clean, beside) for clean, beside in zip(*found, strict=True))
    if number != number:
        assert output[2:, 11].isnan().all()
        assert output[:2, 11].isfinite().all()


# Which engine runs what.


@pytest.mark.skipif(not has_clusters(), reason="no CUDA device with clusters")
@pytest.mark.parametrize(
    ("cell", "units", "tf32", "expected"),
    [
        (LSTMCell(gates.Fast()), 8, True, "cuda"),
        (LSTMCell(gates.Sigmoid()), 128, True, "cuda"),
        (GRUCell(gates.PowerLaw()), MOST_IN_FULL, False, "cuda"),
        (LSTMCell(gates.Sigmoid()), MOST, True, "cuda"),
        (JANETCell(gates.UniformRefine()), MOST, True, "cuda"),
        (LSTMCell(gates.Refine(), coupled=True), 40, False, "cuda"),
        (LSTMCell(gates.Refine(), coupled=False), 40, False, "cuda"),
        (LSTMCell(gates.UniformRefine()), MOST, True, "cuda"),
        (LSTMCell(gates.Refine()), FIVE_IN_FULL, False, "cuda"),
        (LSTMCell(gates.Refine()), FIVE_IN_FULL + 1, False, "triton"),
        (LSTMCell(gates.Fast()), MOST_IN_FULL + 1, False, "triton"),
        (LSTMCell(gates.Sigmoid()), MOST_IN_FULL + 1, False, "torch"),
        (LSTMCell(gates.Sigmoid()), MOST + 1, True, "triton"),
        (LSTMCell(gates.Fast()), MOST + 1, True, "triton"),
    ],
)
def test_auto_takes_clusters_where_there_is_room(cell: Cell, units: int, tf32: bool, expected: str) -> None:
    zeros = engines.Zeros(tuple(cell.widths(units, units).values()))
    weights = {
        name: torch.zeros(shape, device="cuda") for name, shape in cell.shapes(3, units, units, bias=True).items()
    }
    task = engines.EngineTask(cell, weights, torch.zeros(2, 1, 3, device="cuda"), zeros)
    with float32_products(tf32):
        assert engines.choose("auto", task).name == expected
        reason = engines.KNOWN["cuda"].refuses(task)
    assert (reason is None) == (expected == "cuda")


@pytest.mark.parametrize("gate", ["fast", "power_law"])
def test_auto_takes_a_fused_engine(gate):
    x = torch.randn(3, 2, 3, device="cuda")
    layer = rm.LSTM(3, 8, gate=gate, device="cuda")
    auto, _ = layer(x)
    layer.engine = "cuda" if has_clusters() else "triton"
    assert torch.equal(auto, layer(x)[0])
