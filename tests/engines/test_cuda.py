"""The cuda engine, as far as it can be tested without a GPU: launch shapes, refusals, the compiler."""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import remanence as rm
from remanence.cells import Cell, GatedCell, GRUCell, JANETCell, LSTMCell, NRUCell, PointwiseCell
from remanence.engines import EngineTask, Zeros
from remanence.engines.cuda import compiler, device, driver, engine, linear, memos, plan, recurrence
from remanence.engines.doubled import HalfStepCell
from remanence.engines.kernels import cache, contract, launch
from remanence.engines.kernels.run import make_kind
from remanence.engines.machine import float32_products
from remanence.engines.samples import every_cell
from remanence.gates import Fast, Forgetting, Gate, PowerLaw, Refine, Sigmoid, UniformRefine

BLOCKS = 8
MOST = {1: 1152, 2: 512}
"""Units, by the number of float16 values per operand."""
SHARED = 227 * 1024
"""Bytes of shared memory available to a thread block on GPUs of compute capability 9.0 and 10.0."""
CELLS = list(every_cell())
FITTING = [
    cell for cell in CELLS if len(cell.blocks) <= 4 and len(contract.derivation(cell).single) <= plan.CARRIED_ALWAYS
]
SRU = HalfStepCell((0.0, 0.5, 0.9, 0.99, 0.999))
"""Six blocks, and four values besides the cell."""
FIVE = [cell for cell in CELLS if len(cell.blocks) == 5]


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """Clears caches between tests."""

    def forget() -> None:
        for function in (
            *(compiler.library, compiler.version, driver.architecture, driver._context),
            *(device._nothing, device._lacks),
        ):
            getattr(function, "cache_clear", lambda: None)()
        memos.forget()

    forget()
    yield
    forget()


# Launch shapes.


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("rows", [1, 8, 20, 100, 130, 1000])
@pytest.mark.parametrize("replicas", [1, 8])
@pytest.mark.parametrize("backward", [False, True])
def test_clusters_have_all_units_and_all_rows(parts: int, rows: int, replicas: int, backward: bool) -> None:
    for processors, largest in ((1, 8), (16, 8), (78, 16), (132, 16)):
        for units in range(16, plan.most_units(parts, largest) + 1, 16):
            sizes = plan.make(units, rows, replicas, parts, backward, processors, largest)
            assert sizes.wide == (units > 32 * largest)
            assert sizes.whole == plan.make(units, rows, replicas, parts, not backward, processors, largest).whole
            assert 1 <= sizes.cluster <= largest
            assert units <= sizes.cluster * sizes.warps * ((16 if backward else 8) if sizes.whole else 4)
            assert sizes.tiles in ((1, 2, 3) if sizes.wide and not backward else (1,) if sizes.wide else (1, 2))
            groups = sizes.groups(rows, replicas)
            assert groups % replicas == 0
            assert rows <= groups // replicas * 8 * sizes.tiles < rows + 8 * sizes.tiles


def test_few_rows_take_one_tile_and_many_take_two() -> None:
    assert plan.make(512, 8, 1, 1, False, 132, 16).tiles == 1
    assert plan.make(512, 1000, 1, 1, True, 132, 16).tiles == 2


def test_wide_layers_have_as_many_tiles_as_save_a_round() -> None:
    """With seven resident clusters, forward, as long as the tiles fit."""
    tiles = {rows: plan.make(720, rows, 1, 1, False, 132, 16).tiles for rows in (1, 56, 57, 112, 113, 128, 1000)}
    assert tiles == {1: 1, 56: 1, 57: 2, 112: 2, 113: 3, 128: 3, 1000: 3}
    assert plan.make(768, 1000, 1, 1, False, 132, 16).tiles == 2
    assert plan.make(720, 1000, 1, 1, True, 132, 16).tiles == 1


def test_with_many_rows_a_thread_block_has_the_whole_narrow_layer() -> None:
    made = [plan.make(128, 128, count, 1, False, 132, 16) for count in (1, 2, 3, 8)]
    whole = plan.LaunchShape(16, 1, 1, whole=True)
    assert made == [plan.LaunchShape(4, 8, 1), plan.LaunchShape(4, 8, 1, 3), whole, whole]
    assert plan.make(128, 128, 8, 1, True, 132, 16) == plan.LaunchShape(8, 1, 1, whole=True)
    assert plan.make(20, 2000, 1, 1, False, 132, 16) == plan.LaunchShape(4, 1, 1, 4, whole=True)
    assert not plan.make(129, 2000, 1, 1, False, 132, 16).whole
    assert not plan.make(128, 128, 8, 1, False, 132, 16, countable=False).whole


