"""In what runs are not as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..configuration import flat
from ..configuration import one as one_value
from ..models import describe
from ..registry import IDS, find
from ..schema import Experiment
from .run_folders import RunFolder

NO_MATTER = ("checkpoint_every", "evaluate_every", "evaluate_batch", "watch_timescales", "compile")
"""Settings of a training that do not change what is trained."""


def changes(experiment: Experiment, groups: Mapping[str, Sequence[RunFolder]]) -> str:
    """In what runs are not as in the preset of the paper, in words."""
    if experiment.id not in IDS or experiment.paper == "own":
        return ""
    paper = find(experiment.id, "paper")
    found: dict[str, str] = {}
    for name, group in groups.items():
        if name in paper.models:
            whole = flat(describe(paper, paper.models[name], 0))
            for field, value in flat(group[0].description).items():
                part, name_of = field.split(".")[0], field.split(".")[-1]
                matters = part in ("task", "layer", "training") and name_of not in NO_MATTER and field in whole
                if matters and whole[field] != value:
                    found[field] = f"{field} {value_of(value)} instead of {value_of(whole[field])}"
    words = list(found.values())
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def value_of(value: Any) -> str:
    """A setting in words."""
    return "none" if value is None else one_value(value)
