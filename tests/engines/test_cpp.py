"""The engine "c++": its compiler, its behaviour without one, and its functions.

`test_engines.py` compares it with the loop.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
import warnings
from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engines import CELLS, Case, Contender, assert_like_the_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import remanence as rm
from remanence.engines import KNOWN, choose
from remanence.engines.cpp import compiler, engine, products, recurrence, weights
from remanence.engines.kernels.machine_code import FUNCTIONS as FUNCTIONS_OF_KERNELS
from remanence.engines.kernels.machine_code import CompilerError, joined
from remanence.engines.samples import SIZES, make_task

CPU = torch.device("cpu")
COMPILED = Contender("c++", "cpu", (torch.float32,))
TRIVIAL = 'extern "C" int number() { return NUMBER; }'

compiles = pytest.mark.skipif(engine.lacks() is not None, reason="no C++ compiler")


def task(dtype=torch.float32, gate="fast", **more):
    cell = rm.cells.LSTMCell(rm.gates.KNOWN[gate]())
    return make_task(cell, SIZES, dtype, CPU, **more)


# Where it runs.


@compiles
def test_it_is_what_auto_takes_in_float32():
    assert choose("auto", task()) is KNOWN["c++"]
    assert choose("auto", task(torch.float64)) is KNOWN["cpu"]


def test_what_it_cannot_run_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"computes in float32, and the input is torch.float64"):
        choose("c++", task(torch.float64))


@pytest.fixture
def unasked(monkeypatch):
    """As if no compiler had been looked for yet."""
    asked = (engine._no_compiler, engine._tell_slow, compiler.compiler, compiler.shared_threads)
    caches = (*asked, recurrence.failure, recurrence._forward, recurrence._backward, products.products)
    for known in caches:
        known.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for known in caches:
        known.cache_clear()


def test_without_a_compiler_another_engine_runs(unasked):
    unasked.setattr(compiler.shutil, "which", lambda name: None)
    assert choose("auto", task()) is KNOWN["cpu"]
    with pytest.raises(ValueError, match=r"cannot be compiled: expected a C\+\+ compiler .* found none"):
        choose("c++", task())


def test_that_there_is_no_compiler_is_told_once_with_what_to_install(unasked):
    unasked.setattr(compiler.shutil, "which", lambda name: None)
    layer, inputs = rm.LSTM(4, 8), torch.randn(3, 2, 4)
    with pytest.warns(UserWarning, match=r"^layers run on a slower engine .* found none; .*install"):
        layer(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(inputs)


@compiles
def test_without_a_temporary_folder_steps_are_compiled_beside_what_is_kept(unasked, tmp_path):
    unasked.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    unasked.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    assert choose("auto", task()) is KNOWN["c++"]
    assert {path.suffix for path in (tmp_path / "cache" / "kernels").iterdir()} <= {".so", ".agrees"}


def test_where_nothing_can_be_written_the_engine_that_writes_nothing_runs(unasked, tmp_path):
    (tmp_path / "file").touch()
    unasked.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    unasked.setenv("REMANENCE_CACHE", str(tmp_path / "file" / "cache"))
    layer, inputs = rm.LSTM(4, 8), torch.randn(3, 2, 4)
    with pytest.warns(UserWarning, match=r"cannot be compiled: expected a folder for temporary files \(TMPDIR\), got"):
        output, _ = layer(inputs)
    output.sum().backward()
    assert rm.engines.explain(layer).engine == "cpu"


@pytest.fixture
def compiler_that(unasked, tmp_path):
    """A compiler script that runs some shell code before it calls the real compiler."""

    def make(does):
        script = tmp_path / "strange"
        real = shutil.which("g++") or shutil.which("c++")
        script.write_bytes(f'#!/bin/sh\necho >> {tmp_path}/calls\n{does}\nexec {real} "$@"\n'.encode("latin-1"))
        script.chmod(0o755)
        unasked.setenv("CXX", str(script))
        unasked.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
        return lambda: len((tmp_path / "calls").read_text())

    return make


FAILS = 'echo "no licence" >&2; exit 1'


@compiles
def test_a_compiler_that_does_not_work_is_asked_once(compiler_that, tmp_path):
    calls = compiler_that(f'[ "$1" = --version ] || {{ {FAILS}; }}')
    assert choose("auto", task()) is KNOWN["cpu"]
    assert str(engine.refuses(task())).endswith("strange failed: no licence")
    assert calls() == 2  # its version is asked for too
    assert not list((tmp_path / "cache").rglob("*.so"))


@compiles
def test_a_cell_that_does_not_compile_runs_on_another_engine(compiler_that):
    compiler_that(f'case "$*" in *janet*) {FAILS};; esac')
    janet = make_task(rm.cells.JANETCell(rm.gates.Fast()), SIZES, torch.float32, CPU)
    assert choose("auto", janet) is KNOWN["cpu"]
    assert choose("auto", task()) is KNOWN["c++"]
    with pytest.raises(ValueError, match="failed: no licence"):
        choose("c++", janet)


@compiles
def test_without_matmuls_another_engine_runs(unasked):
    def fails(text, constants=None, functions=()):
        raise CompilerError("no licence for products")

    unasked.setattr(products, "library", fails)
    assert choose("auto", task()) is KNOWN["cpu"]
    assert str(engine.refuses(task())).endswith("no licence for products")


@compiles
def test_a_compiler_may_have_any_name_for_its_version(compiler_that):
    compiler_that('[ "$1" = --version ] && { echo "Free Software Foundation \xa9"; exit 0; }')
    assert choose("auto", task()) is KNOWN["c++"]


def test_threads_that_are_not_those_of_torch_are_not_used(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(engine, "shared_threads", lambda: None)
    assert engine.lacks() is not None
    monkeypatch.setattr(engine, "threads_of_torch", lambda: None)
    assert engine.refuses(task()) == "it would run in one thread, and torch uses 7"


MAPPED = {
    "torch's": (["{torch}/lib/libgomp-a34b3233.so.1"], 0),
    "torch's among others": (
        ["/else/scikit_learn.libs/libgomp-1.so", "{torch}/lib/libgomp.so.1", "/else/libomp.so"],
        1,
    ),
    "the system's": (["/usr/lib/libgomp.so.1"], 0),
    "another vendor's": (["/usr/lib/libgomp.so.1", "/else/libiomp5.so"], None),
    "none": (["/usr/lib/libm.so"], None),
}


@pytest.mark.parametrize("name", MAPPED)
def test_threads_of_torch_are_found_among_what_is_loaded(name, monkeypatch):
    paths, which = MAPPED[name]
    paths = [path.format(torch=Path(torch.__file__).parent) for path in paths]
    lines = "".join(f"ffff8000-ffff9000 r-xp 00000000 fe:01 1234    {path}\n" for path in paths)
    monkeypatch.setattr(compiler.Path, "read_text", lambda self, *_: lines)
    compiler.threads_of_torch.cache_clear()
    try:
        assert compiler.threads_of_torch() == (None if which is None else paths[which])
    finally:
        compiler.threads_of_torch.cache_clear()


# Compilation and cache.


@compiles
def test_machine_code_is_cached_for_this_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    assert compiler.library(TRIVIAL, {"NUMBER": 3}).number() == 3
    assert compiler.library(TRIVIAL, {"NUMBER": 4}).number() == 4
    assert len(list((tmp_path / "kernels").iterdir())) == 2

    def unused(*_, **__):
        raise CompilerError("it is there")

    monkeypatch.setattr(compiler, "_call", unused)
    assert compiler.library(TRIVIAL, {"NUMBER": 3}).number() == 3
    monkeypatch.setattr(compiler, "processor", lambda: "another")
    with pytest.raises(CompilerError, match="it is there"):
        compiler.library(TRIVIAL, {"NUMBER": 3})


@compiles
def test_it_runs_where_nothing_can_be_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="but it cannot be created"):
        assert compiler.library(TRIVIAL, {"NUMBER": 5}).number() == 5


@compiles
def test_a_broken_cached_library_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    compiler.library(TRIVIAL, {"NUMBER": 6})
    (kept,) = (tmp_path / "kernels").iterdir()
    kept.unlink()
    kept.write_bytes(b"half of it")
    assert compiler.library(TRIVIAL, {"NUMBER": 6}).number() == 6


@compiles
def test_a_compiler_that_is_stuck_is_not_waited_for(monkeypatch, tmp_path):
    def stuck(*_, **__):
        raise subprocess.TimeoutExpired("c++", 120)

    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    compiler.made_of()  # asks for the version of a compiler that works
    monkeypatch.setattr(compiler.subprocess, "run", stuck)
    with pytest.raises(CompilerError, match="timed out"):
        compiler.library(TRIVIAL, {"NUMBER": 7})


# Results.


@pytest.fixture
def large(monkeypatch):
    """Matmuls by torch even if a layer is small."""
    monkeypatch.setattr(recurrence, "FITS", -1)


@pytest.fixture(params=["small", "large"])
def either_way(request):
    """Matmuls by compiled code, and by torch."""
    if request.param == "large":
        request.getfixturevalue("large")


@compiles
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("gate", ["fast", "refine", "power_law"])
def test_large_layers_match_the_loop(cell, gate, large):
    assert_like_the_loop(Case(cell, gate, steps=4, batch=18, units=21), COMPILED)


@compiles
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_large_layers_with_lengths_both_directions_and_dt_match_the_loop(cell, large):
    case = Case(cell, "power_law", steps=5, lengths=(2, 5, 4), bidirectional=True, dt=True, units=20)
    assert_like_the_loop(case, COMPILED)


@pytest.fixture
def outside(monkeypatch):
    """Inputs multiplied for some steps at a time, even if they are few."""
    monkeypatch.setattr(recurrence, "MOST_INPUTS", -1)


@compiles
@pytest.mark.parametrize("x86", [True, False])
@pytest.mark.parametrize("gate", ["fast", "refine", "power_law"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "janet"])
def test_what_only_some_processors_do_matches_the_loop_on_all(cell, gate, x86, monkeypatch):
    monkeypatch.setattr(recurrence, "X86", x86)
    dt = gate == "power_law"
    assert_like_the_loop(Case(cell, gate, steps=5, lengths=(2, 5, 4), bidirectional=True, dt=dt, units=20), COMPILED)
    assert_like_the_loop(Case(cell, gate, steps=40, batch=30, units=34), COMPILED)


@compiles
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_inputs_multiplied_a_few_steps_at_a_time_match_the_loop(cell, either_way, outside, monkeypatch):
    monkeypatch.setattr(recurrence, "TOGETHER", 3 * 20 * 4 * 2)  # two steps of three sequences
    case = Case(cell, "power_law", steps=5, lengths=(2, 5, 4), bidirectional=True, dt=True, units=20)
    assert_like_the_loop(case, COMPILED)


@compiles
def test_without_gradients_the_buffer_holds_pre_activations_of_a_few_steps_only(outside, monkeypatch):
    layer = rm.LSTM(3, 8, gate="fast", engine="c++")
    x = torch.randn(50, 4, 3)
    expected, _ = layer(x)
    monkeypatch.setattr(recurrence, "TOGETHER", 4 * 32 * 3)
    sizes = []
    new = recurrence._new
    monkeypatch.setattr(recurrence, "_new", lambda *shape: sizes.append(shape) or new(*shape))
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[0], expected)
    assert max(map(math.prod, sizes)) == 4 * 32 * 3


@compiles
@pytest.mark.parametrize("batch", [64, 65, 129, 230])
def test_many_sequences_match_the_loop(batch):
    assert_like_the_loop(Case("gru", "power_law", steps=3, batch=batch, units=5), COMPILED)


CALL = """
extern "C" void product(float* to, int64_t apart, const float* rows, int64_t rows_apart,
                        const float* also, int64_t also_apart, const float* panels,
                        int64_t many, int64_t inner, int64_t extra, int64_t width) {
    multiply({to, apart}, {rows, rows_apart}, {also, also_apart}, panels, many, inner, extra, width);
}"""


@compiles
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 48),
    st.integers(1, 1300),
    st.integers(0, products.MOST_INPUTS),
    st.integers(1, 150),
    st.integers(0, 3),
)
def test_products_with_panels_are_products(many, inner, extra, width, more):
    functions = compiler.library(joined(compiler.PRODUCTS) + CALL, products.CONSTANTS)
    # Integers: their sums are exact in any order.
    rows, also, matrix = (
        torch.randint(-8, 9, shape).float()
        for shape in ((many, inner + more), (many, extra + more), (inner + extra, width))
    )
    to = torch.full((many, width + more), 7.0)
    panels = products.panels(matrix)
    places = [(ctypes.c_void_p(each.data_ptr()), ctypes.c_int64(each.shape[-1])) for each in (to, rows, also)]
    sizes = map(ctypes.c_int64, (many, inner, extra, width))
    functions.product(*chain(*places), ctypes.c_void_p(panels.data_ptr()), *sizes)
    assert torch.equal(to[:, :width], torch.cat([rows[:, :inner], also[:, :extra]], 1) @ matrix)
    assert (to[:, width:] == 7.0).all()


@compiles
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(1, 50),
    st.integers(0, 50),
    st.integers(1, 90),
    st.booleans(),
    st.booleans(),
)
def test_compiled_sums_of_gradients_are_those_of_torch(steps, rows, units, features, width, has_hidden, reverse):
    # Integers: their sums are exact in any order.
    d_pre, inputs, outputs, hidden = (
        torch.randint(-8, 9, shape).float()
        for shape in ((steps * rows, width), (rows, steps, features), (steps, rows, units), (rows, units))
    )
    terms = (d_pre, inputs.transpose(0, 1), outputs, hidden if has_hidden else None, reverse)
    for found, wanted in zip(weights.compiled_sums(*terms), weights.sums_by_torch(*terms), strict=True):
        assert found.is_contiguous()
        assert torch.equal(found, wanted)


FUNCTIONS = {
    "exponential": (torch.exp, -87, 88),
    "power_of_two": (torch.exp2, -120, 126),
    "binary_logarithm": (torch.log2, 1.7, 1e30),
    "sigmoid": (torch.sigmoid, -80, 80),
    "hyperbolic_tangent": (torch.tanh, -20, 20),
    "hyperbolic_sine_of": (torch.sinh, -10, 10),
    "exponential_less_one": (torch.expm1, -30, 30),
}
"""Functions by their names in C++: reference, and range in which they must be accurate."""


def computed(name, x):
    """The values of a compiled function."""
    text = joined([*compiler.step_sources([])[:2], FUNCTIONS_OF_KERNELS])
    text += f"""
    extern "C" void all(const float* x, float* y, int n) {{
    #pragma GCC ivdep
        for (int i = 0; i < n; ++i) y[i] = {name}(x[i]);
    }}"""
    y = torch.empty_like(x)
    function = compiler.library(text).all
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    function(x.data_ptr(), y.data_ptr(), len(x))
    return y


@compiles
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate_to_float32(name):
    truth, low, high = FUNCTIONS[name]
    x = torch.cat([torch.linspace(low, high, 100_001), torch.logspace(-30, 0, 1001).clamp(low, high)])
    expected = truth(x.double())
    error = ((computed(name, x).double() - expected) / expected).abs()
    # The rounding error of the exponent's product is amplified by the size of the exponent.
    assert error[expected != 0].max() < (2e-5 if name == "power_of_two" else 6e-7)


@compiles
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_inputs_give_nan(name):
    assert computed(name, torch.tensor([float("nan")] * 9)).isnan().all()


@compiles
def test_sequences_are_independent():
    layer = rm.PowerLawLSTM(3, 8, engine="c++")
    x = torch.randn(5, 4, 3)
    expected, _ = layer(x)
    x[2, 1, 0] = float("nan")
    output, _ = layer(x)
    assert output[2:, 1].isnan().all()
    others = [0, 2, 3]
    assert torch.equal(output[:, others], expected[:, others])


@compiles
def test_threads_change_nothing(monkeypatch):
    layer = rm.GRU(3, 24, gate="power_law", engine="c++")
    x = torch.randn(6, 17, 3, requires_grad=True)
    found = []
    for few in (1, 2**30):
        monkeypatch.setattr(recurrence, "FEW", few)
        output, _ = layer(x)
        found.append((output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])))
    assert all(torch.equal(*both) for both in zip(*found, strict=True))


@compiles
def test_without_gradients_the_values_are_the_same():
    layer = rm.LSTM(3, 8, gate="fast", engine="c++", bidirectional=True)
    x = torch.randn(7, 4, 3)
    expected = layer(x)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=0)


@compiles
def test_defaults_of_torch_change_nothing():
    layer = rm.PowerLawLSTM(3, 8, engine="c++")
    x = torch.randn(5, 4, 3)
    expected = layer(x)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = layer(x)
            found[0].sum().backward()
    finally:
        torch.set_default_dtype(before)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


# Tensors whose addresses must not be used.


def gradients(layer, outputs, **more):
    return torch.autograd.grad(outputs.square().sum(), list(layer.parameters()), **more)


@compiles
@pytest.mark.parametrize("units", [8, 200])
def test_gradients_within_autocast_are_those_without(units):
    layer = rm.LSTM(64, units, gate="fast", engine="c++")
    output, _ = layer(torch.randn(4, 3, 64))
    expected = gradients(layer, output, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            found = torch.autograd.grad(output, list(layer.parameters()), 2 * output.detach(), retain_graph=True)
            torch.testing.assert_close(found, expected)


@compiles
@pytest.mark.parametrize("part", ["bias_hh_l0", "weight_hh_l0"])
def test_tensor_subclasses_run_on_another_engine(part):
    layer = rm.LSTM(3, 8, gate="fast")
    x = torch.randn(4, 2, 3)
    expected, _ = layer(x)
    weight = getattr(layer, part).detach()
    with torch.no_grad():
        setattr(layer, part, torch.nn.Parameter(TwoTensor(weight, weight.clone())))
        output, _ = layer(x)
    torch.testing.assert_close(getattr(output, "a", output), expected)


@compiles
def test_a_traced_layer_is_right_for_other_inputs():
    layer = rm.LSTM(3, 8, gate="fast")
    with torch.no_grad():
        recorded = make_fx(lambda x: layer(x)[0])(torch.zeros(4, 2, 3))
        x = torch.randn(4, 2, 3)
        torch.testing.assert_close(recorded(x), layer(x)[0])


HOOKS = {
    "another layout": lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor,
    "another precision": lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor,
}


@compiles
@pytest.mark.parametrize("name", HOOKS)
def test_saved_tensor_hooks_that_change_layout_or_dtype_are_detected(name, either_way):
    layer = rm.LSTM(3, 8, gate="fast", engine="c++")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, HOOKS[name]):
        output, _ = layer(torch.randn(4, 2, 3))
        loss = output.sum()
    with pytest.raises(RuntimeError, match="expected a contiguous float32 tensor on the CPU"):
        loss.backward()
