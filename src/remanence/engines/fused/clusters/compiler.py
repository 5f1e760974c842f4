"""CUDA C++ to machine code, by the compiler that comes with torch.

A kernel takes a fraction of a second to compile and is kept on disk, in `kernels` of the cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ....files import cache_folder, write

RECURRENT = ("chip.cuh", "numbers.cuh", "functions.cuh", "gates.cuh", "cells.cuh", "steps.cuh")
"""What a cell needs that goes from step to step."""
HEADERS = {
    "forward": (*RECURRENT, "kernels.cuh"),
    "backward": (*RECURRENT, "kernels.cuh"),
    "whole_forward": (*RECURRENT, "whole.cuh"),
    "whole_backward": (*RECURRENT, "whole.cuh"),
    "wide_forward": (*RECURRENT, "kernels.cuh", "wide.cuh"),
    "wide_backward": (*RECURRENT, "kernels.cuh", "wide.cuh"),
    "linear_forward": ("chip.cuh", "linear.cuh"),
    "linear_backward": ("chip.cuh", "linear.cuh"),
}
"""What each kernel begins with, in this order."""
UNKEPT = (OSError, RuntimeError)
"""A home that cannot be written to, or a user without one: what is not kept is compiled again the next time."""


class CompilerError(RuntimeError):
    """There is no compiler, or it does not take the kernel."""


def machine_code(name: str, constants: Mapping[str, Any], architecture: str) -> bytes:
    """The kernel of that name for these constants.

    Args:
        name: of the kernel and its file.
        constants: what the source leaves open, by name.
        architecture: of the chip, such as "sm_90".
    """
    options = [f"--gpu-architecture={architecture}", "-std=c++17"]
    options += [f"-D{constant}={value}" for constant, value in constants.items()]
    text = source(name)
    key = "\n".join([text, *options, ".".join(map(str, version()))])
    file = f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.cubin"
    with suppress(*UNKEPT):
        return (folder() / file).read_bytes()
    code = compiled(text, options)
    with suppress(*UNKEPT):
        folder().mkdir(parents=True, exist_ok=True)
        write(folder() / file, code)
    return code


@lru_cache
def source(name: str) -> str:
    """All of a kernel's source."""
    return "\n".join(path.read_text("utf-8") for path in files(name))


def files(name: str) -> list[Path]:
    """Of a kernel, in this order."""
    return [Path(__file__).parent / file for file in (*HEADERS[name], f"{name}.cu")]


def folder() -> Path:
    """Where machine code is kept."""
    return cache_folder() / "kernels"


def compiled(text: str, options: list[str]) -> bytes:
    """Source to machine code."""
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
    """Of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@lru_cache
def library() -> ctypes.CDLL:
    """The compiler, as a library that torch has loaded or brought along."""
    major = (torch.version.cuda or "").partition(".")[0]
    name = f"libnvrtc.so.{major}"
    for place in _places(name):
        with suppress(OSError):
            for part in sorted(Path(place).parent.glob("libnvrtc-builtins.so*")) if os.sep in place else ():
                ctypes.CDLL(str(part))  # the compiler looks for it by name, and finds what is loaded
            return ctypes.CDLL(place)
    raise CompilerError(f"expected {name}, which comes with torch for CUDA, found none")


def _places(name: str) -> list[str]:
    """Where the compiler may be: beside torch, where pip puts it, then wherever the system finds it."""
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
        raise CompilerError(f"the compiler of CUDA kernels reports error {status}")
