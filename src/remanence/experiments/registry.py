"""Every experiment by its id, in the order of the papers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..names import lookup
from . import text
from .build import expect_mapping
from .merge import merge
from .resolve import resolve
from .schema import Experiment

PAPERS: dict[str, str] = {
    "plstm": (
        "Chien et al. 2021, Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower Information Decay"
    ),
    "fastgate": "Ohno et al. 2023, Fast Saturating Gate for Learning Long Time Scales with Recurrent Neural Networks",
    "mts": "Mahto et al. 2021, Multi-timescale Representation Learning in LSTM Language Models",
    "own": "Our own experiments, not from a paper",
}

NAMES: dict[str, tuple[str, ...]] = {
    "plstm": (
        *("fig1-decay", "copy-200", "copy-500", "copy-1000", "copy-variable-200-500", "copy-variable-200-1000"),
        *("copy-generalization", "fixed-p", "kt-and-p", "unit-ablation"),
        *("mnist-256", "mnist-512", "pmnist-256", "pmnist-512", "charptb-150", "charptb-500", "text8-500", "imdb"),
        *("freq-sync1", "freq-sync0.1", "freq-async"),
    ),
    "fastgate": (
        *("fig1-functions", "fig2-toy", "adding-5000", "copy-500", "timescale-growth"),
        *("smnist", "psmnist", "scifar", "ptb"),
    ),
    "mts": (
        *("ptb", "wt2", "markov-ptb", "fig1-timescales", "dyck2", "routing-ptb", "routing-wt2"),
        *("fig4-assigned-vs-estimated", "fig5-forget-heatmaps", "word-ablation", "shape-sweep", "layer-choice"),
    ),
    "own": ("digits", "demo", "attractors"),
}

IDS: tuple[str, ...] = tuple(f"{paper}/{name}" for paper, names in NAMES.items() for name in names)

FILES = (".yaml", ".yml")
"""File name extensions of user-defined experiments."""
OWN = ("id", "title", "reproduces", "claims", "published", "extends")
"""Fields that an experiment never inherits from the one it extends."""


def paper_of(experiment: Experiment) -> str:
    """Title of the paper that it reproduces; empty for our own experiments and those of users."""
    return "" if experiment.is_own else PAPERS.get(experiment.paper, "")


def find(id: str, preset: str = "short", overrides: Iterable[str] = ()) -> Experiment:
    """Find an experiment by its id, or read it from a YAML file, with a preset and `path=value` overrides applied.

    A user-defined file may name user-defined tasks. Their modules are imported, also from the folder of the file.

    Args:
        id: Id of an experiment, or path of a YAML file.
        preset: "smoke", "short" or "paper".
        overrides: Values to change, such as "training.epochs=3".
    """
    if not id.endswith(FILES):
        return resolve(written(id), preset, overrides)
    values = own_file(Path(id))
    folder = str(Path(id).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found = resolve(values, preset, overrides)
    if "score" in (values.get("report") or {}) or not found.models:
        return found
    task = next(iter(found.models.values())).task
    digits = found.report.digits if "digits" in (values.get("report") or {}) else 4
    return replace(found, report=replace(found.report, score=task.goal, digits=digits))


def every() -> list[Experiment]:
    """Every experiment of the package, in the order of the papers."""
    return [find(id) for id in IDS]


def own_file(path: Path) -> dict[str, Any]:
    """Read a user-defined experiment file; id and title default to the file name."""
    import yaml

    try:
        values = text.read(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"expected the file of an experiment, got {path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"expected YAML in {path}, got a file that cannot be read: {problem}") from None
    values = dict(expect_mapping(values, str(path)))
    id = values.setdefault("id", path.stem)
    if not isinstance(id, str) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", id):
        raise ValueError(f"expected id in {path} to be names such as mine/vowels, which become folders, got {id!r}")
    if id in IDS:
        raise ValueError(
            f"expected id in {path} to be a name of your own, got {id!r}, which is an experiment of this package"
        )
    if "extends" in values:
        lookup(f"extends in {path}", values["extends"], dict.fromkeys(IDS))
    return extended({"title": id, "reproduces": "", **values})


@cache
def written(id: str) -> dict[str, Any]:
    """The fields in the file of an experiment, merged over those it extends. Cached: do not modify the result."""
    lookup("experiment", id, dict.fromkeys(IDS))
    values = file(id)
    if values.get("id") != id:
        raise ValueError(f"expected the file of {id} to have id {id}, got {values.get('id')!r}")
    return values


def file(place: str) -> dict[str, Any]:
    """Read a spec file and merge it over the one it extends. Files that begin with _ exist only to be extended."""
    paper, name = place.split("/")
    return extended(text.read((files(__package__) / "specs" / paper / f"{name}.yaml").read_text("utf-8")))


def extended(values: dict[str, Any]) -> dict[str, Any]:
    """Merge the fields of a file over those of the file it extends."""
    if "extends" not in values:
        return values
    below = {name: value for name, value in file(values["extends"]).items() if name not in OWN}
    return merge(below, {name: value for name, value in values.items() if name != "extends"})
