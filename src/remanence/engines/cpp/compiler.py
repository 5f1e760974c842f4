"""C++ to machine code, by the compiler of this machine.

Steps take about a second to compile and are kept on disk, in `kernels` of the cache folder.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..kernels import cache
from ..kernels.compiling import by_one_thread, told
from ..kernels.machine_code import CompilerError
from ..machine import X86

HERE = Path(__file__).parent
PRODUCTS = (HERE / "loops.hpp", HERE / "products.cpp")


def step_sources(cell: Iterable[Path | str], steps: str = "steps.cpp") -> tuple[Path | str, ...]:
    """What the steps of a cell are made of, see `machine_code.cell_sources`."""
    return HERE / "loops.hpp", HERE / "processor.hpp", *cell, HERE / steps


UNCOMPILED = "its steps cannot be compiled"
COMPILERS = ("g++", "c++", "clang++")
OPTIONS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-w")
"""NaN stays NaN, and sums keep their order; that choosing one of two numbers may raise no signal lets
the compiler compute both. What is multiplied and added is so at once, as on a GPU."""
INSTALL = "xcode-select --install" if sys.platform == "darwin" else "apt install g++, or conda install cxx-compiler"
PATIENCE = 120
"""Seconds after which a compiler is taken to be stuck."""


def library(text: str, constants: Mapping[str, Any] | None = None, functions: Sequence[str] = ()) -> ctypes.CDLL:
    """The functions of a source for these constants, loaded.

    Args:
        text: the source.
        constants: what it leaves open, by name.
        functions: names of those that must be there: a kept library without them is compiled again.
    """
    options = [*OPTIONS, *for_this_processor(), *(f"-D{name}={value}" for name, value in (constants or {}).items())]
    name = cache.file_name([text, *options, *made_of()], "so")
    with by_one_thread(name):
        kept = cache.find(name)
        if kept is not None:
            with suppress(CompilerError):
                return _loaded(kept, functions)
            with suppress(OSError):
                kept.unlink()
        with told(), _place() as place:
            file = Path(place) / name
            _compile(text, options, file)
            with suppress(*cache.UNKEPT):
                return _loaded(cache.keep(name, file.read_bytes()), functions)
            return _loaded(file, functions)


def _place() -> tempfile.TemporaryDirectory[str]:
    """Where something is compiled: a temporary folder, or one beside what is kept."""
    problem: Exception | None = None
    for folder in (lambda: None, cache.folder):
        try:
            return tempfile.TemporaryDirectory(dir=folder(), ignore_cleanup_errors=True)
        except cache.UNKEPT as error:
            problem = problem or error
    raise CompilerError(f"expected a folder for temporary files (TMPDIR), got: {problem}")


def _loaded(file: Path, functions: Sequence[str]) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(file))
    except OSError as error:
        raise CompilerError(str(error)) from error
    missing = [name for name in functions if not hasattr(found, name)]
    if missing:
        raise CompilerError(f"expected a library with {missing[0]}, found none in {file}")
    return found


def _compile(text: str, options: Sequence[str], file: Path) -> None:
    """Source to a library, in two goes: in one the compiler would have threads of its own."""
    threads = shared_threads()
    _call("-c", "-x", "c++", "-", "-o", f"{file}.o", *options, *([] if threads is None else ["-fopenmp"]), text=text)
    _call("-shared", f"{file}.o", *([] if threads is None else [threads]), "-o", str(file))


def made_of() -> tuple[str, ...]:
    """What machine code depends on beside source and options: compiler, threads and processor."""
    return (*compiler(), str(shared_threads()), processor())


def because(error: CompilerError) -> str:
    """Why there are no steps, as the end of a sentence."""
    return f"{UNCOMPILED}: {error}"


def _call(*options: str, text: str = "") -> None:
    """Let the compiler do something."""
    command = [compiler()[0], *options]
    try:
        done = _started(command, text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(str(error)) from error
    if done.returncode:
        raise CompilerError(f"{command[0]} says {(done.stderr.strip() or 'nothing').partition(chr(10))[0]}")


def _started(command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
        timeout=PATIENCE,
        check=False,
    )


@lru_cache
def compiler() -> tuple[str, str]:
    """That of the variable CXX, or the first that is found; and which version it is."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        path = shutil.which(name) if name else None
        if path is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                return path, _started([path, "--version"]).stdout
    raise CompilerError(
        f"expected a C++ compiler ({', '.join(COMPILERS)}, or the one that CXX names), found none; {INSTALL}"
    )


def for_this_processor() -> tuple[str, ...]:
    """Options for all that it can do."""
    if X86:
        return ("-march=native", "-mprefer-vector-width=512")
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native" if arm else "-march=native",)


@lru_cache
def shared_threads() -> str | None:
    """The library that torch has its threads of, if compiled code can have them too: GNU's, by GNU's compiler.

    Threads of its own would wait for the processors that torch's threads are on, and the other way round.
    """
    found = threads_of_torch()
    return found if found is not None and "Free Software Foundation" in compiler()[1] else None


@lru_cache
def threads_of_torch() -> str | None:
    """The library of GNU's threads that comes with torch, or the only one there is, if torch has loaded it."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    loaded = {Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line and "omp" in line}
    gnus = [path for path in loaded if path.name.startswith("libgomp")]
    others = [path for path in loaded if path.name.startswith(("libiomp", "libomp"))]
    of_torch = [path for path in gnus if path.is_relative_to(Path(torch.__file__).parent.parent / "torch")]
    candidates = of_torch or ([] if others else gnus)
    return str(candidates[0]) if len(candidates) == 1 else None


@lru_cache
def processor() -> str:
    """What the processor can do: machine code for it may not run on another that shares the cache."""
    with suppress(OSError):
        lines = set(Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines())
        return "\n".join(sorted(line for line in lines if line.lower().startswith(("flags", "features", "model name"))))
    return platform.processor()
