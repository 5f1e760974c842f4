"""Systems other than Linux: nothing needs what only POSIX has, nor Triton, nor a C++ compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import remanence
from remanence.engines.cpp.engine import lacks

SOURCE = Path(remanence.__file__).parents[1]
MISSING = ("fcntl", "grp", "pwd", "resource", "termios", "triton")
WITHOUT = f"""
import os, signal, sys
sys.modules.update(dict.fromkeys({MISSING}))
for name in ("fork", "geteuid", "getloadavg", "getuid", "killpg", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2"):
    delattr(signal, name)
"""
"""What Windows does not have is taken away, before anything else is imported."""
IMPORTS = """
import importlib, json, pkgutil, remanence
failed = {}
for module in pkgutil.walk_packages(remanence.__path__, "remanence."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            failed[module.name] = str(error)
print(json.dumps(failed))
"""
RUNS = """
import warnings
warnings.filterwarnings("ignore", message="only soft file lock is available")
from remanence.cli.main import main
main()
"""


def fresh_process(code, *words, **environment):
    """Python without all that."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        check=False,
    )


@pytest.mark.long
def test_every_module_but_the_kernels_of_triton_is_imported():
    done = fresh_process(IMPORTS)
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout)
    assert {name: why for name, why in failed.items() if not name.startswith("remanence.engines.triton.")} == {}
    assert all("triton" in why for why in failed.values())


@pytest.mark.long
def test_an_experiment_runs_and_is_not_run_again(tmp_path):
    words = ["run", "plstm/copy-200", "--preset", "smoke", "--models", "plstm", "--seeds", "1", "--device", "cpu"]
    small = [word for value in ("train.epochs=1", "task.train_size=64", "task.delay=3") for word in ("--set", value)]
    for _ in range(2):
        done = fresh_process(RUNS, *words, *small, "--out", tmp_path, PATH="", CXX="", REMANENCE_CACHE=str(tmp_path))
        assert done.returncode == 0, done.stderr
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text("utf-8"))


def test_the_engine_of_compiled_steps_is_not_for_windows(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert lacks() == "it does not support Windows"


def test_what_is_taken_away_is_gone():
    done = fresh_process("import os; print(hasattr(os, 'fork'), sys.modules['fcntl'])")
    assert done.stdout.split() == ["False", "None"]
