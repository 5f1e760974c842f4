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

from remanence.experiments import registry, reset_times, results
from remanence.table import mean_and_std

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("results*.md"))}
OPENING = PAGES["results.md"]
DETAILS = "\n".join(page for name, page in PAGES.items() if name != "results.md")
SUMMARIES = sorted((ROOT / "results").glob("*/*/*/summary.json"))
ANALYSES = [
    path for path in (ROOT / "results").glob("*/*/*/result.json") if not path.with_name("summary.json").exists()
]
OF_PAPERS = [path for path in ANALYSES if path.parts[-4] != "own"]
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
    return DETAILS.split(f"\n## {id}, preset {preset}\n")[1].split("\n## ")[0]


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


def test_the_pages_are_what_the_script_makes(script):
    assert script.pages() == PAGES, "docs/results*.md are not what the files say; run `make results`"


def test_the_opening_table_has_every_experiment_of_the_papers_with_its_numbers():
    (table,) = tables(OPENING)
    rows = {row["experiment"].strip("[").split("]")[0]: row for row in table}
    assert list(rows) == [id for id in registry.IDS if not id.startswith("own/")]
    with_results = {identity(path)[0] for path in (*SUMMARIES, *OF_PAPERS)}
    assert {id for id, row in rows.items() if row["ours"] != "not run yet"} == with_results
    row = rows["plstm/pmnist-256"]
    assert row["published"].startswith("accuracy, %:<br>`lstm` 91.30<br>`plstm` 94.40<br>`exprnn` 94.70 (quoted)")
    scores = [
        100 * json.loads((run / "result.json").read_text("utf-8"))["test"]["accuracy"]
        for run in runs(ROOT / "results/plstm/pmnist-256/paper/summary.json", "plstm")
    ]
    assert f"`plstm` {mean_and_std(scores, 2)}" in row["ours"]
    assert (row["seeds"], row["epochs"], row["verdict"]) == ("3 of 3", "100 of 100", "**holds** 2<br>**open** 1")


def test_what_holds_is_told_after_it():
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    verdicts = [
        claim["verdict"]
        for id, presets in written.items()
        if not id.startswith("own/")
        for words in presets.values()
        for claim in words["claims"]
    ]
    told = OPENING.split("## What holds")[1].partition("\n## ")[0]
    assert told.count("\n* ") == verdicts.count("holds")


def test_claims_that_do_not_hold_are_told_first_each_with_why():
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    against = [
        (id, claim["claim"], claim.get("because", ""))
        for id, presets in written.items()
        for words in presets.values()
        for claim in words["claims"]
        if claim["verdict"] == "does not hold"
    ]
    told = OPENING.split("## What does not hold")[1].partition("\n## ")[0]
    assert told.count("\n* ") == len(against)
    for id, claim, why in against:
        assert len(why) > 40, (id, claim)
        assert re.search(rf"\* \[{re.escape(id)}\]\(.*\): \*{re.escape(claim)}\* {re.escape(why)}", told)


def test_every_result_has_a_section_a_verdict_and_a_picture():
    verdicts = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    assert SUMMARIES
    judged = {(id, preset) for id, presets in verdicts.items() for preset in presets}
    assert judged == {*map(identity, SUMMARIES), *map(identity, ANALYSES)}
    for path in SUMMARIES:
        (picture,) = re.findall(r"!\[.*\]\((.*)\)", section(path))
        assert (ROOT / "docs" / picture).stat().st_size < 80_000


def test_every_claim_of_a_section_has_its_verdict_and_why():
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    for id, preset in map(identity, SUMMARIES):
        told = section(ROOT / "results" / id / preset / "summary.json").splitlines()
        for claim in written[id][preset]["claims"]:
            line = f"* **{claim['verdict']}**: {claim['claim']} {claim.get('because', '')}".rstrip()
            assert line in told


def test_links_lead_to_sections(script):
    pages = PAGES | {"figures.md": (ROOT / "docs/figures.md").read_text("utf-8")}
    anchors = {
        name: {script.anchor(heading) for heading in re.findall(r"^##+ (.*)$", page, re.MULTILINE)}
        for name, page in pages.items()
    }
    for name, page in PAGES.items():
        links = re.findall(r"\]\(([\w-]+\.md)?(#[^)]*)\)", page)
        assert links
        for other, place in links:
            assert place in anchors[other or name], (name, other, place)


