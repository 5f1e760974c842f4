"""Who imports whom in the package: rooms downwards only, and no module itself through others."""

import ast
import sys
from pathlib import Path

import pytest

import remanence as rm

FOLDER = Path(rm.__file__).parent
MODULES = {
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(FOLDER.rglob("*.py"))
}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}
every_module = pytest.mark.parametrize("module", MODULES)

# Rooms from the bottom up, those on one line side by side. A module may import from its own room and from lower lines.
ROOMS = [
    {"files", "names", "printable", "table", "version"},
    {"gates"},
    {"cells"},
    {"engines"},
    {"timescales"},
    {"pretrained"},
    {"nn"},
    {"data"},
    {"language"},
    {"models"},
    {"tasks"},
    {"training"},
    {"bench", "analysis"},
    {"report"},
    {"experiments"},
    {"sweeps"},
    {"cli"},
    {"remanence", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
ONLY = {
    "files": set(),
    "table": set(),
    "names": set(),
    "printable": set(),
    "version": set(),
    "gates": {"names"},
    "cells": {"gates"},
    "engines": {"files", "names", "gates", "cells"},
    "timescales": {"gates"},
}
"""Rooms that may use less than everything below them."""


def room_of(module):
    """`remanence.nn.lstm` and `remanence.nn` are in nn; the package itself is a room of its own."""
    return [*module.split("."), "remanence"][1]


def imports(module, types=True):
    """Absolute names of everything a module imports, wherever in the file.

    A module of the package that is imported by name (`from . import biases`) is named itself, not its folder. Imports
    inside of functions count: they hide a circle from Python, not from the reader. Those that only a type checker sees
    can be left out.
    """
    for node in statements(TREES[module], types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = ".".join(filter(None, [*parents(module, node.level), node.module]))
            inside = [f"{source}.{alias.name}" for alias in node.names]
            yield from {name if name in MODULES else source for name in inside}


def statements(node, types):
    """A node and all in it, with or without what stands under `if TYPE_CHECKING:`."""
    yield node
    unseen = not types and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for child in node.orelse if unseen else ast.iter_child_nodes(node):
        yield from statements(child, types)


def parents(module, level):
    """Names of the folders from the package down to the one that so many dots stand for."""
    parts = module.split(".")
    folder = parts if MODULES[module].name == "__init__.py" else parts[:-1]
    return folder[: len(folder) - level + 1] if level else []


def circles(graph):
    """Groups of modules each of which imports, through others, all of its group."""
    reached = {}
    for module in graph:
        found, ahead = set(), [module]
        while ahead:
            new = graph[ahead.pop()] - found
            found |= new
            ahead.extend(new)
        reached[module] = found
    together = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
    return sorted(sorted(group) for group in together if group)


def test_imports_are_resolved():
    assert "remanence.engines" in set(imports("remanence.nn.recurrent"))
    assert "remanence.nn.biases" in set(imports("remanence.nn.recurrent"))
    assert "remanence.gates" in set(imports("remanence.cells.lstm"))
    assert "remanence.cells.base" in set(imports("remanence.cells.lstm"))
    assert "torch" in set(imports("remanence.cells.lstm"))
    assert "remanence.gates.fast" in set(imports("remanence.gates"))
    assert "remanence.experiments.checkpoints" in set(imports("remanence.cli.inspect"))


def test_imports_for_type_checkers_are_told_from_others():
    name = "remanence.data"
    assert name in set(imports("remanence.tasks.pixels"))
    tree = ast.parse("if typing.TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    import c")
    named = {
        types: [node.names[0].name for node in statements(tree, types) if isinstance(node, ast.Import)]
        for types in (True, False)
    }
    assert named == {True: ["a", "b", "c"], False: ["b", "c"]}


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"f"}}
    assert circles(graph) == [["a", "b", "c"], ["f"]]


@pytest.mark.parametrize("types", [False, True], ids=["when it runs", "for type checkers too"])
def test_no_module_imports_itself_through_others(types):
    found = circles({module: set(imports(module, types)) & MODULES.keys() for module in MODULES})
    assert not found, "these import each other: " + "; ".join(", ".join(group) for group in found)


@every_module
def test_module_imports_downwards_only(module):
    room = room_of(module)
    assert room in LEVEL, f"{room} is no known room: give it a place in ROOMS"
    used = {room_of(name) for name in imports(module) if name.split(".")[0] == "remanence"} - {room}
    assert used <= LEVEL.keys()
    too_high = {other for other in used if LEVEL[other] >= LEVEL[room]}
    assert too_high == set()
    assert used <= ONLY.get(room, used)


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in ("gates", "cells")])
def test_equations_import_torch_and_the_standard_library_only(module):
    outside = {name.split(".")[0] for name in imports(module)} - {"remanence"}
    assert outside <= {"torch"} | sys.stdlib_module_names


@pytest.mark.parametrize("module", [name for name in MODULES if LEVEL.get(room_of(name), len(ROOMS)) <= LEVEL["nn"]])
def test_layers_know_nothing_of_commands_plots_and_file_formats(module):
    outside = {name.split(".")[0] for name in imports(module)}
    known = {"safetensors"} if room_of(module) == "pretrained" else set()  # it is there so that layers need not
    assert outside & {"argparse", "typer", "rich", "matplotlib", "plotly", "yaml", "safetensors"} <= known