def test_in_full_float32_several_small_thread_blocks_share_an_sm() -> None:
    made = [plan.make(128, 128, count, 2, True, 132, 16) for count in (1, 2, 8)]
    assert made == [plan.LaunchShape(4, 8, 1), plan.LaunchShape(4, 8, 1, 3), plan.LaunchShape(4, 8, 1, 3)]


@dataclass
class Launches:
    """Records kernel launches instead of launching."""

    processors: int = 132
    shared: list[int] = field(default_factory=list)
    clusters: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)

    def kernel(self, code: bytes, name: str, signature: str, *sizes: Any) -> Any:
        assert expanded(signature) == parameters(name)
        *_, cluster, shared, _ = sizes
        self.clusters.append(cluster)
        self.shared.append(shared)

        def start(groups: int, *arguments: float) -> None:
            struct.Struct(f"@{signature}").pack(*arguments)
            self.started.append(groups)

        return SimpleNamespace(start=start)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    watched = Launches()
    monkeypatch.setattr(recurrence, "Kernel", watched.kernel)
    monkeypatch.setattr(recurrence, "machine_code", lambda name, constants, architecture, gate="": b"")
    monkeypatch.setattr(recurrence, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(recurrence, "processors", lambda device: watched.processors)
    monkeypatch.setattr(recurrence, "largest_cluster", lambda device: plan.LARGEST)
    return watched


def expanded(signature: str) -> str:
    """ "2Pi" becomes "PPi"."""
    return "".join(int(count or 1) * kind for count, kind in re.findall(r"(\d*)([Pif])", signature))


def parameters(name: str) -> str:
    """Parameters of a kernel, from its source, as letters of `struct`."""
    found = re.search(rf"\b{name}\(([^()]*)\) \{{", (Path(compiler.__file__).parent / f"{name}.cu").read_text("utf-8"))
    assert found is not None
    return "".join("P" if "*" in one else {"int": "i", "float": "f"}[one.split()[0]] for one in found[1].split(","))


def pass_through(
    cell: PointwiseCell,
    units: int,
    rows: int = 8,
    dtype: torch.dtype = torch.float32,
    precision: str = "tf32",
    reverse: bool = False,
    irregular: bool = False,
    unequal: bool = False,
    save: bool = True,
    inputs: int = recurrence.NARROW,
    on_device: bool = False,
    trained: bool = True,
) -> None:
    """Forward and, if `save`, backward pass over two steps of zeros."""
    kind = make_kind(cell, reverse, precision, "cuda")
    sizes = cell.shapes(inputs, units, units, bias=True)
    shapes = {name: torch.zeros(shape, dtype=dtype) for name, shape in sizes.items()}
    state = torch.zeros(rows, units)
    values = torch.zeros(2, rows, inputs, dtype=dtype).as_subclass(OnDevice if on_device else torch.Tensor)
    operands = contract.Operands(
        values.requires_grad_(on_device and trained),
        *(shapes.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),  # type: ignore[arg-type]
        contract.several(tuple(shapes[name] for name in contract.derivation(cell).own), -2),
        torch.ones(2, rows) if irregular else None,
        torch.ones(rows, dtype=torch.int32) if unequal else None,
        *(state.to(dtype), state, contract.several((state,) * kind.carried, -3)),
    )
    terms = recurrence.terms(kind, operands)
    operands, scale = launch.prepared(kind, operands)
    with torch.no_grad():
        kept, _ = launch.forward(kind, operands, scale, terms, save)
    if save:
        nothing = contract.Final(None, None, None)
        needs = contract.Needs(inputs=trained, dt=irregular, state=True)
        launch.backward(kind, operands, scale, kept, kept.outputs, nothing, needs, overwrite=False)


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("processors", [1, 132], ids=["many-rows", "few-rows"])
@pytest.mark.parametrize(
    "cell",
    [cell for cell in CELLS if type(cell.gate) in (Sigmoid, Refine, PowerLaw)],
    ids=lambda cell: f"{cell.name}-{cell.gate.name}-{len(cell.blocks)}",
)
def test_every_size_fits_into_shared_memory(launches: Launches, cell: GatedCell, parts: int, processors: int) -> None:
    launches.processors = processors
    precision = "tf32" if parts == 1 else "tf32x3"
    most = plan.most_units(parts, 16, len(cell.blocks))
    for units in (*range(16, most, 80), most):
        for irregular in {False, cell.takes_dt}:
            pass_through(cell, units, rows=9, precision=precision, irregular=irregular)
            pass_through(cell, units, rows=9, precision=precision, irregular=irregular, save=False)
    assert launches.started
    assert max(launches.clusters) <= 16
    assert max(launches.shared) <= plan.SHARED <= SHARED


class OnDevice(torch.Tensor):
    """A tensor that pretends to be on a CUDA device."""

    is_cuda = True  # type: ignore[assignment]


@pytest.mark.parametrize("trained", [False, True], ids=["inputs", "inputs-with-gradient"])
@pytest.mark.parametrize(
    "sizes",
    [{"units": 64}, {"units": 64, "rows": 1000}, {"units": 64, "rows": 1000, "inputs": 40}, {"units": 720, "rows": 20}],
    ids=["clusters", "whole", "whole-wide-inputs", "wide"],
)
def test_the_backward_pass_is_compiled_in_parallel_with_the_forward_pass(
    launches: Launches, sizes: dict[str, Any], trained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    begun: list[tuple[str, dict[str, Any]]] = []

    def code(name: str, constants: dict[str, Any], architecture: str, gate: str = "") -> bytes:
        asked.append((name, dict(constants)))
        return b""

    def begin(job: Callable[[], object]) -> None:
        job()
        begun.append(asked.pop())

    monkeypatch.setattr(recurrence, "machine_code", code)
    monkeypatch.setattr(recurrence, "begin", begin)
    for _ in range(2):
        pass_through(LSTMCell(PowerLaw()), on_device=True, trained=trained, **sizes)
    assert [name for name, _ in asked] == [f"{prefix}forward" for prefix in [asked[0][0][:-7]]] + [begun[0][0]]
    assert begun == asked[1:]
    pass_through(LSTMCell(PowerLaw()), save=False, on_device=True, **sizes)
    assert len(begun) == 1


# Refusals.


def task(cell: Cell, units: int, device: str = "cuda:0", dtype: torch.dtype = torch.float32) -> EngineTask:
    """A task whose tensors need no device."""
    inputs: Any = SimpleNamespace(device=torch.device(device), dtype=dtype)
    shapes = cell.shapes(3, units, units, bias=True)
    weights = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in shapes.items()}
    return EngineTask(cell, weights, inputs, Zeros(tuple(cell.widths(units, units).values())))


@pytest.fixture
def capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "lacks", lambda device: None)
    monkeypatch.setattr(engine, "largest_cluster", lambda device: 16)


