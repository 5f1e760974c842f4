"""The package as a whole: what it imports when it is imported, and what it offers."""

import ast
import importlib.resources
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import remanence as rm

SOURCE = Path(rm.__file__).parent
MODULES = {
    ".".join(("remanence", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in SOURCE.rglob("*.py")
}
every_module = pytest.mark.parametrize("module", sorted(MODULES))

HEAVY = {"scipy", "matplotlib", "sklearn", "lightning", "typer", "rich", "yaml", "pandas"}


def test_importing_the_package_imports_nothing_slow():
    script = (
        "import json, sys, torch; before = set(sys.modules); import remanence; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    new = json.loads(done.stdout)
    assert "remanence.nn.lstm" in new
    assert {name.split(".")[0] for name in new} & HEAVY == set()


def test_type_hints_are_shipped():
    assert importlib.resources.files("remanence").joinpath("py.typed").is_file()
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert "py.typed" in project["tool"]["setuptools"]["package-data"]["remanence"]


@pytest.mark.parametrize(
    "name",
    [
        *("LSTM", "GRU", "JANET", "NRU", "PhasedLSTM", "PowerLawLSTM", "make", "record", "gates", "timescales"),
        *("engines", "LSTMCell", "GRUCell", "JANETCell", "PowerLawLSTMCell"),
    ],
)
def test_public_name(name):
    assert name in rm.__all__
    assert hasattr(rm, name)


@pytest.mark.parametrize("name", ["Chrono", "Uniform", "InverseGamma", "Fixed", "of", "estimate"])
def test_public_name_of_timescales(name):
    assert name in rm.timescales.__all__
    assert hasattr(rm.timescales, name)


@pytest.mark.parametrize("name", ["Sigmoid", "Fast", "Softsign", "Refine", "UniformRefine", "PowerLaw"])
def test_public_gate(name):
    assert name in rm.gates.__all__
    assert issubclass(getattr(rm.gates, name), rm.gates.Gate)


@pytest.mark.parametrize("module", [rm, rm.cells, rm.engines, rm.gates, rm.nn, rm.timescales], ids=lambda m: m.__name__)
def test_whatever_is_announced_exists_once(module):
    assert len(set(module.__all__)) == len(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@every_module
def test_module_has_a_docstring(module):
    assert (ast.get_docstring(ast.parse(MODULES[module].read_text())) or "").strip()


EXCUSED = {"GRUCell", "JANETCell", "LSTMCell"}
"""`rm.LSTMCell` is called as torch's is, and the equation of a cell, which no user touches, as it always was."""


def test_a_name_means_one_class():
    found = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(MODULES[module].read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1 and name not in EXCUSED} == {}


def test_every_room_has_tests_in_make_test(in_make_test):
    """Of the folders collected; where all are, every room has one."""
    assert [folder.name for folder, names in in_make_test.items() if not names] == []
    here = Path(__file__).parent
    if set(in_make_test) >= {folder.parent for folder in here.rglob("test_*.py")}:
        rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
        assert rooms <= {folder.name for folder in in_make_test if folder.parent == here}