def test_run_folders_hold_only_what_is_to_be_kept():
    kept = {"config.yaml", "metrics.jsonl", "result.json", "machine.json", "times.jsonl", "summary.json"}
    files = [path for folder in {path.parent for path in SUMMARIES} for path in folder.rglob("*") if path.is_file()]
    maps = {path for path in files if path.name == reset_times.FILE}
    assert {path.parent.parent.relative_to(ROOT / "results").as_posix() for path in maps} <= {*reset_times.SHOWN}
    assert {path.name for path in files if path not in maps} == kept
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
        measured = [each["test"] or {} if report.split == "test" else each["best"] for each in found]
        scores = [each[report.score] * scale if each else None for each in measured]
        failed = [
            each["status"] in ("failed", "diverged") or each["best"][report.score] < (report.failed or -math.inf)
            for each in found
        ]
        good = [score for score, bad in zip(scores, failed, strict=True) if score is not None and not bad]
        (heading,) = (name for name in row if name.startswith(report.split))

        def shown(value):
            return "-" if value is None else f"{value:.{report.digits}f}"

        assert row["parameters"].replace(",", "") == str(found[0]["parameters"])
        assert (row["runs"], row["failed"]) == (str(len(found)), str(sum(failed)))
        assert row[heading] == mean_and_std(good, report.digits)
        kept = [each["status"] == "unfinished" for each in found]
        broken = [each["status"] == "diverged" for each in found]
        without = [early or bad for early, bad in zip(kept, broken, strict=True)]
        assert all(why for score, why in zip(scores, without, strict=True) if score is None)
        marks = ["!" * bad + "~" * early for bad, early in zip(failed, kept, strict=True)]
        marked = [
            ("diverged" if score is None and bad else shown(score)) + mark
            for score, bad, mark in zip(scores, broken, marks, strict=True)
        ]
        assert row["single runs"] == ", ".join(marked)
        number = experiment.published.get(report.score, {}).get(experiment.published_of(model))
        assert row["published"].split(" +- ")[0] == (shown(number.mean) if number else "-")
        if number and good:
            assert float(row["difference"]) == pytest.approx(statistics.fmean(good) - number.mean, abs=0.006)
        curves = [validation(run, report.score) for run in runs(path, model)]
        if report.late:
            late = [results.late(run, report.score) * scale for run in runs(path, model)]
            assert row["mean of the last fifth"] == mean_and_std(
                [value for value, bad in zip(late, failed, strict=True) if not bad], report.digits
            )
        if report.reach is not None:
            low = report.score == "loss"
            first = [
                min(
                    (at for at in curve if (curve[at] <= report.reach if low else curve[at] >= report.reach)),
                    default=None,
                )
                for curve in curves
            ]
            reaching = [at for at in first if at is not None]
            assert row[f"updates to {scale * report.reach:g}{report.unit and ' %'}"].startswith(
                f"{statistics.fmean(reaching):.0f}" if reaching else f"none of {len(found)}"
            )


@every_experiment
def test_scores_on_the_way_are_those_in_the_files(path):
    report = registry.find(*identity(path)).report
    for row in tables(section(path))[1]:
        (_, model), *marks = row.items()
        folders = runs(path, model.strip("`"))
        curves = [validation(run, report.score) for run in folders]
        going = [json.loads((run / "result.json").read_text("utf-8"))["status"] == "unfinished" for run in folders]
        if not all(curves):
            assert {shown for _, shown in marks} == {"-"}  # a run broke down before it was evaluated
            continue
        for mark, shown in marks:
            if mark == "mean of the last fifth":
                here = [
                    statistics.fmean(value for at, value in curve.items() if at > 0.8 * max(curve)) for curve in curves
                ]
            else:
                update = int(mark.replace(",", ""))
                if any(one and update > max(curve) for one, curve in zip(going, curves, strict=True)):
                    assert shown == "-"  # what an interrupted run would have scored there is not known
                    continue
                here = [curve[max(at for at in curve if at <= update)] for curve in curves]
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
    path = ROOT / "results/mts/ptb/short/summary.json"
    closing = json.loads(path.with_name("result.json").read_text("utf-8"))["found"]["mts/ptb"]
    column = closing["columns"].index("<100")
    rare = [seed["train"]["perplexity"][column] for seed in closing["models"]["mts"].values()]
    rows = [row for table in tables(section(path)) for row in table]
    assert len(rare) >= 2
    assert any(row.get("model") == "mts" and row.get("<100") == mean_and_std(rare, 2) for row in rows)
    assert any(row.get("quantity") == "perplexity, under 100 times" and row["published"] == "2100.89" for row in rows)


