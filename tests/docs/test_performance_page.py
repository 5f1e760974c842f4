"""The pages on performance: their tables are generated from the files in results/bench."""

import re
from pathlib import Path

import pytest

from remanence import bench

ROOT = Path(__file__).parents[2]
PATHS = (ROOT / "docs/performance.md", *sorted((ROOT / "docs/developers").glob("*.md")))
PAGES = [path.read_text("utf-8") for path in PATHS]
ALL = "\n".join(PAGES)
FILES = sorted(path for path in (ROOT / "results/bench").glob("*.json") if path.stem != "h200-ncu")


@pytest.fixture(scope="module")
def script(docs_script):
    return docs_script("performance")


def test_tables_are_made_from_the_files(script):
    assert sorted(script.PAGES) == sorted(PATHS)
    assert [script.filled(page) for page in PAGES] == PAGES


def test_a_table_typed_by_hand_would_be_noticed(script):
    (page,) = [page for page in PAGES if "<!-- h200-tf32 -->" in page]
    assert script.filled(page.replace("| torch.nn.LSTM |", "| torch.nn.LSTM! |", 1)) == page


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_shown_with_its_command_and_machine(path):
    assert f"<!-- {path.stem} -->" in ALL
    report = bench.load(path)
    assert f"    {report.command}\n" in ALL
    assert report.machine["date"] in ALL
    assert not re.search(r"/(root|home|tmp|work)/", path.read_text("utf-8"))


def test_misses_are_bold(script):
    assert script.shown([0.5, 2.0], lambda value: value >= 1) == "**0.50** / 2.00"
    assert script.shown([None, None], lambda value: True) == "-"
