"""Every experiment by its id, in the order of the papers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from ..names import lookup
from . import text
from .merge import merge
from .resolve import resolve
from .schema import Experiment

PAPERS: dict[str, str] = {
    "plstm": (
        "Chien et al. 2021, Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower Information Decay"
    ),
    "fastgate": "Ohno et al. 2023, Fast Saturating Gate for Learning Long Time Scales with Recurrent Neural Networks",
    "mts": "Mahto et al. 2021, Multi-timescale Representation Learning in LSTM Language Models",
    "own": "Our own, in no paper",
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
    "own": ("digits", "demo"),
}

IDS: tuple[str, ...] = tuple(f"{paper}/{name}" for paper, names in NAMES.items() for name in names)

OWN = ("id", "title", "reproduces", "claims", "published", "extends")
"""What an experiment never takes over from the one it extends."""


def find(id: str, preset: str = "short", overrides: Iterable[str] = ()) -> Experiment:
    """An experiment by its id, with a preset and `path=value` overrides applied."""
    return resolve(written(id), preset, overrides)


def every() -> list[Experiment]:
    """All of them."""
    return [find(id) for id in IDS]


@cache
def written(id: str) -> dict[str, Any]:
    """What the file of an experiment says, over what the one it extends says. Not to be changed."""
    lookup("experiment", id, dict.fromkeys(IDS))
    values = file(id)
    if values.get("id") != id:
        raise ValueError(f"expected the file of {id} to have id {id}, got {values.get('id')!r}")
    return values


def file(place: str) -> dict[str, Any]:
    """What a file says, over what the one it extends says. Files that begin with _ are there to be extended."""
    paper, name = place.split("/")
    values: dict[str, Any] = text.read((files(__package__) / "specs" / paper / f"{name}.yaml").read_text("utf-8"))
    if "extends" not in values:
        return values
    below = {name: value for name, value in file(values["extends"]).items() if name not in OWN}
    return merge(below, {name: value for name, value in values.items() if name != "extends"})
