"""`remanence figure`: files, output and exit codes."""

import shutil
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from remanence.cli import figure

RESULTS = Path(__file__).parents[2] / "results"

app = typer.Typer(pretty_exceptions_enable=False)
app.command("figure")(figure.command)


def call(*words):
    return CliRunner().invoke(app, list(map(str, words)), env={"NO_COLOR": "1"})


@pytest.fixture
def runs(tmp_path):
    """A folder with results of one simulation and of a training that has only begun."""
    runs = tmp_path / "runs"
    shutil.copytree(RESULTS / "plstm/fig1-decay", runs / "plstm/fig1-decay")
    (runs / "plstm/copy-500/short/lstm/seed-1").mkdir(parents=True)
    return runs


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "plstm_fig1-decay_paper.png"),
        (("--theme", "dark", "--format", "svg"), "plstm_fig1-decay_paper_dark.svg"),
    ],
)
def test_it_draws_and_says_where_and_what_was_published(runs, tmp_path, options, name):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new/folder"
    result = call("plstm/fig1-decay", "--results", runs, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == [name]
    assert f"plstm/fig1-decay: {out / name}" in result.stdout.replace("\n  ", " ")
    assert "published: The power law keeps more than the exponential" in result.stdout


def test_without_an_id_it_draws_all_that_have_results_and_names_those_that_have_only_begun(runs, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "figures"
    result = call("--results", runs, "--out", out)
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == ["plstm_fig1-decay_paper.png"]
    assert "expected results of plstm/copy-500 in" in result.stderr


def test_several_figures_of_an_experiment_have_names_of_their_own():
    assert figure.file_name("mts/dyck2#pairs", "short", "dark", "svg") == "mts_dyck2_short_pairs_dark.svg"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("plstm/fig1-decai",), "did you mean 'plstm/fig1-decay'?"),
        (("plstm/copy-500",), "`remanence run plstm/copy-500 --preset short"),
        (("plstm/fig1-decay", "--preset", "short"), "expected results of plstm/fig1-decay in"),
        (("plstm/fig1-decay", "--preset", "long"), "expected preset to be one of"),
        (("plstm/fig1-decay", "--theme", "grey"), "expected theme to be one of light, dark, got 'grey'"),
        (("plstm/fig1-decay", "--format", "pdf"), "expected format png or svg, got 'pdf'"),
    ],
)
def test_what_cannot_be_drawn_is_answered_in_one_sentence(runs, tmp_path, words, answer):
    out = tmp_path / "figures"
    result = call(*words, "--results", runs, "--out", out)
    assert result.exit_code == 2
    assert answer in result.stderr
    assert result.stderr.startswith("remanence: expected ")
    assert not out.exists()


def test_a_folder_that_is_not_there_or_is_empty_is_answered(tmp_path):
    result = call("--results", tmp_path / "nowhere")
    assert (result.exit_code, "expected a folder of results, got" in result.stderr) == (2, True)
    result = call("--results", tmp_path)
    assert (result.exit_code, "expected results of experiments in" in result.stderr) == (2, True)


def test_a_folder_for_pictures_that_cannot_be_is_answered(runs, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    result = call("plstm/fig1-decay", "--results", runs, "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "expected a folder for the figures, got" in result.stderr


def test_without_matplotlib_it_says_what_to_install(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("plstm/fig1-decay", "--results", runs, "--out", tmp_path / "figures")
    assert result.exit_code == 2
    assert "install it with pip install 'remanence-rnn[report]'" in result.stderr
