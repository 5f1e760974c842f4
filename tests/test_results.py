"""The page of results: what docs/results.py makes of the files under results/, and nothing else."""

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

import pytest
import yaml

from remanence.experiments import registry, results

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/results.md").read_text("utf-8")
SUMMARIES = sorted((ROOT / "results").glob("*/*/*/summary.json"))
every_experiment = pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: "-".join(path.parts[-4:-1]))


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("docs_results", ROOT / "docs/results.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


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
    verdicts = yaml.safe_load((ROOT / "docs/results_verdicts.yaml").read_text("utf-8"))
    assert SUMMARIES
    assert {(id, preset) for id, presets in verdicts.items() for preset in presets} == set(map(identity, SUMMARIES))
    for path in SUMMARIES:
        (picture,) = re.findall(r"!\[.*\]\((.*)\)", section(path))
        assert (ROOT / "docs" / picture).stat().st_size < 80_000


def test_links_of_the_overview_lead_to_sections(script):
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    links = re.findall(r"\]\((#.*?)\)", PAGE)
    assert set(links) == {script.anchor(heading) for heading in headings}


def test_run_folders_hold_only_what_is_to_be_kept():
    kept = {"config.yaml", "metrics.jsonl", "result.json", "machine.json", "times.jsonl", "summary.json"}
    files = [path for folder in {path.parent for path in SUMMARIES} for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} == kept


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
        scores = [(each["test"] if report.split == "test" else each["best"])[report.score] * 100 for each in found]
        failed = [
            each["status"] in ("failed", "diverged") or each["best"][report.score] < (report.failed or 0)
            for each in found
        ]
        good = [score for score, bad in zip(scores, failed, strict=True) if not bad]
        (heading,) = (name for name in row if name.startswith(report.split))

        def shown(value):
            return f"{value:.{report.digits}f}"

        assert row["parameters"].replace(",", "") == str(found[0]["parameters"])
        assert (row["runs"], row["failed"]) == (str(len(found)), str(sum(failed)))
        assert row[heading] == f"{shown(statistics.fmean(good))} +- {shown(statistics.stdev(good))}"
        marked = [shown(score) + "!" * bad for score, bad in zip(scores, failed, strict=True)]
        assert row["single runs"] == ", ".join(marked)
        number = experiment.published.get(report.score, {}).get(model)
        assert row["published"].split(" +- ")[0] == (shown(number.mean) if number else "-")
        if number:
            assert float(row["difference"]) == pytest.approx(statistics.fmean(good) - number.mean, abs=0.006)
        if report.reach is not None:
            curves = [validation(run, report.score) for run in runs(path, model)]
            first = [min((at for at in curve if curve[at] >= report.reach), default=None) for curve in curves]
            reaching = [at for at in first if at is not None]
            assert row["updates to 99 %"].startswith(
                f"{statistics.fmean(reaching):.0f}" if reaching else f"none of {len(found)}"
            )


@every_experiment
def test_scores_on_the_way_are_those_in_the_files(path):
    report = registry.find(*identity(path)).report
    for row in tables(section(path))[1]:
        (_, model), *marks = row.items()
        curves = [validation(run, report.score) for run in runs(path, model.strip("`"))]
        for mark, shown in marks:
            here = [curve[max(at for at in curve if at <= int(mark.replace(",", "")))] for curve in curves]
            assert shown == f"{statistics.fmean(here) * 100:.{report.digits}f}"


@every_experiment
def test_numbers_in_a_verdict_are_in_the_tables(path):
    text = section(path)
    (verdict,) = re.findall(r"\*\*Verdict\.\*\* (.*)", text)
    in_tables = set(re.findall(r"\d+\.\d+", "".join(re.findall(r"^\|.*\n", text, re.MULTILINE))))
    assert set(re.findall(r"\d+\.\d+", verdict)) <= in_tables


def test_the_crossing_that_the_verdict_on_copying_names():
    path = ROOT / "results/plstm/copy-200/short/summary.json"
    curves = {model: [validation(run, "accuracy") for run in runs(path, model)] for model in ("plstm", "lstm-chrono")}
    updates = sorted(curves["plstm"][0])
    ours, theirs = ([statistics.fmean(run[at] for run in each) for at in updates] for each in curves.values())
    behind = next(number for number, at in enumerate(updates) if ours[number] < theirs[number])
    assert f"leads on average up to {updates[behind - 1]:,} updates" in section(path)
