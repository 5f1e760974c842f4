"""`remanence demo`: what it prints, writes, and with which exit code."""

import shutil
import sys

import pytest
import typer
from typer.testing import CliRunner

from remanence.cli import demo

app = typer.Typer(pretty_exceptions_enable=False)
app.command("demo")(demo.command)

pytestmark = pytest.mark.long


def call(*words):
    return CliRunner().invoke(app, ["--quick", *map(str, words)], env={"NO_COLOR": "1"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished demo: its folder and its output."""
    out = tmp_path_factory.mktemp("runs")
    return out, call("--out", out)


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of a finished demo, which may be changed."""
    return shutil.copytree(finished[0], tmp_path / "runs")


def test_it_introduces_the_task_trains_and_reports(finished):
    out, result = finished
    assert result.exit_code == 0, result.output
    shown = result.stdout.splitlines()
    assert shown[0].startswith("The task: 10 random numbers")
    rows = [line for line in shown if line.startswith(("LSTM  ", "fast-gate LSTM  ", "pLSTM  "))]
    assert [row.split()[-1].isdigit() for row in rows] == [True] * 3
    folder = out / "own" / "demo" / "smoke"
    assert f"Results: {folder}" in shown
    assert f"Picture: {folder / 'learning.png'}" in shown
    assert (folder / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert f"Report: {folder / 'report.html'}" in shown
    page = (folder / "report.html").read_text("utf-8")
    for words in ("The task: 10 random numbers", "pLSTM was still off by", "own/demo", "single runs"):
        assert words in page
    assert (folder / "summary.json").is_file()
    for model in ("lstm", "fast", "plstm"):
        for seed in (1, 2):
            assert (folder / model / f"seed-{seed}" / "result.json").is_file()
    assert "pLSTM, seed 2: not solved after 10 updates" in result.stderr


def test_a_finished_demo_is_shown_again(finished):
    out, before = finished
    result = call("--out", out)
    assert (result.exit_code, result.stdout, result.stderr) == (0, before.stdout, "")


def test_it_resumes(finished, copied):
    run = copied / "own" / "demo" / "smoke" / "fast" / "seed-2"
    (run / "result.json").unlink()
    result = call("--out", copied)
    assert result.exit_code == 0, result.output
    assert "fast-gate LSTM, seed 2: not solved after 10 updates" in result.stderr
    assert "seed 1" not in result.stderr
    there = finished[0] / "own" / "demo" / "smoke" / "fast" / "seed-2"
    assert (run / "metrics.jsonl").read_bytes() == (there / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("missing", "what", "other"), [("matplotlib", "Picture", "Report"), ("jinja2", "Report", "Picture")]
)
def test_a_missing_package_for_figures_or_reports_is_named_and_the_rest_still_works(
    finished, monkeypatch, missing, what, other
):
    monkeypatch.setitem(sys.modules, missing, None)
    result = call("--out", finished[0])
    assert result.exit_code == 0
    ends = result.stdout.splitlines()[-3:]
    assert f"No {what.lower()}: {missing} is not installed (pip install 'remanence-rnn[report]')" in ends
    assert any(line.startswith(f"{other}: {finished[0]}") for line in ends)
    assert ends[-1].startswith("Results: ")


def test_without_plotly_the_page_has_static_figures_and_says_so(copied, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    result = call("--out", copied)
    assert result.exit_code == 0
    page = (copied / "own" / "demo" / "smoke" / "report.html").read_text("utf-8")
    assert "plotly is not installed" in page
    assert 'src="data:image/svg+xml' in page


def test_runs_of_another_configuration_give_one_sentence(copied):
    config = copied / "own" / "demo" / "smoke" / "lstm" / "seed-1" / "config.yaml"
    config.write_text(config.read_text().replace("hidden_size: 8", "hidden_size: 9"))
    config.with_name("SHA256SUMS").unlink()  # else it would be damage, which is mended
    result = call("--out", copied)
    assert result.exit_code == 2
    assert result.stderr.startswith("remanence: expected layer.hidden_size to be 9")
