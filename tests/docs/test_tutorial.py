"""The tutorial notebook runs, and what it shows was really printed by its cells."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "tutorials" / "first_model.ipynb"


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(notebook: dict) -> str:
    return "".join("".join(output.get("text", "")) for cell in code_cells(notebook) for output in cell["outputs"])


def pictures(notebook: dict) -> int:
    return sum("image/png" in output.get("data", {}) for cell in code_cells(notebook) for output in cell["outputs"])


@pytest.fixture(scope="module")
def kept() -> dict:
    """The notebook as it is in the repository."""
    return json.loads(NOTEBOOK.read_text("utf-8"))


@pytest.fixture(scope="module")
def run(made_once) -> dict:
    """The notebook after its cells ran here, on one core."""
    for package in ("nbclient", "ipykernel", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'remanence-rnn[docs]'")
    return json.loads((made_once("tutorial", execute) / "run.ipynb").read_text("utf-8"))


def execute(folder):
    done = subprocess.run(
        [sys.executable, DOCS / "tutorial.py", "--out", folder / "run.ipynb"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_every_cell_runs_and_prints_and_draws_as_in_the_repository(run, kept):
    """All but the numbers that depend on how a processor rounds: lines and pictures, not their digits."""
    assert [cell["source"] for cell in run["cells"]] == [cell["source"] for cell in kept["cells"]]
    assert pictures(run) == pictures(kept) > 0
    assert len(printed(run).splitlines()) == len(printed(kept).splitlines())


@pytest.mark.long
@pytest.mark.slow
def test_models_learn_what_the_text_says(run):
    """Set timescales or a power law learn to copy; short timescales do not. Chance is 0.25."""
    shares = {
        name: float(share) for name, share in re.findall(r"^(\w[\w ,]*?) {2,}([01]\.\d\d)$", printed(run), re.MULTILINE)
    }
    assert shares["LSTM"] < 0.4
    assert min(shares["LSTM, timescales set"], shares["fast gate, timescales set"], shares["pLSTM"]) > 0.7


@pytest.mark.long
@pytest.mark.slow
def test_units_that_hold_longest_are_needed_more_than_others(run):
    pattern = r"(LSTM|pLSTM): all units (.*), without the .* that hold longest (.*),\n.* of the others (.*) \+- "
    found = re.findall(pattern, printed(run))
    assert [name for name, *_ in found] == ["LSTM", "pLSTM"]
    assert all(float(without) < float(others) < float(whole) for _, whole, without, others in found)


def test_outputs_in_the_repository_are_whole_and_small(kept):
    assert [cell["execution_count"] for cell in code_cells(kept)] == list(range(1, len(code_cells(kept)) + 1))
    assert not any(output["output_type"] == "error" for cell in code_cells(kept) for output in cell["outputs"])
    assert NOTEBOOK.stat().st_size < 400_000
    assert "/home/" not in json.dumps(kept)


def test_links_of_the_text_lead_to_pages(kept):
    text = "".join("".join(cell["source"]) for cell in kept["cells"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([\w./-]+)\)", text)
    assert links
    assert all((NOTEBOOK.parent / link).is_file() for link in links)
