"""The package as a whole: what it imports, what it offers, and which room may use which."""

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
    ["LSTM", "GRU", "JANET", "NRU", "PhasedLSTM", "PowerLawLSTM", "make", "record", "gates", "timescales", "engines"],
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


# Rooms from the bottom up, those on one line side by side. A module may import from its own room and from lower lines.
ROOMS = [
    {"files", "names", "table", "version"},
    {"gates"},
    {"cells"},
    {"engines"},
    {"timescales"},
    {"nn"},
    {"data"},
    {"language"},
    {"models"},
    {"tasks"},
    {"training"},
    {"bench", "analysis"},
    {"report"},
    {"experiments"},
    {"cli"},
    {"__init__", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
ONLY = {
    "files": set(),
    "table": set(),
    "names": set(),
    "version": set(),
    "gates": set(),
    "cells": {"gates"},
    "engines": {"files", "names", "gates", "cells"},
    "timescales": {"names", "gates"},
}
"""Rooms that may use less than everything below them."""


def room_of(module):
    """`remanence.nn.lstm` and `remanence.nn` are in nn; the package itself is `__init__`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(module):
    """Absolute names of everything a module imports, wherever in the file."""
    parts = module.split(".")
    package = parts[:-1]  # of `remanence.nn.__init__` too: its own package is remanence.nn
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source == "remanence":  # `from .. import engines`
                yield from (f"remanence.{alias.name}" for alias in node.names)
            else:
                yield source


def test_imports_are_resolved():
    assert "remanence.engines" in set(imports("remanence.nn.recurrent"))
    assert "remanence.gates" in set(imports("remanence.cells.lstm"))
    assert "remanence.cells.base" in set(imports("remanence.cells.lstm"))
    assert "torch" in set(imports("remanence.cells.lstm"))
    assert "remanence.gates.fast" in set(imports("remanence.gates.__init__"))


@every_module
def test_module_imports_downwards_only(module):
    room = room_of(module)
    assert room in LEVEL, f"{room} is no known room: give it a place in ROOMS"
    used = {room_of(name) for name in imports(module) if name.split(".")[0] == "remanence"} - {room}
    assert used <= LEVEL.keys()
    too_high = {other for other in used if LEVEL[other] >= LEVEL[room]}
    assert too_high == set()
    assert used <= ONLY.get(room, used)


@pytest.mark.parametrize("module", [name for name in sorted(MODULES) if room_of(name) in ("gates", "cells")])
def test_equations_import_torch_and_the_standard_library_only(module):
    outside = {name.split(".")[0] for name in imports(module)} - {"remanence"}
    assert outside <= {"torch"} | sys.stdlib_module_names


@pytest.mark.parametrize(
    "module", [name for name in sorted(MODULES) if LEVEL.get(room_of(name), len(ROOMS)) <= LEVEL["nn"]]
)
def test_layers_know_nothing_of_commands_plots_and_file_formats(module):
    outside = {name.split(".")[0] for name in imports(module)}
    assert outside & {"argparse", "typer", "rich", "matplotlib", "plotly", "yaml", "safetensors"} == set()


def test_every_room_has_tests_in_make_test(in_make_test):
    """Of the folders collected; where all are, every room has one."""
    assert [folder.name for folder, names in in_make_test.items() if not names] == []
    here = Path(__file__).parent
    if set(in_make_test) >= {folder.parent for folder in here.rglob("test_*.py")}:
        rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
        assert rooms <= {folder.name for folder in in_make_test if folder.parent == here}
