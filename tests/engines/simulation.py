"""Runs the kernels of `engines.cuda` on the CPU: compiled by the system's C++ compiler for a simulated GPU."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence.engines.cuda import compiler
from remanence.engines.kernels.machine_code import joined

COMPILER = shutil.which("c++")
OPTIMISED = "-Og"
"""Most of a test's time is spent in the compiler."""
CHIP = Path(__file__).parent / "simulated" / "chip.hpp"
STANDARD = CHIP.with_name("standard.hpp")
START = """
extern "C" int simulate(const char* packed, int groups, int cluster, int threads, int shared_bytes, int seed) {{
    return simulated::run({name}, packed, groups, cluster, threads, shared_bytes, seed);
}}
"""
MISTAKES = {
    1: "deadlock: its threads wait for each other forever",
    2: "it sent to a thread block that had exited, or made another mistake",
    3: "it made a memory access that is not aligned",
    4: "it wrote beyond its shared memory",
}


def compiled(folder: Path, name: str, constants: Mapping[str, Any], gate: str = "", forgotten: str = "") -> bytes:
    """Path of a library with the kernel, in place of machine code; the text `forgotten` is removed from its source."""
    _, *headers, kernel = compiler.files(name, gate)
    steps = joined([kernel])
    assert forgotten in steps
    if forgotten:
        steps = steps.replace(forgotten, "")
    text = joined([CHIP, *headers, steps, START.format(name=name)])
    return library(folder, name, text, [f"-D{constant}={value}" for constant, value in constants.items()])


def library(folder: Path, name: str, text: str, options: Sequence[str] = ()) -> bytes:
    """Path of a library compiled from this source."""
    key = hashlib.sha256("\n".join([text, *options]).encode()).hexdigest()[:20]
    path = folder / f"{name}-{key}.so"
    if not path.exists():
        source = path.with_suffix(".cpp")
        source.write_text(text, "utf-8")
        _compile(_standard(folder), ["-shared", *options, str(source), "-o", str(path)])
    return str(path).encode()


def _standard(folder: Path) -> Path:
    """The folder, with the header that every kernel includes and its precompiled form."""
    known = folder / STANDARD.name
    if not known.exists():
        _compile(folder, ["-x", "c++-header", str(STANDARD), "-o", f"{known}.gch"])
        known.write_bytes(STANDARD.read_bytes())
    return folder


def _compile(include: Path, arguments: list[str]) -> None:
    assert COMPILER is not None
    aligned = ("-fsanitize=alignment", "-fno-sanitize-recover=alignment")
    command = [COMPILER, "-std=c++17", OPTIMISED, "-w", *aligned, "-fPIC", f"-I{include}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def stand_in(module: Any, folder: Path, monkeypatch: Any, **forgotten: str) -> None:
    """Let a module launch its kernels on the simulated GPU, each without its `forgotten` text."""

    def machine_code(name: str, constants: Mapping[str, Any], chip: str, gate: str = "") -> bytes:
        return compiled(folder, name, constants, gate, forgotten.get(name, ""))

    monkeypatch.setattr(module, "Kernel", Kernel)
    monkeypatch.setattr(module, "machine_code", machine_code)
    monkeypatch.setattr(module, "architecture", lambda device: "simulated")


class Kernel:
    """Like `driver.Kernel`."""

    seed = 0

    def __init__(
        self, code: bytes, name: str, signature: str, threads: int, cluster: int, shared: int, device: object
    ) -> None:
        self.simulate = ctypes.CDLL(code.decode()).simulate
        self.pack = struct.Struct(f"@{signature}")
        self.sizes = (cluster, threads, shared)

    def start(self, clusters: int, *arguments: float) -> None:
        """Run it to the end."""
        failed = self.simulate(self.pack.pack(*arguments), clusters, *self.sizes, Kernel.seed)
        assert not failed, MISTAKES[failed]
