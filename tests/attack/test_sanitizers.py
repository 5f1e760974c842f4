"""The C++ engine under the address and undefined-behaviour sanitizers: random layers, no reports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import remanence

GXX = shutil.which("g++")
SANITIZE = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
CASES = 60
HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None or sys.platform != "linux", reason="needs g++ on Linux"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of processes whose kernels are compiled with sanitizers, and whose memory is watched."""
    folder = tmp_path_factory.mktemp("sanitized")
    compiler = folder / "sanitizing"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {GXX} --version\nexec {GXX} "$@" {SANITIZE}\n')
    compiler.chmod(0o755)
    libraries = [
        subprocess.run([GXX, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(map(os.path.isabs, libraries)):
        pytest.skip("no sanitizers")
    return os.environ | {
        "CXX": str(compiler),
        "REMANENCE_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(Path(remanence.__file__).parents[1]), str(HERE)]),
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0,verify_asan_link_order=0",  # Python itself leaks
    }


def run(environment, *words):
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=1500, check=False
    )


WRONG = {
    "heap-buffer-overflow": 'extern "C" double wrong(double* numbers, int count) { return numbers[count]; }',
    "signed integer overflow": 'extern "C" int wrong(int* numbers, int count) { return 2147483647 + count; }',
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_reported(environment, kind):
    """So that no report means something."""
    script = f"""
import ctypes, watched, torch
from remanence.engines.cpp.compiler import library
numbers = torch.zeros(1000, dtype=torch.float64)
library({WRONG[kind]!r}, functions=["wrong"]).wrong(ctypes.c_void_p(numbers.data_ptr()), 1000)
"""
    done = run(environment, "-c", script)
    assert done.returncode != 0
    assert kind in done.stderr


def test_random_layers_give_no_report(environment):
    done = run(environment, HERE / "watched.py", "--cases", str(CASES), "--engine", "c++")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr
    assert f"'agreed': {CASES}" in done.stdout
    assert list(Path(environment["REMANENCE_CACHE"]).rglob("*.so"))
