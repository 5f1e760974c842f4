"""Make the pages of results and their pictures from the files under results/.

    python docs/results.py [--results FOLDER] [--draft [ID ..]]

docs/results.md has every experiment in one table, docs/results-PAPER.md the details. Numbers come from the run folders,
what was published from the experiments' own files. What the numbers mean is written by hand, in results/verdicts.yaml;
`--draft` prints what tests on the numbers say where nobody has written yet. Experiments that train have a section on
the page of their paper; pictures and tables of analyses and simulations are on the page of figures.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from result_sections import (
    WORDS,
    Section,
    analyses,
    anchor,
    curves,
    markdown,
    picture_of_sweep,
    sections,
    sweeps,
    swept,
    verdict_of,
    written,
)

from remanence.experiments import registry, results, text
from remanence.experiments.schema import Experiment
from remanence.experiments.sections import gather
from remanence.experiments.verdicts import Judgement, judgements
from remanence.report.drawing import draw
from remanence.table import mean_and_std
from remanence.training import files

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
RESOLUTION, COLOURS, LARGEST = 120, 128, 80_000
Judgements = Mapping[tuple[str, str], Judgement]

HEAD = """# Results

What came out when experiments of the three papers were run, beside what was published. Made by `docs/results.py`
from the files under `results/`; only the verdicts are written by hand (`results/verdicts.yaml`).

* **ours** is the mean and the sample standard deviation over seeds; failed runs are left out, and counted on the page
  of the paper. **seeds** and **epochs** say how many of the published ones were run.
* A claim **holds** or **does not hold** if these runs confirm or contradict it, and is **open** if they do not decide
  it; the numbers count claims.
* An experiment leads to its details: tables, learning curves, reasons, conditions, and the command to repeat it.
"""
AGAINST = """## What does not hold, and why we think so
"""
BY_PAPER = """# Results: {title}

Details of the experiments of one paper; [all of them in one table](results.md).
"""
SWEEPS = """## Sweeps

The same experiments over values of a setting, as `remanence sweep` runs them. What they show is written by hand
(`results/sweeps.yaml`).
"""
ANALYSES = """## Analyses and simulations

Claims about trained models, or about what is computed without training. Tables and pictures are on the page of figures.
"""


def page_of(paper: str) -> str:
    """The file of a paper's details."""
    return f"results-{paper}.md"


def opening(found: Sequence[Section], folder: Path, judged: Judgements) -> str:
    """Every experiment of the papers in a row: of several presets the longest that was run."""
    trained = {section.experiment.id: section for section in found}
    looked_at = {id: (preset, result) for (id, preset), result in analyses(folder).items()}
    rows = []
    for id in registry.IDS:
        experiment = registry.find(id, "paper")
        if id in trained:
            rows.append(trained_row(trained[id], judged))
        elif id in looked_at:
            preset, result = looked_at[id]
            link = f"[{id}](figures.md{anchor(id)})"
            rows.append((link, "-", "a figure", *extent(result), counted(id, preset, judged)))
        elif experiment.paper != "own":
            published = published_and_ours(experiment, {})[0] if experiment.kind == "training" else "-"
            rows.append((id, published, "not run yet", "-", "-", "-"))
    return markdown(("experiment", "published", "ours", "seeds", "epochs", "verdict"), rows)


def trained_row(section: Section, judged: Judgements) -> tuple[str, ...]:
    """An experiment that trains."""
    experiment = section.experiment
    return (
        f"[{experiment.id}]({page_of(experiment.paper)}{anchor(section.heading)})",
        *published_and_ours(experiment, section.outcomes),
        section.seeds,
        " of ".join(section.epochs),
        counted(experiment.id, experiment.preset, judged),
    )


def published_and_ours(experiment: Experiment, found: Mapping[str, list[results.Outcome]]) -> tuple[str, str]:
    """What its models have reached, one below the other."""
    report = experiment.report
    numbers = experiment.published.get(report.score, {})
    published = {name: results.published(numbers[name], report.digits) for name in experiment.models if name in numbers}
    if report.reach is not None and not published:
        what = f"updates to {report.reach * report.scale:g} %"
        ours = {
            name: results.reached([run.updates_to_reach for run in runs if run.updates_to_reach], len(runs))
            for name, runs in found.items()
        }
    else:
        what = report.score + (f", {report.unit}" if report.unit else "")
        ours = {
            name: mean_and_std(
                [run.score * report.scale for run in runs if run.score is not None and not run.failed], report.digits
            )
            for name, runs in found.items()
        }
    return lines(published, report.score + (f", {report.unit}" if report.unit else "")), lines(ours, what)


def lines(values: Mapping[str, str], what: str) -> str:
    """Values with their names, one below the other in a cell of a table; "-" without any."""
    return "<br>".join([f"{what}:", *(f"`{name}` {value}" for name, value in values.items())]) if values else "-"


def counted(id: str, preset: str, judged: Judgements) -> str:
    """How many claims have which verdict."""
    counts = Counter(claim.verdict for claim in verdict_of(id, preset, judged).claims)
    return "<br>".join(f"**{word}** {counts[word]}" for word in WORDS if counts[word])


def extent(result: dict[str, Any]) -> tuple[str, str]:
    """How many seeds an analysis has looked at, and how long they were trained."""
    seeds, _, epochs = trained_for(result).removeprefix("seeds: ").partition(", ")
    return seeds, epochs.replace(" epochs", "") or "-"


