"""The package as a whole: what it imports when it is imported, and what it offers."""

import ast
import importlib.resources
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import remanence as rm

SOURCE = Path(rm.__file__).parent
MODULES = {
    ".".join(("remanence", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in SOURCE.rglob("*.py")
}
every_module = pytest.mark.parametrize("module", sorted(MODULES))

HEAVY = {
    *("scipy", "matplotlib", "sklearn", "lightning", "typer", "rich", "yaml", "pandas"),
    *("safetensors", "huggingface_hub", "onnxscript", "onnxruntime"),
}


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
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
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


# What is published.

ROOT = Path(__file__).parents[1]
URL = rm.version.URL
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_distribution_has_the_name_that_hints_say():
    assert PROJECT["name"] == rm.version.DISTRIBUTION
    extras = set(PROJECT["optional-dependencies"])
    texts = [
        path.read_text("utf-8") for path in (*SOURCE.rglob("*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    ]
    hints = {hint for text in texts for hint in re.findall(r"pip install ['\"]([\w.-]+)\[([\w,]+)\]", text)}
    assert len(hints) > 5
    assert {name for name, _ in hints} <= {rm.version.DISTRIBUTION, "."}
    assert {extra for _, named in hints for extra in named.split(",")} <= extras


@pytest.mark.parametrize("name", ["pyproject.toml", "README.md", "CITATION.cff", "CONTRIBUTING.md"])
def test_the_address_of_the_project_is_the_same_everywhere(name):
    text = (ROOT / name).read_text("utf-8")
    found = set(re.findall(r"https://(?:github|raw\.githubusercontent)\.com/([\w-]+/[\w-]+)", text))
    assert found == {URL.removeprefix("https://github.com/")}


def test_links_of_the_readme_are_absolute_and_lead_to_files_of_the_repository():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text("utf-8"))
    bases = f"{URL}/blob/main/", f"{URL.replace('github.com', 'raw.githubusercontent.com')}/main/"
    assert all(link.startswith(bases) for link in links)
    files = [re.sub("|".join(map(re.escape, bases)), "", link) for link in links]
    assert {"docs/index.md", "docs/pictures/what_stays.png"} <= set(files)
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_citation_names_this_version_and_its_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["version"], citation["license"]) == (rm.__version__, PROJECT["license"])
    assert citation["cff-version"] == "1.2.0"
    assert all(entry["authors"] and entry["title"] for entry in (citation, *citation["references"]))


def test_the_workflow_runs_what_must_hold_and_the_tests_elsewhere():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["linux"]["steps"]]
    assert jobs["elsewhere"]["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    (installed,) = [step["run"] for step in jobs["elsewhere"]["steps"] if "pip" in step.get("run", "")]
    assert ".[test]" in installed
    assert "test" in PROJECT["optional-dependencies"]
