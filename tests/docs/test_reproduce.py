"""The reproduction guide: every id that `remanence list` shows, and what the script makes of the experiments."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from remanence.cli.main import app
from remanence.experiments import IDS, every

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reproduce.md").read_text("utf-8")


@pytest.fixture(scope="module")
def script(docs_script):
    return docs_script("reproduce")


def test_the_page_is_what_the_script_makes(script):
    assert script.page(PAGE, every()) == PAGE, "docs/reproduce.md is not what the experiments say; run `make results`"


def test_the_page_has_the_ids_that_the_command_lists():
    listed = CliRunner().invoke(app, ["list"], env={"COLUMNS": "300"})
    assert listed.exit_code == 0
    shown = [word for line in listed.output.splitlines() for word in line.split()[:1] if word in IDS]
    in_tables = re.findall(r"`remanence (?:run|show) (\w+/[\w.-]+)`", PAGE.split("## Every table and figure")[1])
    assert in_tables == shown == list(IDS)


def test_commands_in_the_text_name_experiments_that_exist():
    assert set(re.findall(r"remanence (?:run|show) (\w+/[\w.-]+)", PAGE)) <= set(IDS)


def test_results_are_linked_where_there_are_some(script):
    links = set(re.findall(r"(results-\w+\.md)#([\w-]+)", PAGE))
    assert links
    for page, place in links:
        headings = re.findall(r"^## (.*)$", (DOCS / page).read_text("utf-8"), re.MULTILINE)
        assert place in map(script.anchor, headings)
