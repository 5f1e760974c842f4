"""Tutorials, how-to guides and explanations: every block of code that they show runs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_code import all_blocks, run

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    """Language and code of every block of a page."""
    return all_blocks((DOCS / page).read_text("utf-8"))


def file_of(text):
    """The file that a block is to be saved as, which its first line names."""
    named = re.match(r"# ([\w./-]+\.(?:py|yaml))\n", text)
    return named and named[1]


def follow(page, folder):
    """Save the files of a page, then run its Python and its `remanence` commands in order, as one script.

    Gives what was printed.
    """
    script = ["import subprocess, sys"]
    for language, text in blocks(page):
        if name := file_of(text):
            (folder / name).write_text(text, "utf-8")
        elif language == "python":
            script.append(text)
        elif language == "bash":
            for command in map(shlex.split, text.splitlines()):
                assert command[0] == "remanence"
                words = ["-W", "ignore", "-m", *command]
                script.append(f"subprocess.run([sys.executable, *{words}], check=True)")
    return run(folder, "-W", "ignore", "-u", "-c", "\n".join(script))


@pytest.mark.long
@pytest.mark.slow
def test_a_gate_can_be_taken_from_idea_to_kernel(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence-rnn[report]'")
    printed = follow("tutorials/own_gate.md", tmp_path)
    losses = dict(re.findall(r"^(\w+) +\d+ updates, validation loss (\S+)$", printed, re.MULTILINE))
    assert float(losses["stretched"]) < 0.02 < 0.1 < float(losses["lstm"])
    assert (tmp_path / "remanence.png").stat().st_size > 10_000
    assert (tmp_path / "runs/mine/stretched/short/summary.json").is_file()


@pytest.mark.long
@pytest.mark.slow
def test_a_language_model_keeps_the_timescales_that_were_set(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence-rnn[report]'")
    printed = follow("tutorials/language_model.md", tmp_path)
    assert float(re.search(r"rank correlation of set and measured timescales (\S+)", printed)[1]) > 0.8
    perplexities = re.findall(r"^epoch \d: validation perplexity (\S+)$", printed, re.MULTILINE)
    assert float(perplexities[-1]) < 1723 / 4  # of the size of the vocabulary
    assert (tmp_path / "traces.png").stat().st_size > 10_000


@pytest.mark.long
@pytest.mark.parametrize("page", ["forgetting", "kernels", pytest.param("repeatable", marks=pytest.mark.slow)])
def test_what_an_explanation_shows_runs(page, tmp_path):
    assert follow(f"explanation/{page}.md", tmp_path)


# How-to guides for contributors: files to write, changes as diffs, commands. Followed word for word in a copy.

HOW_TO = sorted(path.stem for path in (DOCS / "how-to").glob("add-a*.md"))
COPIED = ("src", "tests", "docs", "results", "pyproject.toml")


def change(folder, diff):
    """Apply a diff by what its lines say: the lines of a hunk that are there must be in the file, once."""
    for part in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@.*\n", part, flags=re.MULTILINE)
        path = folder / head.split("\n")[0]
        text = path.read_text("utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            assert text.count(old) == 1, f"{path.name} should have this once:\n{old}"
            text = text.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
        path.write_text(text, "utf-8")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TO)
def test_a_contributor_can_follow_the_page(page, tmp_path):
    for name in COPIED:
        source = DOCS.parent / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    found = blocks(f"how-to/{page}.md")
    for language, text in found:
        if language == "diff":
            change(tmp_path, text)
        elif name := file_of(text):
            assert not (tmp_path / name).exists()
            (tmp_path / name).write_text(text.split("\n", 1)[1] if name.endswith(".py") else text, "utf-8")
    commands = [line for language, text in found if language == "bash" for line in text.splitlines()]
    assert any("pytest" in command for command in commands)
    for command in commands:
        program, *words = shlex.split(command)
        if program == "ruff" and shutil.which("ruff", path=Path(sys.executable).parent) is None:
            continue
        call = words if program == "python" else ["-m", program, *words]
        done = subprocess.run(
            [sys.executable, *call],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("page", HOW_TO)
def test_a_page_for_contributors_says_how_long_it_takes_and_is_in_the_index(page):
    text = (DOCS / f"how-to/{page}.md").read_text("utf-8")
    assert re.search(r"^\*\*Time:\*\* from a clean clone with the environment installed, \d+ minutes?\b", text, re.M)
    assert f"(docs/how-to/{page}.md)" in (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8")


# Pictures by scripts without matplotlib.


@pytest.mark.parametrize("name", ["kernels", "house"])
def test_drawings_are_what_their_script_draws(name, tmp_path):
    run(DOCS / "pictures", f"{name}.py", "--out", str(tmp_path))
    drawn = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert drawn
    for file, content in drawn.items():
        kept = (DOCS / "pictures" / file).read_text("utf-8")
        assert content == kept, f"docs/pictures/{file} is old: run python docs/pictures/{name}.py"


@pytest.mark.long
@pytest.mark.slow
def test_remanence_curves_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence-rnn[report]'")
    run(DOCS / "pictures", "forgetting.py", "--out", str(tmp_path))
    text = (DOCS / "explanation/forgetting.md").read_text("utf-8")
    drawn = {path.name for path in tmp_path.iterdir()}
    assert len(drawn) == 3
    assert all(f"(../pictures/{name})" in text and (DOCS / "pictures" / name).is_file() for name in drawn)
