"""Generate the results pages and their plots from the files under results/.

    python docs/results.py [--results FOLDER] [--draft [ID ..]]

docs/results.md lists all experiments in one table, docs/results-PAPER.md has the details. Our numbers come from the run
folders, the published ones from the experiment files. The verdicts are written manually, in results/verdicts.yaml;
`--draft` prints the outcome of statistical tests for results without a verdict. Experiments that train models have a
section on the page of their paper; plots and tables of analyses and simulations are on the figures page.
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
    claims_of,
    curves,
    markdown,
    picture_of,
    picture_of_sweep,
    sections,
    span,
    sweeps,
    swept,
    verdict_of,
    whole,
    written,
)

from remanence.experiments import registry, results, text
from remanence.experiments.figures import figures_of, latest
from remanence.experiments.judgements import Judgement, judgements
from remanence.experiments.schema import Experiment
from remanence.experiments.sections import gather
from remanence.report.drawing import draw
from remanence.table import mean_and_std
from remanence.training import files

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
RESOLUTION, COLOURS, LARGEST = 120, 128, 80_000
Judgements = Mapping[tuple[str, str], Judgement]

HEAD = """# Results

Our results for the experiments of the three papers, next to the published numbers. `docs/results.py` generates this
page from the files under `results/`; only the verdicts are written manually (`results/verdicts.yaml`).
[How to read the table](#how-to-read-the-table) is below it.
"""
READ = """## How to read the table

* **ours** is the mean and sample standard deviation over seeds. "(2 of 3)": one of three runs is not in the mean,
  because it failed or, where updates to a level are counted, did not reach it. Scores are those of the test set, in
  `freq-*` and copy tasks of the validation set in the best epoch.
* **seeds** and **epochs**: how many of those of the preset `paper` were run. That preset has the published settings
  where the papers give them, and else a choice of ours, which `remanence show ID` lists: the longest training of copy
  and pixel tasks, for example, and most numbers of seeds. Runs that meet their stopping rule, or break down, end
  earlier; a run that was interrupted (~ in the details) counts as it was then, and has no test score.
* **verdict**: the number of claims that these runs confirm (**holds**), contradict (**does not hold**) or leave
  undecided (**open**). That the scores match the published ones is a claim of ours, the others are those of the
  papers.
* Each experiment links to its details: tables, learning curves, reasons, conditions, and the command to repeat it.
* `plstm` is the LSTM with the power-law forget gate, `lstm-chrono` or `chrono` one with chrono initialisation,
  `-time` has the absolute time as a further input, `-uniform` periods drawn uniformly; other names are those of
  [gates](reference/gates.md) and [layers](reference/layers.md). `mts` is the multi-timescale language model.
  (quoted): a number that the paper took from another one.
"""
HOLDS = """## What holds
"""
AGAINST = """## What does not hold, and likely reasons
"""
OWN = """## Found here

Not in the papers; tables and commands are on the page of [figures](figures.md).
"""
OPEN = """## What is open

All other claims: on the pages of the [power-law forget gate](results-plstm.md), the [fast gate](results-fastgate.md)
and [multi-timescale language models](results-mts.md), with what would decide them.
"""
LISTS = {AGAINST: "does not hold", HOLDS: "holds"}
BY_PAPER = """# Results: {title}

Detailed results for this paper; [Results](results.md) has all experiments in one table.
"""
SWEEPS = """## Sweeps

Experiments repeated over several values of a setting with `remanence sweep`. The comments are written manually
(`results/sweeps.yaml`).
"""
ANALYSES = """## Analyses and simulations

Claims about trained models, or about simulations without training. Their tables and plots are on the figures page.
"""


def page_of(paper: str) -> str:
    """The details page of a paper."""
    return f"results-{paper}.md"


def opening(found: Sequence[Section], folder: Path, judged: Judgements) -> str:
    """One row per experiment of the papers, with the longest preset that was run."""
    trained = {section.experiment.id: section for section in found}
    looked_at = {id: (preset, result) for (id, preset), result in analyses(folder).items()}
    rows = []
    for id in registry.IDS:
        experiment = whole(id)
        if id in trained:
            rows.append(trained_row(trained[id], judged))
        elif id in looked_at:
            preset, result = looked_at[id]
            link = f"[{id}](figures.md{anchor(id)})"
            rows.append((link, "-", "figure", *extent(result), counted(id, preset, judged)))
        elif not experiment.is_own:
            published = published_and_ours(experiment, {})[0] if experiment.kind == "training" else "-"
            rows.append((id, published, "not run yet", "-", "-", "-"))
    return markdown(("experiment", "published", "ours", "seeds", "epochs", "verdict"), rows)


def trained_row(section: Section, judged: Judgements) -> tuple[str, ...]:
    """Row of an experiment that trains models."""
    experiment = section.experiment
    return (
        f"[{experiment.id}]({page_of(experiment.paper)}{anchor(section.heading)})",
        *published_and_ours(experiment, section.outcomes),
        section.seeds,
        " of ".join(section.epochs),
        counted(experiment.id, experiment.preset, judged),
    )


def published_and_ours(experiment: Experiment, found: Mapping[str, list[results.Outcome]]) -> tuple[str, str]:
    """Published scores and ours, one line per model."""
    report, every = experiment.report, whole(experiment.id)
    numbers = experiment.published.get(report.score, {})
    keys = {name: experiment.published_of(name) for name in every.models if name in (*every.usual, *found)}
    published = {
        name: results.published(numbers[key], report.digits) + ("" if key == name else " (quoted)")
        for name, key in keys.items()
        if key in numbers
    }
    if report.reach is not None and not published:
        value = f"{report.reach * report.scale:g}"
        what = f"updates to {value} {report.unit}" if report.unit else f"updates to a {report.score} of {value}"
        ours = {
            name: results.reached([run.updates_to_reach for run in runs if run.updates_to_reach], len(runs))
            for name, runs in found.items()
        }
    else:
        what = report.score + (f", {report.unit}" if report.unit else "")
        ours = {
            name: mean_of_good(
                [run.score * report.scale for run in runs if run.score is not None and not run.failed],
                len(runs),
                report.digits,
            )
            for name, runs in found.items()
        }
    return lines(published, report.score + (f", {report.unit}" if report.unit else "")), lines(ours, what)


def mean_of_good(scores: Sequence[float], runs: int, digits: int) -> str:
    """Mean and spread of the runs that have not failed, and how many these are if some have."""
    return mean_and_std(scores, digits) + (f" ({len(scores)} of {runs})" if scores and len(scores) < runs else "")


def lines(values: Mapping[str, str], what: str) -> str:
    """Named values as lines of one table cell; "-" if there are none."""
    return "<br>".join([f"{what}:", *(f"`{name}` {value}" for name, value in values.items())]) if values else "-"


def counted(id: str, preset: str, judged: Judgements) -> str:
    """Number of claims per verdict."""
    counts = Counter(claim.verdict for claim in verdict_of(id, preset, judged).claims)
    return "<br>".join(f"**{word}** {counts[word]}" for word in WORDS if counts[word])


def extent(result: dict[str, Any]) -> tuple[str, str]:
    """Number of seeds that an analysis used, and how long they were trained."""
    seeds, _, epochs = trained_for(result).removeprefix("seeds: ").partition(", ")
    return seeds, epochs.replace(" epochs", "") or "-"


def listed(word: str, found: Sequence[Section], folder: Path, judged: Judgements) -> str:
    """Claims with this verdict, with reasons if a person gave some."""
    pages = {
        (section.experiment.id, section.experiment.preset): page_of(section.experiment.paper) + anchor(section.heading)
        for section in found
    }
    pages |= {(id, preset): f"figures.md{anchor(id)}" for id, preset in analyses(folder)}
    return "".join(
        f"* [{id}]({place}): *{claim.text}* {claim.because}".rstrip() + "\n"
        for (id, preset), place in sorted(pages.items(), key=lambda item: registry.IDS.index(item[0][0]))
        for claim in verdict_of(id, preset, judged).claims
        if claim.verdict == word
    )


def overview(found: Sequence[Section], judged: Judgements) -> str:
    """Claims about training runs, with verdicts."""
    rows = []
    for section in found:
        for claim in verdict_of(section.experiment.id, section.experiment.preset, judged).claims:
            link = f"[{section.experiment.id}]({anchor(section.heading)})"
            rows.append((link, " of ".join(section.epochs), section.seeds, claim.text, f"**{claim.verdict}**"))
    return markdown(("experiment", "epochs (of `paper`)", "seeds (of `paper`)", "claim", "verdict"), rows)


def looked_at(paper: str, folder: Path, judged: Judgements) -> str:
    """Claims about analyses and simulations, with verdicts."""
    rows = []
    for (id, preset), result in analyses(folder).items():
        if whole(id).paper != paper:
            continue
        link = f"[{id}](figures.md{anchor(id)})"
        rows += [
            (link, preset, trained_for(result), claim.text, f"**{claim.verdict}**")
            for claim in verdict_of(id, preset, judged).claims
        ]
    headings = ("experiment", "preset", "seeds, epochs (of `paper`)")
    return f"{ANALYSES}\n{markdown((*headings, 'claim', 'verdict'), rows)}" if rows else ""


def found_here(folder: Path, judged: Judgements) -> str:
    """Analyses of our own, with claims, reasons and plots; empty if there are none."""
    parts = []
    for id in dict.fromkeys(id for id, _ in analyses(folder, own=True)):
        experiment = latest(id, folder)
        verdict = verdict_of(id, experiment.preset, judged)
        pictures = [f"![{figure.title}]({picture_of(figure)})\n" for figure in figures_of(experiment, folder)]
        parts += [
            f"### [{experiment.title}](figures.md{anchor(id)})\n",
            f"{verdict.because}\n",
            claims_of(verdict),
            *pictures,
        ]
    return "\n".join([OWN, *parts]) if parts else ""


def trained_for(result: dict[str, Any]) -> str:
    """Number of seeds that an analysis used, and how long they were trained; "-" if it used none."""
    seeds: dict[str, set[int]] = {}
    trained: dict[float, list[float]] = {}
    for run in result.get("runs") or ():
        one = run["result"]
        seeds.setdefault(run["model"], set()).add(run["seed"])
        published = whole(one["experiment"]).models[run["model"]].training.epochs
        trained.setdefault(published, []).append(one["epochs"])
    if not seeds:
        return "-"
    epochs = " or ".join(f"{span(sorted(own))} of {every:g} epochs" for every, own in trained.items())
    return f"seeds: {max(map(len, seeds.values()))}, {epochs}"


def pages(folder: Path = RESULTS) -> dict[str, str]:
    """All pages by file name."""
    found, judged = sections(folder), judgements(folder)
    lists = [part for head, word in LISTS.items() for part in (head, listed(word, found, folder, judged))]
    here = [part for part in [found_here(folder, judged)] if part]
    made = {"results.md": "\n".join([HEAD, opening(found, folder, judged), READ, *lists, *here, OPEN])}
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
    """Draft verdicts from statistical tests: missing ones and those of the ids in `anew`. Also names stale verdicts."""
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
    """Write the pages and their plots."""
    parser = argparse.ArgumentParser(description="Generate the results pages and their plots from results/.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="results folder")
    words = "print draft verdicts from statistical tests instead: missing ones, and new ones for these experiments"
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
