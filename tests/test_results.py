"""The page of results: what docs/results.py makes of the files under results/, and nothing else."""

import json
import math
import re
import shutil
import statistics
from pathlib import Path

import pytest
import yaml
from scipy import stats

from remanence.experiments import registry, results
from remanence.table import mean_and_std

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/results.md").read_text("utf-8")
SUMMARIES = sorted((ROOT / "results").glob("*/*/*/summary.json"))
ANALYSES = [
    path for path in (ROOT / "results").glob("*/*/*/result.json") if not path.with_name("summary.json").exists()
]
every_experiment = pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: "-".join(path.parts[-4:-1]))


@pytest.fixture(scope="module")
def script(docs_script):
    return docs_script("results")


def identity(path: Path) -> tuple[str, str]:
    """Id and preset of a summary."""
    paper, name, preset, _ = path.parts[-4:]
    return f"{paper}/{name}", preset


def section(path: Path) -> str:
    id, preset = identity(path)
    return PAGE.split(f"\n## {id}, preset {preset}\n")[1].split("\n## ")[0]


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of a text, every row by heading."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        headings, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(headings, row, strict=True)) for row in rows])
    return found


def runs(path: Path, model: str) -> list[Path]:
    return sorted((path.parent / model).glob("seed-*"), key=lambda run: int(run.name.removeprefix("seed-")))