def test_an_input_elsewhere_is_refused_and_auto_goes_on() -> None:
    layer = rm.LSTM(3, 4, engine="cuda")
    sentence = "engine='cuda' can run, but it runs on CUDA devices, and the input is on cpu$"
    with pytest.raises(ValueError, match=sentence):
        layer(torch.zeros(2, 1, 3))
    layer.engine = "auto"
    assert layer(torch.zeros(2, 1, 3))[0].shape == (2, 1, 4)


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.name}-{cell.gate.name}-{len(cell.blocks)}")
def test_every_cell_is_taken(cell: GatedCell) -> None:
    assert engine.refuses(task(cell, 16)) is None


class Rows(Gate):
    """Any number of rows."""

    name = "rows"

    def __init__(self, many: int) -> None:
        self.rows = tuple(f"row{i}" for i in range(many))  # type: ignore[misc]

    def __call__(self, pre: Any, carried: Any, weights: Any, dt: Any) -> Forgetting:
        logit = sum(pre)
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit))


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize("rows", [1, 5, 6])
def test_as_many_blocks_are_taken_as_fit(rows: int) -> None:
    reason = engine.refuses(task(LSTMCell(Rows(rows)), 16))
    assert reason == (None if rows < 6 else "it supports at most 8 blocks of pre-activations, and the cell has 9")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("blocks", "pages"),
    [*((blocks, plan.PAGES) for blocks in (5, 6, 7, 8)), *itertools.product((2, 4, 6, 8), (plan.PAGES + 1, 9))],
)
def test_more_blocks_and_more_pages_fit_into_shared_memory(parts: int, blocks: int, pages: int) -> None:
    """In both passes, by kernels that take the same inputs."""
    most = plan.most_units(parts, 16, blocks, pages)
    for units, rows in itertools.product(range(16, most + 1, 16), (1, 100, 1000)):
        there, back = (
            plan.make(units, rows, 1, parts, backward, 132, 16, True, blocks, pages) for backward in (False, True)
        )
        assert (there.wide, there.whole) == (back.wide, back.whole)
        assert parts == 1 or not there.wide
        if there.wide:
            needed = plan.wide_forward_shared(there, blocks), plan.wide_backward_shared(back, blocks)
        elif there.whole:
            padded = 16 * -(-units // 16)
            last = plan.aside(there, 1, blocks, backward=False), plan.aside(back, 1, blocks, backward=True)
            needed = (
                max(plan.whole_forward_shared(padded, 4, blocks, blocks + pages, i, last[0]) for i in (0, 16)),
                plan.whole_backward_shared(padded, 4, blocks, pages - 2, 2, 16, False, last[1]),
            )
        else:
            left = blocks + pages
            needed = (
                max(plan.forward_shared(there, parts, blocks, left, inputs) for inputs in (0, recurrence.NARROW)),
                plan.backward_shared(back, parts, blocks, left, blocks + 1, recurrence.NARROW),
            )
        assert max(needed) <= plan.SHARED, (units, rows)


def test_blocks_after_the_fourth_are_in_registers_if_they_fit() -> None:
    one, two = plan.LaunchShape(8, 16, 1), plan.LaunchShape(8, 16, 2)
    assert [plan.aside(one, 1, blocks, True) for blocks in (4, 5, 6)] == [False, False, True]
    assert [plan.aside(two, 1, 5, backward) for backward in (False, True)] == [False, True]
    assert [plan.aside(plan.LaunchShape(8, 8, 1, together), 1, 5, True) for together in (1, 2)] == [False, True]
    assert plan.make(512, 100, 1, 1, True, 132, 16, True, 5, 2) == two
    assert plan.make(512, 100, 1, 1, True, 132, 16, True, 6, 2) == one
    assert plan.make(720, 128, 1, 1, False, 132, 16, True, 5, 2).tiles == 3
    whole = plan.make_whole(128, backward=False)
    assert [plan.aside(whole, 1, blocks, False) for blocks in (4, 5)] == [False, True]
    assert plan.make(128, 1000, 1, 1, False, 132, 16, True, 5, 2) == whole
    assert not plan.make(128, 1000, 1, 1, False, 132, 16, True, 6, 2).whole


class Carrying(Gate):
    """Any number of values."""

    name = "carrying"

    def __init__(self, many: int) -> None:
        self.carries = tuple(f"value{i}" for i in range(many))  # type: ignore[misc]

    def __call__(self, pre: Any, carried: Any, weights: Any, dt: Any) -> Forgetting:
        logit = sum(carried, pre[0])
        return Forgetting(torch.sigmoid(logit), torch.sigmoid(-logit), carried)


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize("many", [0, 2, 3, 6, 7])
def test_as_many_carried_values_are_taken_as_kernels_support(many: int) -> None:
    reason = engine.refuses(task(LSTMCell(Carrying(many)), 16))
    assert reason == (None if many < 7 else "it supports at most 6 carried values, and there are 7")


@pytest.mark.parametrize("many", [0, 1, 2])
def test_a_few_carried_values_fit_in_layers_of_every_size(many: int) -> None:
    """In GRUs with four blocks, which leave the least shared memory."""
    itemsize, inputs = 4, 16
    for parts in (1, 2):
        for units, rows in itertools.product(range(16, MOST[parts] + 1, 16), (1, 512)):
            sizes = plan.make(units, rows, 1, parts, True, 132, 16)
            if sizes.whole:
                shared = plan.whole_backward_shared(units, itemsize, 4, 1 + many, 2, inputs, True)
            elif sizes.wide:
                shared = plan.wide_backward_shared(sizes)
            else:
                shared = plan.backward_shared(sizes, parts, 4, 4 + 3 + many, 4 + 1, inputs)
            assert shared <= plan.SHARED


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize(
    ("cell", "most", "of"),
    [
        (LSTMCell(Rows(2)), 384, " in 5 blocks"),
        (LSTMCell(Rows(3)), 256, " in 6 blocks"),
        (LSTMCell(Rows(4)), 256, " in 7 blocks"),
        (LSTMCell(Rows(5)), 160, " in 8 blocks"),
        (LSTMCell(Carrying(2)), 512, ""),
        (LSTMCell(Carrying(6)), 384, " with 6 carried values"),
        (GRUCell(Carrying(3)), 512, " with 3 carried values"),
        (SRU, 256, " in 6 blocks with 4 carried values"),
    ],
    ids=["5 blocks", "6 blocks", "7 blocks", "8 blocks", "2 carried", "6 carried", "3 carried", "sru"],
)
def test_more_blocks_and_carried_values_leave_fewer_units_in_full_float32(cell: Cell, most: int, of: str) -> None:
    with float32_products(False):
        assert engine.refuses(task(cell, most)) is None
        reason = engine.refuses(task(cell, most + 1))
    assert reason == f"it supports at most {most} units{of} in full float32, and there are {most + 1}"
    with float32_products(True):
        assert engine.refuses(task(cell, MOST[1])) is None


def test_with_many_carried_values_no_large_thread_blocks_share_an_sm() -> None:
    """A cluster has two tiles instead; in full float32, the backward pass needs registers that low-order parts take."""
    few, many = (
        [plan.make(156, 100, 3, parts, back, 132, 16, True, 6, pages) for parts in (1, 2) for back in (False, True)]
        for pages in (plan.PAGES, plan.pages_of(4, apart=False))
    )
    one, two = plan.LaunchShape(8, 5, 1), plan.LaunchShape(8, 5, 2)
    assert few == [replace(one, together=2), replace(one, together=2), two, two]
    assert many == [two, two, two, replace(one, shelved=True)]


def test_the_rest_of_the_matrix_is_streamed_on_a_whole_gpu_only() -> None:
    assert [plan.most_units(1, largest) for largest in (1, 8, 16)] == [48, 384, MOST[1]]
    assert [plan.most_units(2, largest) for largest in (1, 8, 16)] == [32, 256, MOST[2]]
    assert not plan.make(768, 8, 1, 1, True, 132, 16).streamed
    some, more = (plan.make(1152, 8, 1, 1, backward, 132, 16) for backward in (False, True))
    assert 0 < some.streamed < more.streamed < 72  # of 72 tiles


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_as_many_units_are_taken_as_fit(dtype: torch.dtype, tf32: bool) -> None:
    full = dtype == torch.float32 and not tf32
    most = MOST[2 if full else 1]
    with float32_products(tf32):
        assert engine.refuses(task(GRUCell(Fast()), most, dtype=dtype)) is None
        reason = engine.refuses(task(GRUCell(Fast()), most + 1, dtype=dtype))
    exact = " in full float32" if full else ""
    assert reason == f"it supports at most {most} units{exact}, and there are {most + 1}"


@pytest.mark.usefixtures("capable")
@pytest.mark.parametrize(
    ("cell", "dtype", "reason"),
    [
        (
            LSTMCell(Fast()),
            torch.float64,
            "it computes in float32, bfloat16 and float16, and the input is torch.float64",
        ),
        (
            NRUCell(4, 1),
            torch.float32,
            "it runs cells with one recurrent matmul and a pointwise update, and nru is not one",
        ),
    ],
    ids=["float64", "nru"],
)
def test_what_no_fused_engine_runs_is_refused(cell: Cell, dtype: torch.dtype, reason: str) -> None:
    assert engine.refuses(task(cell, 4, dtype=dtype)) == reason


def test_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert engine.refuses(task(LSTMCell(Fast()), 4)) == "it runs on NVIDIA GPUs only"


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that sets the compute capability of devices."""

    def have(major: int, minor: int) -> None:
        properties = SimpleNamespace(major=major, minor=minor)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (major, minor))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return have


def test_an_older_gpu_is_named(chip: Callable[[int, int], None]) -> None:
    chip(8, 9)
    reason = "it needs a GPU of compute capability 9.x or 10.x, and cuda:0 has 8.9"
    assert engine.refuses(task(LSTMCell(Fast()), 4)) == reason


def test_an_installation_without_the_compiler_is_named(
    chip: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    chip(9, 0)
    monkeypatch.setattr(compiler, "_places", lambda name: [])
    missing = "expected libnvrtc.so.13, which comes with torch for CUDA, found none"
    with pytest.raises(compiler.CompilerError, match=f"^{re.escape(missing)}$"):
        compiler.library()
    assert engine.refuses(task(LSTMCell(Fast()), 4)) == f"its kernels cannot be compiled: {missing}"


def test_a_machine_without_the_driver_is_named(
    chip: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    chip(9, 0)
    monkeypatch.setattr(device, "_nothing", lambda architecture: b"")
    monkeypatch.setattr(device, "driver", missing)
    reason = engine.refuses(task(LSTMCell(Fast()), 4))
    assert reason == "its kernels cannot be compiled: libcuda.so.1: cannot open shared object file"


def test_a_compiler_that_does_not_know_the_gpu_is_named(
    chip: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler of a CUDA version older than the GPU."""

    def compiled(text: str, options: list[str]) -> bytes:
        assert options == ["--gpu-architecture=sm_103"]
        raise compiler.CompilerError("nvrtc: error: invalid value for --gpu-architecture (-arch)")

    chip(10, 3)
    monkeypatch.setattr(device, "code_of", compiled)
    reason = engine.refuses(task(LSTMCell(Fast()), 4))
    assert reason == "its kernels cannot be compiled: nvrtc: error: invalid value for --gpu-architecture (-arch)"


# Loading and launching.

FINE, NO_CONTEXT, CAPTURING = 0, 201, 900
GLOBAL, RELAXED = 0, 2


class Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        *((f"{of}_{axis}", ctypes.c_uint) for of in ("grid", "block") for axis in "xyz"),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(driver._Attribute)),
        ("count", ctypes.c_uint),
    )


