"""Copy runs and findings of analyses to results/: no checkpoints, fewer lines of metrics, shorter numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from .. import files
from ..training.directory import read_result
from ..training.evaluation import content_of
from ..training.files import as_json, read_lines
from ..training.files import read as read_verified
from ..training.schedule import best_of
from . import reset_times, results
from .analyses.words import rounded
from .findings import with_earlier_seeds
from .models import build_model
from .registry import IDS, find
from .runs import plan
from .runs_to_do import Line, is_current, is_finished
from .schema import Experiment, Model, ReportedNumber

COPIED = ("config.yaml", "machine.json")
"""Files of a run that are copied unchanged."""
LINES, TIMES = 100, 20
"""Lines of metrics and of times to keep, if a run has more than twice as many."""


def collect(
    work: Path, into: Path, lines: Sequence[Line], say: Callable[[str], None] = print, unfinished: bool = False
) -> None:
    """Copy finished runs and findings, and remove what they replace: runs of another configuration, and other presets.

    Other presets of an experiment are removed once all its runs in the list have finished.

    Args:
        work: working folder of the runs.
        into: folder to copy to.
        lines: the runs to copy.
        say: receives progress messages.
        unfinished: also copy interrupted runs, as they are, with the status `results.UNFINISHED`.
    """
    for id, preset in dict.fromkeys((line.id, line.preset) for line in lines):
        own = [line for line in lines if (line.id, line.preset) == (id, preset)]
        experiment = own[0].experiment
        runs = [(model, seed) for line in own for model, seed in line.runs()]
        found = {(model.name, seed): ended(work, experiment, model, seed) for model, seed in runs}
        if unfinished:
            for model, seed in runs:
                found[model.name, seed] = found[model.name, seed] or so_far(work, into, experiment, model, seed)
        if not any(found.values()):
            continue
        for stale in different(into, experiment):
            shutil.rmtree(stale)
        for (name, seed), result in found.items():
            if result is not None:
                source, target = (results.run_folder(place, experiment, name, seed) for place in (work, into))
                copy_run(source, target, result, experiment.report, experiment.models[name])
        folder = results.folder_of(into, experiment)
        closing = read_result(results.folder_of(work, experiment))
        if closing is not None:
            results.save(folder / "result.json", with_earlier_seeds(closing, into, experiment))
        outcomes = results.outcomes(into, experiment)
        results.save(folder / "summary.json", results.summary(experiment, outcomes))
        reset_times.keep(experiment, work, into)
        say(f"{id}, preset {preset}: {sum(map(len, outcomes.values()))} runs of {', '.join(outcomes)}")
        if not any(line.left([into]) for line in own):
            remove_other_presets(folder, say)
    for preset in dict.fromkeys(line.preset for line in lines):
        for id in IDS:
            collect_findings(work, into, find(id, preset), say)


def collect_findings(work: Path, into: Path, experiment: Experiment, say: Callable[[str], None]) -> None:
    """Copy what an analysis found, if it has run; a large one writes megabytes of digits that nobody reads."""
    content = read_result(results.folder_of(work, experiment)) if experiment.kind == "analysis" else None
    if content is None:
        return
    folder = results.folder_of(into, experiment)
    folder.mkdir(parents=True, exist_ok=True)
    content = with_earlier_seeds(content, into, experiment)
    kept = json.dumps(rounded(content), ensure_ascii=False, separators=(",", ":"))
    files.write(folder / "result.json", f"{kept}\n".encode())
    say(f"{experiment.id}, preset {experiment.preset}: findings")
    remove_other_presets(folder, say)


def remove_other_presets(folder: Path, say: Callable[[str], None]) -> None:
    """Remove the results of an experiment at presets other than the one of `folder`."""
    for other in sorted(path for path in folder.parent.iterdir() if path.is_dir() and path != folder):
        shutil.rmtree(other)
        say(f"{'/'.join(folder.parts[-3:-1])}, preset {other.name}: removed; please remove its verdict too")


def different(into: Path, experiment: Experiment) -> list[Path]:
    """Folders of runs whose configuration is not that of the experiment, and of models that no longer exist."""
    folder = results.folder_of(into, experiment)
    found = [path for path in folder.glob("*") if path.is_dir() and path.name not in experiment.models]
    for name, model in experiment.models.items():
        for seed, path in results.with_result(into, experiment, name).items():
            if not is_current(into, experiment, model, seed):
                found.append(path)
    return found


def ended(work: Path, experiment: Experiment, model: Model, seed: int) -> bytes | None:
    """The result.json of a finished run; None for others."""
    if not is_finished(work, experiment, model, seed):
        return None
    return read_verified(results.run_folder(work, experiment, model.name, seed), "result.json")


def so_far(work: Path, into: Path, experiment: Experiment, model: Model, seed: int) -> bytes | None:
    """What result.json would say of an interrupted run if it ended at its latest evaluation. It has no test scores.

    It does not say what is unusual about the data, which is not read here.

    Returns:
        None if there is no such run, or it is not longer than what is kept.
    """
    folder = results.run_folder(work, experiment, model.name, seed)
    lines = read_lines(folder, "metrics.jsonl")
    if not lines or not (folder / "config.yaml").exists() or not is_current(work, experiment, model, seed):
        return None
    update, epochs = lines[-1]["update"], lines[-1]["epoch"]
    kept = read_result(results.run_folder(into, experiment, model.name, seed)) or {"updates": 0}
    longer = kept["updates"] >= update and is_current(into, experiment, model, seed)
    if longer or is_finished(into, experiment, model, seed):
        return None
    [run] = plan(experiment, work, [model.name], [seed])[model.name]
    content = content_of(
        run,
        lines,
        results.UNFINISHED,
        updates=update,
        epochs=epochs,
        parameters=sum(parameter.numel() for parameter in build_model(model, "meta").parameters()),
        best=best_of(lines, run.task, run.config.best_by),
        scores=None,
    )
    return as_json(content)


def copy_run(source: Path, target: Path, result: bytes, report: ReportedNumber, model: Model) -> None:
    """Copy a run, with thinned metrics and times; without digests and checks, which hold for all lines."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in COPIED:
        files.write(target / name, read_verified(source, name) or b"")
    files.write(target / "result.json", result)
    metrics = thinned(read_lines(source, "metrics.jsonl"), told(source, json.loads(result), report, model))
    times = summed(read_lines(source, "times.jsonl"))
    for name, lines in (("metrics.jsonl", metrics), ("times.jsonl", times)):
        files.write(target / name, "".join(f"{json.dumps(line)}\n" for line in lines).encode())