def validation(run: Path, score: str) -> dict[int, float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    return {line["update"]: line["validation"][score] for line in lines}


def test_the_page_is_what_the_script_makes(script):
    assert script.page() == PAGE, "docs/results.md is not what the files say; run `make results`"


def test_every_result_has_a_section_a_verdict_and_a_picture():
    verdicts = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    assert SUMMARIES
    judged = {(id, preset) for id, presets in verdicts.items() for preset in presets}
    assert judged == {*map(identity, SUMMARIES), *map(identity, ANALYSES)}
    for path in SUMMARIES:
        (picture,) = re.findall(r"!\[.*\]\((.*)\)", section(path))
        assert (ROOT / "docs" / picture).stat().st_size < 80_000


def test_links_of_the_overview_lead_to_sections(script):
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    links = re.findall(r"\]\((#.*?)\)", PAGE)
    assert set(links) == {script.anchor(heading) for heading in headings}
    figures = re.findall(r"^## (.*)$", (ROOT / "docs/figures.md").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\]\(figures\.md(#.*?)\)", PAGE)) <= {script.anchor(heading) for heading in figures}


def test_run_folders_hold_only_what_is_to_be_kept():
    kept = {"config.yaml", "metrics.jsonl", "result.json", "machine.json", "times.jsonl", "summary.json"}
    files = [path for folder in {path.parent for path in SUMMARIES} for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} == kept
    assert {path.name for analysis in ANALYSES for path in analysis.parent.iterdir()} == {"result.json"}


def test_results_are_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*")) < 25_000_000


@every_experiment
def test_a_summary_is_what_its_runs_say(path):
    experiment = registry.find(*identity(path))
    assert results.summary(experiment, results.outcomes(ROOT / "results", experiment)) == json.loads(path.read_text())


@every_experiment
def test_scores_in_the_table_are_those_in_the_files(path):
    id, preset = identity(path)
    experiment = registry.find(id, preset)
    report = experiment.report
    table = tables(section(path))[0]
    assert {row["model"] for row in table} == {
        f"`{folder.name}`" for folder in path.parent.iterdir() if folder.is_dir()
    }
    for row in table:
        model = row["model"].strip("`")
        found = [json.loads((run / "result.json").read_text("utf-8")) for run in runs(path, model)]
        scale = 100 if report.unit == "%" else 1
        scores = [(each["test"] if report.split == "test" else each["best"])[report.score] * scale for each in found]
        failed = [
            each["status"] in ("failed", "diverged") or each["best"][report.score] < (report.failed or -math.inf)
            for each in found
        ]
        good = [score for score, bad in zip(scores, failed, strict=True) if not bad]
        (heading,) = (name for name in row if name.startswith(report.split))

        def shown(value):
            return f"{value:.{report.digits}f}"

        assert row["parameters"].replace(",", "") == str(found[0]["parameters"])
        assert (row["runs"], row["failed"]) == (str(len(found)), str(sum(failed)))
        assert row[heading] == mean_and_std(good, report.digits)
        marked = [shown(score) + "!" * bad for score, bad in zip(scores, failed, strict=True)]
        assert row["single runs"] == ", ".join(marked)
        number = experiment.published.get(report.score, {}).get(model)
        assert row["published"].split(" +- ")[0] == (shown(number.mean) if number else "-")
        if number:
            assert float(row["difference"]) == pytest.approx(statistics.fmean(good) - number.mean, abs=0.006)
        curves = [validation(run, report.score) for run in runs(path, model)]
        if report.late:
            late = [results.late(run, report.score) * scale for run in runs(path, model)]
            assert row["mean of the last fifth"] == mean_and_std(
                [value for value, bad in zip(late, failed, strict=True) if not bad], report.digits
            )
        if report.reach is not None:
            first = [min((at for at in curve if curve[at] >= report.reach), default=None) for curve in curves]
            reaching = [at for at in first if at is not None]
            assert row[f"updates to {100 * report.reach:g} %"].startswith(
                f"{statistics.fmean(reaching):.0f}" if reaching else f"none of {len(found)}"
            )


@every_experiment
def test_scores_on_the_way_are_those_in_the_files(path):
    report = registry.find(*identity(path)).report
    for row in tables(section(path))[1]:
        (_, model), *marks = row.items()
        curves = [validation(run, report.score) for run in runs(path, model.strip("`"))]
        for mark, shown in marks:
            if mark == "mean of the last fifth":
                here = [
                    statistics.fmean(value for at, value in curve.items() if at > 0.8 * max(curve)) for curve in curves
                ]
            else:
                here = [curve[max(at for at in curve if at <= int(mark.replace(",", "")))] for curve in curves]
            assert shown == f"{statistics.fmean(here) * (100 if report.unit == '%' else 1):.{report.digits}f}"


@every_experiment
def test_numbers_in_a_verdict_are_in_the_tables(path):
    text = section(path)
    (verdict,) = re.findall(r"\*\*Verdict\.\*\* (.*)", text)
    in_tables = set(re.findall(r"\d+\.\d+", "".join(re.findall(r"^\|.*\n", text, re.MULTILINE))))
    assert set(re.findall(r"\d+\.\d+", verdict)) <= in_tables


def test_accuracy_by_longest_dependency_is_that_in_the_files():
    path = ROOT / "results/mts/dyck2/short/summary.json"
    (table,) = (one for one in tables(section(path)) if "test accuracy, %, by bin" in one[0])
    assert len(table) == 9
    for row in table:
        score = f"accuracy_{row['test accuracy, %, by bin'].replace(' to ', '_')}"
        values = {
            model: [
                100 * json.loads((run / "result.json").read_text("utf-8"))["test"][score] for run in runs(path, model)
            ]
            for model in ("baseline", "mts")
        }
        for model, each in values.items():
            assert row[f"`{model}`"] == mean_and_std(each, 2)
        apart = statistics.fmean(values["mts"]) - statistics.fmean(values["baseline"])
        assert row["mts minus baseline"] == f"{apart:+.2f}"


def test_a_closing_analysis_and_what_else_was_published_are_in_the_section():
    found = tables(section(ROOT / "results/mts/ptb/short/summary.json"))
    rows = [row for table in found for row in table]
    assert any(row.get("model") == "mts" and row.get("<100") == "2786.66" for row in rows)
    assert any(row.get("quantity") == "perplexity, under 100 times" and row["published"] == "2100.89" for row in rows)


def test_every_claim_on_an_analysis_is_in_the_last_table():
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    (table,) = tables(PAGE.split("## Analyses and simulations")[1])
    expected = {
        (id, preset, one["claim"], f"**{one['verdict']}**")
        for id, preset in map(identity, ANALYSES)
        for one in written[id][preset]["claims"]
    }
    assert {
        (row["experiment"][1:].split("]")[0], row["preset"], row["claim"], row["verdict"]) for row in table
    } == expected


COPYING = ROOT / "results/plstm/copy-200/short/summary.json"
short_copying = pytest.mark.skipif(not COPYING.exists(), reason="replaced by longer runs")


@short_copying
def test_the_crossing_that_the_verdict_on_copying_names():
    path = COPYING
    curves = {model: [validation(run, "accuracy") for run in runs(path, model)] for model in ("plstm", "lstm-chrono")}
    updates = sorted(curves["plstm"][0])
    ours, theirs = ([statistics.fmean(run[at] for run in each) for at in updates] for each in curves.values())
    behind = next(number for number, at in enumerate(updates) if ours[number] < theirs[number])
    assert f"leads on average up to {updates[behind - 1]:,} updates" in section(path)


@short_copying
def test_the_chance_that_the_verdict_on_copying_names():
    path = COPYING
    reached = [
        [min((at for at, value in validation(run, "accuracy").items() if value >= 0.99), default=10**9) for run in each]
        for each in (runs(path, "plstm"), runs(path, "lstm-chrono"))
    ]
    chance = stats.mannwhitneyu(*reached).pvalue
    assert 0.15 < chance < 0.25
    assert "one time in five" in section(path)


def test_the_verdict_on_brackets_says_how_seeds_lie():
    path = ROOT / "results/mts/dyck2/short/summary.json"
    late = {
        model: [statistics.fmean(list(validation(run, "accuracy").values())[-30:]) for run in runs(path, model)]
        for model in ("baseline", "mts")
    }
    assert max(late["baseline"]) < min(late["mts"])
    assert "every seed of the one above every seed of the other" in section(path)


def test_a_draft_has_the_verdicts_that_are_missing(script, tmp_path):
    shutil.copytree(ROOT / "results/plstm/pmnist-256", tmp_path / "plstm/pmnist-256")
    (tmp_path / "verdicts.yaml").write_text("plstm/imdb: {paper: {claims: []}}")
    text = script.draft(tmp_path)
    assert "# plstm/imdb, paper: no result any more, remove it" in text
    assert "# plstm/pmnist-256, paper: pLSTM is more accurate than the LSTM. holds: plstm 94.47 against lstm" in text
    found = yaml.safe_load(text)["plstm/pmnist-256"]["paper"]["claims"]
    assert found[0] == {"claim": "pLSTM is more accurate than the LSTM.", "verdict": "holds"}
    assert {claim["verdict"] for claim in found} <= set(script.WORDS)
    assert script.draft(ROOT / "results") == ""
    anew = script.draft(ROOT / "results", ["plstm/charptb-150"])
    assert set(yaml.safe_load(anew)) == {"plstm/charptb-150"}
