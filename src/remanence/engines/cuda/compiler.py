"""Compiles CUDA C++ with NVRTC, which comes with torch.

A kernel takes a fraction of a second to compile and is cached on disk, in `kernels` of the cache folder.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..kernels import cache
from ..kernels.compiling import by_one_thread, told
from ..kernels.machine_code import CompilerError, joined

HERE = Path(__file__).parent
RECURRENT = ("forward", "backward", "whole_forward", "whole_backward", "wide_forward", "wide_backward")
"""Kernels that loop over time."""


def files(name: str, cell: Iterable[Path | str] = ()) -> list[Path | str]:
    """The source files of a kernel, in order.

    Args:
        name: Name of the kernel and its file.
        cell: Sources of the cell, see `machine_code.cell_sources`; for kernels that use one.
    """
    if name == "one_step":
        begin: list[Path | str] = [HERE / "chip.cuh", *cell]
    elif name not in RECURRENT:
        begin = [HERE / "chip.cuh", HERE / "linear.cuh"]
    else:
        begin = [HERE / "chip.cuh", HERE / "numbers.cuh", *cell, HERE / "steps.cuh"]
        begin.append(HERE / ("whole.cuh" if name.startswith("whole") else "kernels.cuh"))
        begin += [HERE / "wide.cuh"] if name.startswith("wide") else []
    return [*begin, HERE / f"{name}.cu"]


def machine_code(name: str, constants: Mapping[str, Any], architecture: str, cell: Iterable[Path | str] = ()) -> bytes:
    """Machine code of a kernel, compiled with these constants.

    Args:
        name: Name of the kernel and its file.
        constants: Preprocessor constants, by name.
        architecture: Architecture of the GPU, such as "sm_90".
        cell: See `files`.
    """
    options = [f"--gpu-architecture={architecture}", "-std=c++17"]
    options += [f"-D{constant}={value}" for constant, value in constants.items()]
    return code_of(joined(files(name, cell)), options)


def code_of(text: str, options: list[str]) -> bytes:
    """Machine code of a source, from the cache or compiled."""
    name = cache.file_name([text, *options, ".".join(map(str, version()))], "cubin")
    with by_one_thread(name):
        code = cache.read(name)
        if code is None:
            with told():
                code = compiled(text, options)
            with suppress(*cache.UNKEPT):
                cache.keep(name, code)
    return code


def compiled(text: str, options: list[str]) -> bytes:
    """Compile a source to a cubin."""
    nvrtc = library()
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"remanence.cu", 0, None, None))
    try:
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), arguments):
            raise CompilerError(_result(nvrtc, "ProgramLog", program).rstrip(b"\n\0").decode(errors="replace"))
        return _result(nvrtc, "CUBIN", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache
def version() -> tuple[int, int]:
    """Version of NVRTC."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@lru_cache
def library() -> ctypes.CDLL:
    """The NVRTC library, as loaded by torch or bundled with it."""
    major = (torch.version.cuda or "").partition(".")[0]
    name = f"libnvrtc.so.{major}"
    for place in _places(name):
        with suppress(OSError):
            for part in sorted(Path(place).parent.glob("libnvrtc-builtins.so*")) if os.sep in place else ():
                ctypes.CDLL(str(part))  # NVRTC looks it up by name and finds the loaded one
            return ctypes.CDLL(place)
    raise CompilerError(f"expected {name}, which comes with torch for CUDA, found none")


def _places(name: str) -> list[str]:
    """Candidate paths of the library: next to torch, where pip installs it, then the system's search path."""
    packages = Path(torch.__file__).parent.parent
    found = [*packages.glob(f"nvidia/*/lib/{name}"), *(packages / "torch" / "lib").glob(name)]
    return [*map(str, found), name]


def _result(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, content))
    return content.raw


def _check(status: int) -> None:
    if status:
        raise CompilerError(f"NVRTC reported error {status}")