def thinned(lines: Sequence[dict[str, Any]], always: Collection[int]) -> list[dict[str, Any]]:
    """Keep evenly spaced evaluations including the last, and those at the updates in `always`."""
    step = spacing(len(lines), LINES)
    last = len(lines) - 1
    return [line for number, line in enumerate(lines) if (last - number) % step == 0 or line["update"] in always]


def spacing(count: int, most: int) -> int:
    """Keep one line in this many. Lines that have been thinned before stay unchanged."""
    return 1 if count <= 2 * most else -(-count // most)


def told(folder: Path, result: dict[str, Any], report: ReportedNumber, model: Model) -> set[int]:
    """The updates of a run that its result refers to: the best, the last, the first at a level."""
    found = {(result.get(name) or {}).get("update") for name in ("best", "last")}
    found |= {*(result.get("updates_to") or {}).values(), results.first_reaching(folder, report, model)}
    return {update for update in found if update is not None}


def summed(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the times of several evaluations into one line; their sum stays the same."""
    step = spacing(len(lines), TIMES)
    kept: list[dict[str, Any]] = []
    together = 0
    for line in lines:
        before = kept[-1] if kept else {}
        if line["what"] == before.get("what") == "evaluation" and together < step:
            together += 1
            kept[-1] = {**line, **{name: before[name] + line[name] for name in ("updates", "seconds", "evaluation")}}
        else:
            together = 1
            kept.append(line)
    return kept
