"""Findings of analyses in result files: the runs that they are about, and those about other seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..training.directory import read_result
from . import results
from .analyses.seeds import ADDITIONS, added
from .analyses.words import rounded
from .registry import find
from .schema import Experiment

SAME = ("experiment", "preset", "function", "arguments")
"""What findings that can be added have in common."""


def who(run: Mapping[str, Any]) -> tuple[str, str, int]:
    """Need, model and seed of a run that an analysis has read."""
    return run["need"], run["model"], run["seed"]


def is_about_kept_run(run: Mapping[str, Any], place: Path, experiment: Experiment) -> bool:
    """Whether findings are about the run that is in a folder, and not one that it has replaced.

    Args:
        run: A run in the result of an analysis.
        place: A folder of results.
        experiment: The analysis, or the training that ends with one.
    """
    need = experiment.needs.get(run["need"])
    other = experiment if need is None else find(need.experiment, experiment.preset)
    kept = read_result(results.run_folder(place, other, run["model"], run["seed"]))
    return kept is not None and rounded(kept) == rounded(run["result"])


def there(about: Mapping[str, Any], place: Path, experiment: Experiment) -> dict[str, Any] | None:
    """The result in a folder, if it has these findings, alone or added to others about runs that are still there."""
    before = read_result(results.folder_of(place, experiment))
    if before is None or any(before.get(name) != about[name] for name in (*SAME, "reproduces")):
        return None
    others = [run for run in before["runs"] if run not in about["runs"]]
    complete = len(others) + len(about["runs"]) == len(before["runs"])
    fine = about["function"] in ADDITIONS and all(is_about_kept_run(run, place, experiment) for run in others)
    return before if complete and (fine or not others) else None


def with_earlier_seeds(content: dict[str, Any], place: Path, experiment: Experiment) -> dict[str, Any]:
    """Findings, and those in a folder about other seeds whose runs are still there, if this analysis can be added.

    Args:
        content: The result of an analysis.
        place: Folder of results, with the result before this one, and the runs.
        experiment: The analysis, or the training that ends with one.
    """
    before = read_result(results.folder_of(place, experiment)) or {}
    if any(before.get(name) != content.get(name) for name in SAME):
        return content
    new = {who(run) for run in content.get("runs", ())}
    others = [run for run in before.get("runs", ()) if who(run) not in new]
    earlier = [run for run in others if is_about_kept_run(run, place, experiment)]
    if not earlier:
        return content
    kept = {who(run) for run in earlier}
    findings = added(content["function"], before["found"], kept, content["found"])
    if findings is None:
        return content
    return {**content, "runs": sorted([*earlier, *content["runs"]], key=who), **findings.plain()}
