"""Tests draw the same numbers whatever runs before them, and others with another base seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRAWING = """
import json, os, random
import numpy, pytest, torch
from hypothesis import given, settings, strategies as st

def drawn():
    return [random.random(), numpy.random.rand(), torch.rand(()).item()]

def keep(name, numbers):
    with open(os.environ["DRAWN"], "a") as file:
        print(json.dumps([name, numbers]), file=file)

@pytest.fixture(scope="module")
def shared():
    return drawn()

def test_one(shared):
    keep("one", [shared, drawn()])

def test_two(shared):
    keep("two", [shared, drawn()])

@settings(max_examples=5, database=None)
@given(st.integers(0, 10**6))
def test_examples(number):
    keep("examples", [number, torch.rand(()).item()])
"""
RUNS = """
import sys, pytest
for arguments in (["one", "two", "examples"], ["two", "examples"], ["two", "one", "examples", "--seed", "1"]):
    tests = [a if a[0] == "-" or a.isdigit() else f"test_drawing.py::test_{a}" for a in arguments]
    code = pytest.main(["-p", "conftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", *tests])
    print(json.dumps(None), file=open(os.environ["DRAWN"], "a"))
    assert not code
"""


@pytest.mark.long
def test_what_a_test_draws_depends_on_its_name_and_the_base_seed_alone(tmp_path):
    (tmp_path / "test_drawing.py").write_text(DRAWING)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    drawn = tmp_path / "drawn"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    known = {**os.environ, "PYTHONPATH": path, "DRAWN": str(drawn), "REMANENCE_TEST_SEED": "0"}
    command = [sys.executable, "-c", f"import json, os\n{RUNS}"]
    done = subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [{}]
    for line in map(json.loads, drawn.read_text().splitlines()):
        if line is None:
            runs.append({})
        else:
            runs[-1].setdefault(line[0], []).append(line[1])
    first, again, other, _ = runs
    assert (again["two"], again["examples"]) == (first["two"], first["examples"])
    assert first["one"][0][0] == first["two"][0][0]  # what they share
    numbers = [number for run in (first, other) for name in ("one", "two") for number in run[name][0][1]]
    numbers += [*first["one"][0][0], *other["one"][0][0]]
    assert len(set(numbers)) == len(numbers) == 18
    assert len({weight for _, weight in first["examples"]}) == 1  # an example fails or does not, however often it runs
    assert other["examples"] != first["examples"]
    assert "base seed: 0" in done.stdout
    assert "base seed: 1" in done.stdout
