"""The page on performance: its tables are what the files under results/bench say."""

import re
from pathlib import Path

import pytest

from remanence import bench

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/performance.md").read_text("utf-8")
FILES = sorted(path for path in (ROOT / "results/bench").glob("*.json") if path.stem != "h200-ncu")


@pytest.fixture(scope="module")
def script(docs_script):
    return docs_script("performance")


def test_tables_are_made_from_the_files(script):
    assert script.filled(PAGE) == PAGE


def test_a_table_typed_by_hand_would_be_noticed(script):
    assert script.filled(PAGE.replace("| torch.nn.LSTM |", "| torch.nn.LSTM! |", 1)) == PAGE


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_shown_with_its_command_and_machine(path):
    assert f"<!-- {path.stem} -->" in PAGE
    report = bench.load(path)
    assert f"    {report.command}\n" in PAGE
    assert report.machine["date"] in PAGE
    assert not re.search(r"/(root|home|tmp|work)/", path.read_text("utf-8"))


def test_misses_are_bold(script):
    assert script.shown([0.5, 2.0], lambda value: value >= 1) == "**0.50** / 2.00"
    assert script.shown([None, None], lambda value: True) == "-"
