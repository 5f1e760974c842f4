"""The C++ engine under the thread sanitizer: random layers in several threads, no data races.

GNU's OpenMP library, which torch comes with, does not tell the sanitizer how its threads wait for each other. LLVM's
does, through Archer, and runs code that GNU's compiler made: kernels are linked with it instead.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import remanence

GXX = shutil.which("g++")
HERE = Path(__file__).parent
CASES = 60
LLVM = next((path.parent for path in sorted(Path("/usr/lib").glob("llvm-*/lib/libarcher.so"), reverse=True)), None)
COMPILER = """#!/bin/sh
[ "$1" = --version ] && exec {gxx} --version
count=$#
while [ $count -gt 0 ]; do
    case "$1" in *libgomp*) set -- "$@" -L{llvm} -lomp -Wl,-rpath,{llvm} ;; *) set -- "$@" "$1" ;; esac
    shift; count=$((count - 1))
done
exec {gxx} "$@" -O1 -g -fsanitize=thread
"""
RACE = """extern "C" void sum(double* numbers, int count) {
#pragma omp parallel for num_threads(2)
for (int i = 1; i < count; ++i) PLACE += numbers[i];
}"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(GXX is None or LLVM is None, reason="needs g++ and LLVM's OpenMP with Archer (libomp-dev)"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of processes whose kernels are compiled for the sanitizer, and whose threads are watched."""
    folder = tmp_path_factory.mktemp("threads")
    compiler = folder / "sanitizing"
    compiler.write_text(COMPILER.format(gxx=GXX, llvm=LLVM))
    compiler.chmod(0o755)
    watcher = subprocess.run([GXX, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    if not os.path.isabs(watcher.stdout.strip()):
        pytest.skip("no thread sanitizer")
    return os.environ | {
        "CXX": str(compiler),
        "REMANENCE_CACHE": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(Path(remanence.__file__).parents[1]), str(HERE)]),
        "LD_PRELOAD": watcher.stdout.strip(),
        "OMP_TOOL_LIBRARIES": str(LLVM / "libarcher.so"),
        "ARCHER_OPTIONS": "verbose=1",
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1",  # torch is not compiled for it
    }


def run(environment, *words):
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=1500, check=False
    )
    assert "Archer detected OpenMP application with TSan" in done.stdout, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(("place", "reported"), [("numbers[0]", True), ("numbers[i]", False)])
def test_a_race_is_reported_and_nothing_else(environment, place, reported):
    script = f"""
import ctypes, threaded, torch
from remanence.engines.cpp.compiler import library
numbers = torch.zeros(100_000, dtype=torch.float64)
library({RACE.replace("PLACE", place)!r}, functions=["sum"]).sum(ctypes.c_void_p(numbers.data_ptr()), 100_000)
"""
    done = run(environment, "-c", script)
    assert ("ThreadSanitizer: data race" in done.stderr) == reported, done.stderr
    assert (done.returncode != 0) == reported


def test_random_layers_in_several_threads_give_no_report(environment):
    done = run(environment, HERE / "threaded.py", "--cases", str(CASES), "--engine", "c++")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ThreadSanitizer" not in done.stderr
    assert f"'agreed': {CASES}" in done.stdout
    assert list(Path(environment["REMANENCE_CACHE"]).rglob("*.so"))
