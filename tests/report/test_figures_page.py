"""The page of figures: what docs/figures.py makes of the files under results/, a row for every figure."""

import json
import re
import struct
from pathlib import Path

import pytest

from remanence.experiments import every, find
from remanence.experiments.figures import latest, with_results
from remanence.experiments.judgements import Judgement, judgements
from remanence.report.section import Claim

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/figures.md").read_text("utf-8")
FIGURES = [experiment for experiment in every() if "Figure" in experiment.reproduces]
WORDS = ("holds", "does not hold", "open", "not yet run")
every_figure = pytest.mark.parametrize("experiment", FIGURES, ids=lambda experiment: experiment.id)


@pytest.fixture(scope="module")
def script(docs_script):
    return docs_script("figures")


def section(id):
    return PAGE.split(f"\n## {id}\n")[1].split("\n## ")[0]


def test_the_page_is_what_the_script_makes(script):
    assert script.page() == PAGE, "docs/figures.md is not what the files say; run `python docs/figures.py`"


@every_figure
def test_every_figure_has_a_row_with_its_command_what_was_published_and_a_verdict(experiment):
    (row,) = (line for line in PAGE.splitlines() if line.startswith("|") and f"[{experiment.id}](" in line)
    _, figure, _, published, command, picture, verdict, _ = (cell.strip() for cell in row.split("|"))
    assert experiment.reproduces in figure
    assert all(claim in published for claim in experiment.claims)
    assert command == f"`remanence figure {experiment.id}`"
    words = [word.strip("*") for word in verdict.split(", ")]
    assert set(words) <= set(WORDS)
    assert (verdict == "**not yet run**") == (picture == "-")
    if picture == "-":
        assert "**Verdict: not yet run.**" in section(experiment.id)
    else:
        assert set(re.findall(r"^\* \*\*(.*?)\*\*: ", section(experiment.id), re.MULTILINE)) == set(words)


def test_the_command_of_an_analysis_names_the_seeds_that_it_shows(script):
    analyses = [row for row in script.rows(ROOT / "results") if row.experiment.kind == "analysis" and row.figures]
    assert len(analyses) > 5
    for row in analyses:
        experiment = row.experiment
        result = json.loads((ROOT / "results" / experiment.id / experiment.preset / "result.json").read_text("utf-8"))
        shown = {run["seed"] for run in result["runs"]}
        usual = {seed for need in experiment.needs.values() for seed in find(need.experiment, experiment.preset).seeds}
        (seeds,) = re.findall(
            rf"remanence run {experiment.id} --preset \w+(?: --seeds ([\d,]+))?\n", section(experiment.id)
        )
        assert ({int(seed) for seed in seeds.split(",")} if seeds else usual) == shown


def test_what_the_specification_numbers_as_figures_is_all_there():
    numbers = {
        paper: {
            number
            for experiment in FIGURES
            if experiment.paper == paper
            for part in re.findall(r"Figures? ([A-Z0-9., and]+)", experiment.reproduces)
            for number in re.findall(r"A\.\d|\d+", part)
        }
        for paper in ("plstm", "fastgate", "mts")
    }
    assert numbers["plstm"] >= {"1", "3", "4", "5", "A.1", "A.2", "A.3", "A.4", "A.5"}
    assert numbers["fastgate"] == {str(number) for number in range(1, 7)}
    assert numbers["mts"] == {str(number) for number in range(1, 13)}


def test_results_and_verdicts_go_together():
    assert {id for id, _ in judgements(ROOT / "results")} == set(with_results(ROOT / "results"))


def test_a_result_without_a_verdict_and_a_verdict_without_a_result_are_refused(script, tmp_path):
    (experiment,) = (one for one in FIGURES if one.id == "plstm/fig1-decay")
    with pytest.raises(ValueError, match=r"expected a verdict on plstm/fig1-decay, preset paper"):
        script.row(experiment, ROOT / "results", {})
    judged = {("plstm/fig1-decay", "paper"): Judgement([Claim("So it is.", "not tested here")], "", "")}
    with pytest.raises(ValueError, match=r"expected a verdict on .* of \('holds'"):
        script.row(experiment, ROOT / "results", judged)
    with pytest.raises(
        ValueError, match=r"expected results of plstm/fig1-decay, on which there is a verdict, got none"
    ):
        script.row(experiment, tmp_path, judged)


def test_pictures_are_there_small_and_no_others_are():
    shown = re.findall(r"!\[.*\]\((.*)\)", PAGE)
    linked = re.findall(r"\[\d+\]\((.*?)\)", PAGE)
    assert shown == linked
    files = {f"pictures/figures/{path.name}" for path in (ROOT / "docs/pictures/figures").iterdir()}
    assert set(shown) == files
    for path in files:
        content = (ROOT / "docs" / path).read_bytes()
        assert len(content) < 120_000
        width, _ = struct.unpack(">II", content[16:24])
        assert width <= 1400


def test_links_of_the_overview_lead_to_sections(script):
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert set(re.findall(r"\]\((#.*?)\)", PAGE)) == {script.anchor(heading) for heading in headings}


@pytest.mark.parametrize("experiment", [*FIGURES, find("own/attractors")], ids=lambda experiment: experiment.id)
def test_numbers_in_a_verdict_are_in_the_tables_of_its_section(experiment):
    text = section(experiment.id)
    judgement = judgements(ROOT / "results").get((experiment.id, latest_preset(experiment.id)))
    if judgement is not None and experiment.kind != "training":
        assert judgement.because in text
        rest = text.replace(judgement.because, "")
        assert set(re.findall(r"-?\d+\.\d+", judgement.because)) <= set(re.findall(r"-?\d+\.\d+", rest))


def latest_preset(id):
    return latest(id, ROOT / "results").preset if id in with_results(ROOT / "results") else None


def test_trainings_link_to_their_reasons_on_the_page_of_results(script):
    links = set(re.findall(r"\((results-\w+\.md)(#.*?)\)", PAGE))
    assert links
    for page, place in links:
        headings = re.findall(r"^## (.*)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
        assert place in map(script.anchor, headings)
