"""Tutorials, how-to guides and explanations: every block of code that they show runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    """Language and text of every fenced block of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def file_of(text):
    """The file that a block is to be saved as, which its first line names."""
    named = re.match(r"# ([\w./-]+\.(?:py|yaml))\n", text)
    return named and named[1]


def follow(page, folder):
    """Save the files of a page, run its Python as one script, then its `remanence` commands. Gives what was printed."""
    found = blocks(page)
    for _, text in found:
        if name := file_of(text):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    script = "\n".join(text for language, text in found if language == "python" and not file_of(text))
    printed = run(folder, "-c", script)
    commands = [line for language, text in found if language == "bash" for line in text.splitlines()]
    for command in commands:
        program, *words = shlex.split(command)
        if program == "remanence":
            printed += run(folder, "-m", "remanence", *words)
    return printed


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
def test_a_gate_can_be_taken_from_idea_to_kernel(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence-rnn[report]'")
    printed = follow("tutorials/own_gate.md", tmp_path)
    losses = dict(re.findall(r"^(\w+) +\d+ updates, validation loss (\S+)$", printed, re.MULTILINE))
    assert float(losses["stretched"]) < 0.02 < 0.1 < float(losses["lstm"])
    assert (tmp_path / "remanence.png").stat().st_size > 10_000
    assert (tmp_path / "runs/mine/stretched/short/summary.json").is_file()
