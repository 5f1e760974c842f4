"""The pages on your own data: their code blocks and commands run, and the script writes the table."""

import re
import shutil
from pathlib import Path

import pytest
from page_code import blocks, run

DOCS = Path(__file__).parents[2] / "docs"


def rows(text):
    """First cells of the table that the script writes."""
    made = text.split("<!-- made by irregular.py -->\n")[1].split("\n<!-- end -->")[0]
    return [line.split("|")[1].strip() for line in made.splitlines()]


@pytest.mark.long
@pytest.mark.slow
def test_what_own_data_says_runs(tmp_path):
    run(tmp_path, "-c", "\n".join(blocks((DOCS / "how-to/own-data.md").read_text("utf-8"), "python")))
    text = (DOCS / "how-to/own-data.md").read_text("utf-8")
    commands = [line.split() for line in re.findall(r"^remanence (.*)$", text, re.MULTILINE)]
    assert ["run", "sines.yaml"] in commands
    assert len(commands) == 5
    for words in [one for one in commands if one[0] in ("run", "inspect")]:
        run(tmp_path, "-m", "remanence", *words)
    assert (tmp_path / "runs/mine/sines/short/summary.json").is_file()


@pytest.mark.long
@pytest.mark.slow
def test_what_the_guide_says_runs_and_its_table_is_the_scripts(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence[report]'")
    shutil.copytree(DOCS / "tutorials", tmp_path / "tutorials")
    run(tmp_path / "tutorials", "-c", "\n".join(blocks((DOCS / "tutorials/irregular.md").read_text("utf-8"), "python")))
    few = ("--seeds", 1, "--epochs", 1, "--train", 64, "--runs", "few", "--page", "tutorials/irregular.md")
    run(tmp_path, DOCS / "irregular.py", *few)
    kept = (DOCS / "tutorials/irregular.md").read_text("utf-8")
    made = (tmp_path / "tutorials/irregular.md").read_text("utf-8")
    assert rows(made) == rows(kept)
    assert len(rows(kept)) == 11
    assert made != kept
    assert (tmp_path / "pictures/irregular.png").stat().st_size > 10_000


def test_the_table_of_the_guide_says_what_the_text_says():
    """Five seeds each; time as an input is better than time in a gate alone, and that than none."""
    text = (DOCS / "tutorials/irregular.md").read_text("utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    found = {row[0]: row for row in cells if "+-" in row[3]}
    errors = {name: [float(one) for one in row[4].split(",")] for name, row in found.items()}
    assert {len(one) for one in errors.values()} == {5}
    with_input = [max(errors[name]) for name, row in found.items() if "input" in row[1]]
    without = [min(errors[name]) for name, row in found.items() if "input" not in row[1]]
    assert max(with_input) < min(without)
    assert errors["rm.LSTM"] == errors["torch.nn.LSTM"]
    assert max(errors["power-law LSTM"]) < min(errors["torch.nn.LSTM without dt"])