class Extra(ctypes.Structure):
    """The `extra` argument of a launch: alternating keys and values, with the parameters in a buffer."""

    _fields_ = (("values", ctypes.c_size_t * 5),)


class Driver:
    """A mock of the CUDA driver for `Kernel`, in a thread without a context, during graph capture."""

    def __init__(self) -> None:
        self.context: int | None = None
        self.mode = GLOBAL
        self.started: list[tuple[Config, Extra]] = []
        self.parameters = b""

    def cuDeviceGet(self, number: Any, index: int) -> int:
        number._obj.value = index
        return FINE

    def cuDevicePrimaryCtxRetain(self, context: Any, number: ctypes.c_int) -> int:
        context._obj.value = 100 + number.value
        return FINE

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        self.context = context.value
        return FINE

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return FINE

    def cuModuleLoadData(self, *_: Any) -> int:
        if self.context is None:
            return NO_CONTEXT
        return FINE if self.mode == RELAXED else CAPTURING

    def cuModuleGetFunction(self, *_: Any) -> int:
        return FINE

    def cuFuncSetAttribute(self, *_: Any) -> int:
        return FINE

    def cuLaunchKernelEx(self, config: bytes, function: Any, none: None, extra: bytes) -> int:
        if self.context is None:
            return NO_CONTEXT
        self.started.append((Config.from_buffer_copy(config), Extra.from_buffer_copy(extra)))
        _, parameters, _, size, _ = self.started[-1][1].values
        self.parameters = ctypes.string_at(parameters, ctypes.c_size_t.from_address(size).value)
        return FINE

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = {NO_CONTEXT: b"invalid device context", CAPTURING: b"not while capturing"}[status]
        return FINE


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Driver:
    pretended = Driver()
    monkeypatch.setattr(driver, "driver", lambda: pretended)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", {1: 77}.get, raising=False)  # not without CUDA
    return pretended


