"""The examples in docstrings run, and every public layer, gate, model and function of these packages has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
import torch

API = Path(__file__).parents[2] / "docs" / "api"
PACKAGES = sorted(page.stem for page in API.glob("*.md") if page.stem != "index")
WITH_EXAMPLES = ("nn", "gates", "timescales", "models", "pretrained")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def public(package):
    """Public classes and functions of a package by name."""
    module = importlib.import_module(f"remanence.{package}")
    names = {name: vars(module)[name] for name in module.__all__}
    return {name: thing for name, thing in names.items() if inspect.isclass(thing) or inspect.isfunction(thing)}


def docstrings(name, thing):
    """Docstrings of a class, its own methods and properties, or of a function, by name."""
    yield name, inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        for own, member in vars(thing).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if not own.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{own}", inspect.getdoc(function) or ""


EXAMPLES = {
    f"{package}.{where}": text
    for package in PACKAGES
    for name, thing in public(package).items()
    for where, text in docstrings(name, thing)
    if ">>>" in text
}


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for examples that write files
    torch.manual_seed(0)


@pytest.mark.parametrize("where", EXAMPLES)
def test_example_of_a_docstring_prints_what_it_says(where):
    test = doctest.DocTestParser().get_doctest(EXAMPLES[where], {}, where, None, 0)
    report = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("package", WITH_EXAMPLES)
def test_every_public_class_and_function_has_an_example(package):
    missing = [name for name, thing in public(package).items() if name not in NO_EXAMPLE and not shown(package, name)]
    assert not missing


def shown(package, name):
    return any(where in EXAMPLES for where in (f"{package}.{name}", *related(package, name)))


def related(package, name):
    return (where for where in EXAMPLES if where.startswith(f"{package}.{name}."))


NO_EXAMPLE = {
    *("RecurrentCell", "Timescales", "Forgetting"),  # base classes and results, which other examples show
    *("Activations", "LayerActivations", "Loss", "Exported"),
}
