"""Triton kernels compile for a GPU that this machine need not have; the interpreter accepts more than the compiler."""

from __future__ import annotations

import math
import os
from importlib import import_module
from typing import Any

import pytest

triton = pytest.importorskip("triton")
compiler = pytest.importorskip("triton.compiler")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="Triton is interpreted"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
operator: Any = import_module("remanence.engines.triton.nru.operator")

HOPPER = 232_448
"""Bytes of shared memory that a thread block can have on an H100 or H200."""
NUMBERS = ("step", "T", "B", "H")


def compiled(kernel: Any, constants: dict[str, Any], element: str) -> Any:
    """A kernel for compute capability 9.0, without lengths; tensors of states are float32."""
    from triton.backends.compiler import GPUTarget

    options = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
    constants |= {"lengths": None}
    wide = ("memory", "writes", "norms", "d_hidden", "d_memory", "reach")
    signature = {
        name: "constexpr"
        if name in constants
        else "i32"
        if name in NUMBERS
        else f"*{'fp32' if name in wide else element}"
        for name in kernel.arg_names
    }
    places = {name: (number,) for number, name in enumerate(kernel.arg_names)}
    source = compiler.ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={places[name]: value for name, value in constants.items() if name in places},
        attrs={places[name]: [["tt.divisibility", 16]] for name, kind in signature.items() if kind.startswith("*")},
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(
    ("element", "precision"),
    [pytest.param("fp32", "tf32", id="TF32"), pytest.param("bf16", "tf32", id="bfloat16", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("direction", ["forward_kernel", "backward_kernel"])
@pytest.mark.parametrize("form", ["kept", pytest.param("kernels", marks=pytest.mark.slow)])
def test_kernels_of_the_nru(form: str, direction: str, element: str, precision: str) -> None:
    """At the size of the copy task: 128 units, 64 entries of memory, 4 heads."""
    kind = (4, 16, False, precision, 64)
    if form == "kept":
        constants = operator._kept_constants(*kind, 128)
    else:
        constants = operator._constants(*kind, operator.TILES[0], 128, 128)
    kernel = getattr(import_module(f"remanence.engines.triton.nru.{form}"), direction)
    found = compiled(kernel, constants, element)
    assert "mma.sync" in found.asm["ptx"]
    assert found.metadata.shared <= HOPPER


@pytest.mark.parametrize(("memory", "heads"), [(64, 4), (75, 3)], ids=["factored", "general"])
@pytest.mark.parametrize("kernel", ["rectify_kernel", "rectify_back_kernel", "write_kernel", "write_back_kernel"])
def test_kernels_of_a_wide_nru(kernel: str, memory: int, heads: int) -> None:
    constants = operator._wide_write_constants if kernel.startswith("write") else operator._wide_unit_constants
    named = constants(heads, math.isqrt(heads * memory), False, "tf32", memory, 716)
    found = compiled(getattr(import_module("remanence.engines.triton.nru.wide_kernels"), kernel), named, "fp32")
    assert found.metadata.shared <= HOPPER