def test_a_kernel_is_loaded_in_any_thread_and_while_a_graph_is_captured(cuda: Driver) -> None:
    driver.Kernel(b"", "nothing", "", 256, 16, 0, torch.device("cuda", 1))
    assert (cuda.context, cuda.mode) == (101, GLOBAL)


def test_a_kernel_is_started_in_any_thread(cuda: Driver) -> None:
    kernel = driver.Kernel(b"", "nothing", "i", 256, 2, 0, torch.device("cuda", 1))
    cuda.context = None  # as in another thread
    kernel.start(3, 7)
    assert (cuda.context, len(cuda.started)) == (101, 1)


def test_a_kernel_is_started_as_the_driver_has_it(cuda: Driver) -> None:
    kernel = driver.Kernel(b"", "nothing", "2Pif", 128, 3, 4096, torch.device("cuda", 1))
    kernel.start(5, 1 << 40, 2, 3, 0.5)
    ((config, extra),) = cuda.started
    sizes = [getattr(config, f"{of}_{axis}") for of in ("grid", "block") for axis in "xyz"]
    assert sizes == [15, 1, 1, 128, 1, 1]
    assert (config.shared, config.stream, config.count) == (4096, 77, 1)
    assert (config.attributes[0].id, list(config.attributes[0].value[:3])) == (4, [3, 1, 1])
    assert [extra.values[i] for i in (0, 2, 4)] == [1, 2, 0]
    assert struct.unpack("@2Pif", cuda.parameters) == (1 << 40, 2, 3, 0.5)


