"""Compiles C++ with the compiler of this machine.

Steps take about a second to compile and are cached on disk, in `kernels` of the cache folder.
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
PRODUCTS = (HERE / "loops.hpp", HERE / "products.cpp", HERE / "weights.cpp")


def step_sources(cell: Iterable[Path | str], steps: str = "steps.cpp") -> tuple[Path | str, ...]:
    """The source files of the steps of a cell, see `machine_code.cell_sources`."""
    return HERE / "loops.hpp", HERE / "processor.hpp", *cell, HERE / steps


UNCOMPILED = "its steps cannot be compiled"
COMPILERS = ("g++", "c++", "clang++")
OPTIONS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-w")
"""NaN inputs give NaN outputs, and sums keep their order. Without traps the compiler may compute both sides of a
conditional. Multiply-adds are fused (FMA), as on a GPU."""
SCHEDULED = ("-fno-tree-pre", "-fno-thread-jumps", "-fschedule-insns", "-fsched-pressure")
"""Options for GNU's compiler on x86. Without the first two it copies what follows a clamp for clamped values, which
takes several comparisons per clamp once it is vectorised; the other two let independent operations overlap."""
INSTALL = "xcode-select --install" if sys.platform == "darwin" else "apt install g++, or conda install cxx-compiler"
PATIENCE = 120
"""Timeout of the compiler in seconds."""


def library(text: str, constants: Mapping[str, Any] | None = None, functions: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile a source with these constants, or take it from the cache, and load it as a library.

    Args:
        text: Source code.
        constants: Preprocessor constants, by name.
        functions: Names of required functions. A cached library without them is compiled again.
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
    """A folder to compile in: a temporary one, or one in the cache folder."""
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
        raise CompilerError(f"expected a library with {missing[0]}, but {file} does not have it")
    return found


def _compile(text: str, options: Sequence[str], file: Path) -> None:
    """Compile and link a shared library, in two calls: in one the compiler would link its own OpenMP library."""
    threads = shared_threads()
    _call("-c", "-x", "c++", "-", "-o", f"{file}.o", *options, *([] if threads is None else ["-fopenmp"]), text=text)
    _call("-shared", f"{file}.o", *([] if threads is None else [threads]), "-o", str(file))


def made_of() -> tuple[str, ...]:
    """What machine code depends on besides source and options: compiler, OpenMP library and CPU."""
    return (*compiler(), str(shared_threads()), processor())


def because(error: CompilerError) -> str:
    """Why steps cannot be compiled, as the end of a sentence."""
    return f"{UNCOMPILED}: {error}"


def _call(*options: str, text: str = "") -> None:
    """Call the compiler."""
    command = [compiler()[0], *options]
    try:
        done = _started(command, text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(str(error)) from error
    if done.returncode:
        raise CompilerError(f"{command[0]} failed: {(done.stderr.strip() or 'no message').partition(chr(10))[0]}")


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
    """Path and version of the compiler: the one that CXX names, or the first that is found."""
    for name in (os.environ.get("CXX"), *COMPILERS):
        path = shutil.which(name) if name else None
        if path is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                return path, _started([path, "--version"]).stdout
    raise CompilerError(
        f"expected a C++ compiler ({', '.join(COMPILERS)}, or the one that CXX names), found none; {INSTALL}"
    )


def for_this_processor() -> tuple[str, ...]:
    """Compiler options for all instructions of this CPU."""
    if X86:
        return ("-march=native", "-mprefer-vector-width=512", *(SCHEDULED if is_gnu() else ()))
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return ("-mcpu=native" if arm else "-march=native",)


@lru_cache
def shared_threads() -> str | None:
    """Path of torch's OpenMP library, if compiled code can share its threads: GNU's libgomp, with GNU's compiler.

    A second thread pool would compete with torch's threads for the cores.
    """
    found = threads_of_torch()
    return found if found is not None and is_gnu() else None


def is_gnu() -> bool:
    """Whether the compiler is GNU's."""
    return "Free Software Foundation" in compiler()[1]


@lru_cache
def threads_of_torch() -> str | None:
    """Path of the libgomp that torch has loaded: the one bundled with torch, or the only OpenMP library there is."""
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
    """Model and features of the CPU: its machine code may not run on another CPU that shares the cache folder."""
    with suppress(OSError):
        lines = set(Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines())
        return "\n".join(sorted(line for line in lines if line.lower().startswith(("flags", "features", "model name"))))
    return platform.processor()