def against(found: Sequence[Section], folder: Path, judged: Judgements) -> str:
    """Every claim that does not hold, with why."""
    pages = {
        (section.experiment.id, section.experiment.preset): page_of(section.experiment.paper) + anchor(section.heading)
        for section in found
    }
    pages |= {(id, preset): f"figures.md{anchor(id)}" for id, preset in analyses(folder)}
    return "".join(
        f"* [{id}]({place}): *{claim.text}* {claim.because}\n"
        for (id, preset), place in sorted(pages.items(), key=lambda item: registry.IDS.index(item[0][0]))
        for claim in verdict_of(id, preset, judged).claims
        if claim.verdict == "does not hold"
    )


def overview(found: Sequence[Section], judged: Judgements) -> str:
    """Every claim on trainings with its verdict."""
    rows = []
    for section in found:
        for claim in verdict_of(section.experiment.id, section.experiment.preset, judged).claims:
            link = f"[{section.experiment.id}]({anchor(section.heading)})"
            rows.append((link, " of ".join(section.epochs), section.seeds, claim.text, f"**{claim.verdict}**"))
    return markdown(("experiment", "epochs, of the paper preset's", "seeds, of its", "claim", "verdict"), rows)


def looked_at(paper: str, folder: Path, judged: Judgements) -> str:
    """Every claim on what analyses and simulations found, with its verdict."""
    rows = []
    for (id, preset), result in analyses(folder).items():
        if registry.find(id).paper != paper:
            continue
        link = f"[{id}](figures.md{anchor(id)})"
        rows += [
            (link, preset, trained_for(result), claim.text, f"**{claim.verdict}**")
            for claim in verdict_of(id, preset, judged).claims
        ]
    headings = ("experiment", "preset", "seeds and epochs of what was looked at, of the paper preset's")
    return f"{ANALYSES}\n{markdown((*headings, 'claim', 'verdict'), rows)}" if rows else ""


def trained_for(result: dict[str, Any]) -> str:
    """How many seeds an analysis has looked at, and how long they were trained; "-" without any."""
    seeds: dict[str, set[int]] = {}
    epochs = []
    for run in result.get("runs") or ():
        one = run["result"]
        seeds.setdefault(run["model"], set()).add(run["seed"])
        whole = registry.find(one["experiment"], "paper").models[run["model"]].training.epochs
        epochs.append(f"{one['epochs']:g} of {whole:g} epochs")
    if not seeds:
        return "-"
    return f"seeds: {max(map(len, seeds.values()))}, {' or '.join(dict.fromkeys(epochs))}"


def pages(folder: Path = RESULTS) -> dict[str, str]:
    """Every page by its file."""
    found, judged = sections(folder), judgements(folder)
    made = {"results.md": "\n".join([HEAD, opening(found, folder, judged), AGAINST, against(found, folder, judged)])}
    for paper, title in registry.PAPERS.items():
        own = [section for section in found if section.experiment.paper == paper]
        parts = [BY_PAPER.format(title=title), *([overview(own, judged)] if own else [])]
        parts += [written(each, verdict_of(each.experiment.id, each.experiment.preset, judged), folder) for each in own]
        over = [swept(name, section, folder) for name, section in sweeps(folder) if section.id.startswith(f"{paper}/")]
        parts += [SWEEPS, *over] if over else []
        parts += [part for part in [looked_at(paper, folder, judged)] if part]
        if len(parts) > 1:
            made[page_of(paper)] = "\n".join(parts)
    return made


def draft(folder: Path, anew: Sequence[str] = ()) -> str:
    """Verdicts that are missing or wanted anew, as tests on the numbers decide them, and those that are too many."""
    judged = judgements(folder)
    found = gather([folder], by_hand=False)
    missing: dict[str, dict[str, Any]] = {}
    words = []
    for section in found:
        if (section.id, section.preset) in judged and section.id not in anew:
            continue
        claims = [
            {"claim": one.text, "verdict": one.verdict if one.verdict in WORDS else "open"} for one in section.claims
        ]
        missing.setdefault(section.id, {})[section.preset] = {"claims": claims, "because": "...", "conditions": "..."}
        words += [
            f"# {section.id}, {section.preset}: {one.text} {one.verdict}: {one.because}" for one in section.claims
        ]
    there = {(section.id, section.preset) for section in found}
    words += [f"# {id}, {preset}: no result any more, remove it" for id, preset in judged if (id, preset) not in there]
    lines = [text.write(missing)] if missing else []
    return "\n".join([*words, *lines])


def main() -> None:
    """Write the pages and their pictures."""
    parser = argparse.ArgumentParser(description="Make the pages of results and their pictures from results/.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    words = "print missing verdicts instead, as tests decide them, and those on these experiments anew"
    parser.add_argument("--draft", nargs="*", metavar="ID", help=words)
    given = parser.parse_args()
    folder = given.results
    if given.draft is not None:
        print(draft(folder, given.draft))
        return
    for name, content in pages(folder).items():
        files.write(DOCS / name, content.encode())
    for section in sections(folder):
        for colours in (COLOURS, COLOURS // 2):  # fewer for curves that cross everywhere
            draw(curves(section, folder), DOCS / section.picture, resolution=RESOLUTION, colours=colours)
            if (DOCS / section.picture).stat().st_size < LARGEST:
                break
    for name, swept_over in sweeps(folder):
        for drawn in swept_over.figures:
            draw(drawn, DOCS / picture_of_sweep(name), resolution=RESOLUTION, colours=COLOURS)


if __name__ == "__main__":
    main()