# The cache of machine code.


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Options of all compilations, by a mock compiler."""
    found: list[list[str]] = []

    def compiled(text: str, options: list[str]) -> bytes:
        found.append(options)
        return f"code {len(found)}".encode()

    monkeypatch.setattr(compiler, "compiled", compiled)
    monkeypatch.setattr(compiler, "version", lambda: (13, 0))
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    return found


def test_a_kernel_is_compiled_once_and_kept(made: list[list[str]], tmp_path: Path) -> None:
    first, again = (compiler.machine_code("forward", {"H": 16, "SAVE": 1}, "sm_90") for _ in range(2))
    assert first == again == b"code 1"
    assert len(made) == 1
    assert {"--gpu-architecture=sm_90", "-DH=16", "-DSAVE=1"} < set(made[0])
    (path,) = (tmp_path / "cache" / "kernels").iterdir()
    assert path.suffix == ".cubin"
    assert path.read_bytes() == b"code 1"


def test_whatever_a_kernel_depends_on_makes_another(made: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def code(name: str = "forward", units: int = 16, architecture: str = "sm_90", gate: str = "") -> bytes:
        return compiler.machine_code(name, {"H": units}, architecture, gate)

    found = [code(), code("backward"), code(units=32), code(architecture="sm_100"), code(gate="// another")]
    with monkeypatch.context() as newer:
        newer.setattr(compiler, "version", lambda: (13, 1))
        found.append(code())
    with monkeypatch.context() as edited:
        edited.setattr(compiler, "joined", lambda files: "another text")
        found.append(code())
    assert len(set(found)) == len(found) == len(made)
    assert code() == found[0]


def test_the_folder_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REMANENCE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "remanence" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "remanence" / "kernels"


def test_where_nothing_can_be_written_it_is_compiled_once_a_process(
    made: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    occupied = tmp_path / "a file"
    occupied.write_text("and no folder")
    monkeypatch.setenv("REMANENCE_CACHE", str(occupied))
    compiled_once_a_process("but it cannot be created", monkeypatch)


def compiled_once_a_process(warning: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (b"code 1", b"code 2"):
        monkeypatch.setattr(cache, "_own", {})  # as in a new process
        with pytest.warns(UserWarning, match=warning):
            assert compiler.machine_code("forward", {}, "sm_90") == code
        assert compiler.machine_code("forward", {}, "sm_90") == code


def test_a_user_without_a_home_compiles_once_a_process(made: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("REMANENCE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    compiled_once_a_process("but it is unknown", monkeypatch)


def test_half_a_file_is_never_left(made: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*paths: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.replace", full)
        with pytest.warns(UserWarning, match=r"but it cannot be written \(no space left on device\)"):
            assert compiler.machine_code("forward", {}, "sm_90") == b"code 1"
    assert list((tmp_path / "cache" / "kernels").iterdir()) == []
    assert compiler.machine_code("forward", {}, "sm_90") == b"code 2"


# The real compiler, if it is installed. It needs no device.


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    if torch.version.cuda is None:
        monkeypatch.setattr(torch.version, "cuda", "13.0")
    try:
        return compiler.library()
    except compiler.CompilerError as error:
        pytest.skip(str(error))


def test_the_compiler_has_the_version_of_torch(nvrtc: ctypes.CDLL) -> None:
    assert compiler.version()[0] == int(str(torch.version.cuda).partition(".")[0])


@pytest.mark.usefixtures("nvrtc")
def test_what_the_compiler_does_not_take_is_an_error_in_its_words() -> None:
    with pytest.raises(compiler.CompilerError, match='identifier "nonsense" is undefined'):
        compiler.compiled("__global__ void kernel() { nonsense; }", ["--gpu-architecture=sm_90"])


@pytest.mark.usefixtures("nvrtc")
def test_a_gpu_the_compiler_does_not_know_is_an_error_of_one_line() -> None:
    with pytest.raises(compiler.CompilerError, match=r"\A[^\n]*--gpu-architecture[^\n]*\Z"):
        compiler.compiled("", ["--gpu-architecture=sm_199"])


def described(nvrtc: ctypes.CDLL, text: str, options: list[str]) -> str:
    """The compiler's report of registers, memory and spills."""
    options = [*options, "--ptxas-options=-v"]
    program = ctypes.c_void_p()
    compiler._check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    try:
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
        log = compiler._result(nvrtc, "ProgramLog", program).rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert not failed, log
    return log


