"""From result folders to the sections of `remanence report`, unfinished runs included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...report.section import Section
from ...table import Table
from ...training.directory import read_result
from ..claim_tests import Evidence
from ..configuration import listed, published_table
from ..judgements import Judgement, judgements
from ..registry import IDS, find
from ..results import expect_there
from ..schema import PRESETS, Experiment
from ..verdicts import decide, how_decided
from .facts import source
from .run_folders import Key, RunFolder, search
from .trained import UNREADABLE, of_runs, section_figures


def gather(folders: Sequence[Path], by_hand: bool = True, none: bool = False) -> list[Section]:
    """Collect all results in some folders as sections, in the order of the papers.

    Args:
        folders: Folders of results, of an experiment or of single runs; searched recursively.
        by_hand: Whether verdicts written by a person take precedence over those of the tests.
        none: Whether folders without any results are allowed.

    Raises:
        ValueError: A folder does not exist, or none of them has results that can be read.
    """
    runs: dict[Key, list[RunFolder]] = {}
    analyses: dict[Key, dict[str, Any]] = {}
    problems: list[str] = []
    for path in dict.fromkeys(found for folder in folders for found in search(expect_there(folder).resolve())):
        try:
            if (path / "config.yaml").exists():
                run = RunFolder.read(path)
                runs.setdefault((run.root, run.id, run.preset), []).append(run)
            else:
                result = read_result(path) or {}
                if "function" in result and "tables" in result:
                    id, preset = str(result["experiment"]), str(result["preset"])
                    analyses[path.parents[len(id.split("/"))], id, preset] = result
        except UNREADABLE as error:
            problems.append(f"{path.name}: {error}")
    if none and not (runs or analyses or problems):
        return []
    if not runs and not analyses:
        places = ", ".join(map(str, folders))
        problem = f" ({problems[0]})" if problems else ""
        raise ValueError(f"expected folders with results of `remanence run`, got no results in {places}{problem}")
    judged = {root: judgements(root) for root, _, _ in (*runs, *analyses) if root is not None and by_hand}
    several = len({key[0] for key in (*runs, *analyses)}) > 1
    sections = []
    for key in sorted({*runs, *analyses}, key=order):
        root, id, preset = key
        judgement = judged.get(root, {}).get((id, preset)) if root is not None else None
        try:
            if key in runs:
                section = of_runs(key, runs[key], judgement, analyses.get(key))
            else:
                section = of_analysis(key, analyses[key], judgement)
        except UNREADABLE as error:
            problems.append(f"{id}, preset {preset}: {error}")
            continue
        sections.append(replace(section, place=root.name if several and root is not None else ""))
    if not sections:
        raise ValueError(f"expected results that can be read, got none: {'; '.join(problems)}")
    return with_problems(sections, problems)


def order(key: Key) -> tuple[int, str, int, str]:
    """Sort key: the order of the papers, anything else last."""
    root, id, preset = key
    known = IDS.index(id) if id in IDS else len(IDS)
    return known, id, PRESETS.index(preset) if preset in PRESETS else len(PRESETS), str(root or "")


def with_problems(sections: list[Section], problems: Sequence[str]) -> list[Section]:
    """Add a note about everything that could not be read to the first section, where it is easy to see."""
    first, *others = sections
    notes = [f"Left out: {problem}." for problem in problems]
    return [replace(first, notes=[*notes, *first.notes]), *others]


def of_analysis(key: Key, result: Mapping[str, Any], judgement: Judgement | None) -> Section:
    """The section of an analysis of trained models, or of a simulation."""
    root, id, preset = key
    known = id in IDS and preset in PRESETS
    experiment = (
        find(id, preset) if known else Experiment(id, id, str(result.get("reproduces", "")), preset, "analysis")
    )
    notes = [] if known else [f"This version of remanence has no {id} with preset {preset}."]
    tables = [Table(**one) for one in result["tables"]]
    if experiment.published:
        tables.append(replace(published_table(experiment), title="Published"))
    found = Evidence(experiment, {}, data=result.get("found") or {})
    claims = decide(found) if judgement is None else judgement.claims
    looked_at = [f"{one.get('need')} {one.get('model')} seed {one.get('seed')}" for one in result.get("runs") or []]
    stated = [
        ("function", f"{result['function']}: {listed(result.get('arguments') or {})}"),
        ("runs analysed", ", ".join(looked_at)),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return Section(
        id=id,
        preset=preset,
        title=experiment.title,
        source=source(experiment),
        models=list(dict.fromkeys(str(one.get("model")) for one in result.get("runs") or [])),
        published=experiment.claims,
        claims=claims,
        judged=how_decided(claims, "") if judgement is None else judgement.because,
        tables=tables,
        figures=section_figures(experiment, root, notes),
        facts=[(name, value) for name, value in stated if value],
        notes=notes,
    )
