"""The command-line reference: every command, argument and option with its help text."""

import re

import pytest
import typer.main

from remanence.cli.main import KNOWN, app


@pytest.fixture(scope="module")
def page(docs_script):
    return docs_script("cli_reference").page()


def sections(page):
    parts = re.split(r"^## remanence (\w+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_has_a_section_in_the_order_of_the_help(page):
    assert list(sections(page)) == list(KNOWN)
    assert all(f"[`remanence {name}`](#remanence-{name})" in page for name in KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_every_option_is_described_as_on_the_command_line(page, name):
    rows = dict(re.findall(r"^\| (`.*?`.*?) \| (.*) \|$", sections(page)[name].replace("\\|", "|"), re.MULTILINE))
    for parameter in typer.main.get_command(app).commands[name].params:
        text = " ".join((parameter.help or "").split())
        if any(option.startswith("-") for option in parameter.opts):
            (row,) = [row for row in rows if set(parameter.opts) <= set(re.findall(r"-[\w-]+", row))]
        else:
            (row,) = [row for row in rows if not row.startswith("`-") and rows[row].startswith(text)]
        assert rows[row].startswith(text)
        assert text