@pytest.fixture
def told(nvrtc: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The compiler's reports of all kernels that were requested."""
    logs: list[str] = []

    def compiled(text: str, options: list[str]) -> bytes:
        logs.append(described(nvrtc, text, options))
        return b""

    monkeypatch.setattr(compiler, "compiled", compiled)
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    return logs


SPILLED = 128
"""Bytes that a thread may spill to local memory: a few registers. A slice of the matrix would be hundreds."""
SPILLED_OF_MANY = 448
"""The same if the slice takes half of all registers: above 256 units, if a thread block has a whole layer of 128, or
with six blocks."""

SIZES: list[dict[str, Any]] = [  # what changes the source: how large, how precise, how many rows
    {"units": 16, "rows": 1},
    {"units": 256, "rows": 20, "precision": "tf32x3"},
    {"units": 128, "rows": 8, "dtype": torch.bfloat16},
    {"units": 48, "rows": 1000, "dtype": torch.float16},
    {"units": 112, "rows": 130},
    {"units": 64, "rows": 20, "precision": "tf32x3", "save": False},
    {"units": 400, "rows": 20},
    {"units": 80, "rows": 1000, "precision": "tf32x3"},
    {"units": 208, "rows": 8},
]
COMPILED = [
    (cell, SIZES[index % len(SIZES)] | {"reverse": index % 2 == 1, "unequal": index % 3 == 1})
    for index, cell in enumerate(FITTING)
]
COMPILED += [
    (LSTMCell(Sigmoid()), {"units": 512, "rows": 300}),
    (LSTMCell(PowerLaw()), {"units": 256, "rows": 300, "precision": "tf32x3", "unequal": True}),
    (GRUCell(PowerLaw()), {"units": 512, "rows": 300, "unequal": True, "reverse": True}),
    (LSTMCell(PowerLaw()), {"units": 512, "rows": 300, "precision": "tf32x3"}),
    (GRUCell(Refine()), {"units": 400, "rows": 8, "precision": "tf32x3", "unequal": True}),
    (JANETCell(UniformRefine(), beta=0.0), {"units": 512, "rows": 1, "dtype": torch.bfloat16}),
    (LSTMCell(Fast()), {"units": 128, "rows": 1000, "inputs": 10}),
    (LSTMCell(PowerLaw()), {"units": 128, "rows": 1000, "unequal": True, "reverse": True}),
    (GRUCell(Refine()), {"units": 128, "rows": 1000, "inputs": recurrence.NARROW + 1}),
    (LSTMCell(Sigmoid()), {"units": 64, "rows": 1000, "save": False}),
    (LSTMCell(Fast()), {"units": 720, "rows": 128}),
    (LSTMCell(PowerLaw()), {"units": 720, "rows": 8, "unequal": True, "reverse": True}),
    (GRUCell(Refine()), {"units": 768, "rows": 300, "dtype": torch.bfloat16}),
    (LSTMCell(PowerLaw()), {"units": 1152, "rows": 20}),
    (JANETCell(Fast()), {"units": 832, "rows": 20, "unequal": True, "dtype": torch.float16}),
    (LSTMCell(Refine()), {"units": 128, "rows": 128, "inputs": 10}),
    (LSTMCell(Refine()), {"units": 128, "rows": 1000, "inputs": 10}),
    (LSTMCell(UniformRefine()), {"units": 64, "rows": 1000, "unequal": True}),
    (LSTMCell(UniformRefine()), {"units": 256, "rows": 100, "precision": "tf32x3", "unequal": True}),
    (LSTMCell(Refine()), {"units": 384, "rows": 20, "precision": "tf32x3"}),
    (LSTMCell(Refine()), {"units": 512, "rows": 20, "inputs": 1}),
    (LSTMCell(Refine()), {"units": 512, "rows": 100, "dtype": torch.bfloat16, "reverse": True}),
    (LSTMCell(Refine()), {"units": 720, "rows": 128, "inputs": 50}),
    (LSTMCell(UniformRefine()), {"units": 1152, "rows": 20, "unequal": True}),
    (SRU, {"units": 156, "rows": 300, "inputs": 1, "precision": "tf32x3"}),
    (SRU, {"units": 200, "rows": 300, "inputs": 1, "dtype": torch.bfloat16}),
    (SRU, {"units": 156, "rows": 300, "inputs": 1}),
    (SRU, {"units": 96, "rows": 1000, "inputs": 1}),
]


def title(cell: PointwiseCell, options: dict[str, Any]) -> str:
    kind = "coupled" if getattr(cell, "coupled", False) else ""
    values = (f"{name}={str(value).removeprefix('torch.')}" for name, value in options.items() if value is not False)
    gate = cell.gate.name if isinstance(cell, GatedCell) else ""
    return "-".join(filter(None, (cell.name, kind, gate, *values)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("cell", "options"),
    [
        pytest.param(*case, id=title(*case), marks=[pytest.mark.slow] if number % 6 or case[1]["units"] == 768 else [])
        for number, case in enumerate(COMPILED)
    ],
)
def test_every_kernel_compiles_without_register_spills(
    told: list[str],
    launches: Launches,
    cell: PointwiseCell,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recurrence, "machine_code", compiler.machine_code)
    pass_through(cell, irregular=cell.takes_dt, **options)
    assert len(told) == len(launches.started) == (2 if options.get("save", True) else 1)
    for log in told:
        numbers = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
        assert numbers is not None, log
        half = options["units"] > 256 or (options["units"], options["rows"]) == (128, 1000) or len(cell.blocks) > 5
        allowed = SPILLED_OF_MANY if half else SPILLED
        assert max(map(int, numbers.groups())) <= allowed, log


@pytest.mark.long
@pytest.mark.parametrize("name", ["linear_forward", "linear_backward"])
@pytest.mark.parametrize(
    ("units", "outputs", "dtype"), [(128, 16, torch.float32), (128, 10, torch.bfloat16), (4, 1, torch.float16)]
)
def test_read_outs_compile_without_register_spills(
    told: list[str], name: str, units: int, outputs: int, dtype: torch.dtype
) -> None:
    compiler.machine_code(name, linear.constants(units, outputs, dtype), "sm_90")
    (log,) = told
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