def test_every_claim_on_an_analysis_is_in_the_last_table_of_its_paper():
    written = yaml.safe_load((ROOT / "results/verdicts.yaml").read_text("utf-8"))
    found = [
        row
        for page in PAGES.values()
        for table in tables(page.partition("## Analyses and simulations")[2])
        for row in table
    ]
    expected = {
        (id, preset, one["claim"], f"**{one['verdict']}**")
        for id, preset in map(identity, OF_PAPERS)
        for one in written[id][preset]["claims"]
    }
    assert {
        (row["experiment"][1:].split("]")[0], row["preset"], row["claim"], row["verdict"]) for row in found
    } == expected


@pytest.mark.parametrize("id", ["plstm/copy-200", "plstm/copy-500"])
def test_the_crossing_that_the_verdict_on_copying_names(id):
    path = ROOT / f"results/{id}/paper/summary.json"
    named = int(re.search(r"up to about ([\d,]+) updates", section(path))[1].replace(",", ""))

    def mean(model, at):
        last = [max(update for update in curve if update <= at) for curve in curves[model]]
        return statistics.fmean(curve[update] for curve, update in zip(curves[model], last, strict=True))

    curves = {model: [validation(run, "accuracy") for run in runs(path, model)] for model in ("plstm", "lstm-chrono")}
    behind = next(at for at in range(3_000, 100_000, 500) if mean("plstm", at) < mean("lstm-chrono", at))
    assert behind == pytest.approx(named, rel=0.2)


def test_the_chance_that_the_verdict_on_copying_names():
    path = ROOT / "results/plstm/copy-200/paper/summary.json"
    theirs, ours = (
        [min(at for at, value in validation(run, "accuracy").items() if value >= 0.99) for run in runs(path, model)]
        for model in ("lstm-chrono", "plstm")
    )
    assert max(theirs) < min(ours)
    either_way = stats.mannwhitneyu(theirs, ours, method="exact").pvalue
    assert f"one time in {1 / either_way:.0f}" in section(path)


def test_the_verdict_on_dyck2_compares_seeds():
    path = ROOT / "results/mts/dyck2/short/summary.json"
    late = {
        model: [statistics.fmean(list(validation(run, "accuracy").values())[-30:]) for run in runs(path, model)]
        for model in ("baseline", "mts")
    }
    assert max(late["baseline"]) < min(late["mts"])
    assert "every seed of the former is above every seed of the latter" in section(path)


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


def test_what_was_found_here_has_a_section_of_its_own(script, docs_script, tmp_path):
    apart = {"steps": [25, 50], "apart": [0.5, 0.1]}
    found = {"chunks of 150": {"plstm": {"1": {"zeros": apart, "others": apart}}}}
    result = {"function": "attractors", "arguments": {}, "reproduces": "Our own", "runs": [], "found": found}
    table = {"title": "starts", "headings": ["model", "locked"], "rows": [["plstm", "10"]], "words": 1}
    folder = tmp_path / "own/attractors/paper"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(
        json.dumps({"experiment": "own/attractors", "preset": "paper", **result, "tables": [table]})
    )
    claims = [{"claim": "One start in ten is lost.", "verdict": "holds"}]
    judged = {"own/attractors": {"paper": {"claims": claims, "because": "They never come back."}}}
    (tmp_path / "verdicts.yaml").write_text(json.dumps(judged))

    page = script.pages(tmp_path)["results.md"]
    own = page.split("\n## Found here\n")[1].split("\n## ")[0]
    assert "### [Does a trained character model forget" in own
    assert "They never come back." in own
    assert "* **holds**: One start in ten is lost." in own
    assert "| [own/attractors]" not in page.split("## How to read")[0]  # not an experiment of the papers
    (row,) = [one for one in docs_script("figures").rows(tmp_path) if one.experiment.is_own]
    assert f"]({next(iter(row.pictures))})" in own
    section = docs_script("figures").section(row, tmp_path)
    assert "](figures.md#ownattractors)" in own
    assert section.startswith("## own/attractors\n")
    assert "| plstm | 10 |" in section
    assert "remanence run own/attractors" in section
