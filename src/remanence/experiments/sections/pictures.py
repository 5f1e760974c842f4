"""Figures of an experiment, as far as there is something to draw."""

from __future__ import annotations

from pathlib import Path

from ...report.figure import Figure
from ...report.figures import KNOWN
from ...report.figures.learning_curves import learning_curves
from ..figures import files_of, statement_of
from ..schema import Experiment

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What files that are not as they should be end in: one of them must not cost the whole page."""


def figures_of(experiment: Experiment, root: Path | None, notes: list[str]) -> list[Figure]:
    """Figures as far as there is something to draw; else a note."""
    if root is None:
        notes.append(
            "No figures: these runs do not lie in EXPERIMENT/PRESET/MODEL/seed-N as `remanence run` puts them."
        )
        return []
    make = KNOWN.get(experiment.id)
    if make is None:
        if experiment.kind != "training":
            return []
        make = learning_curves
    try:
        return make(files_of(experiment, root), statement_of(experiment))
    except UNREADABLE as error:
        notes.append(f"No figures yet: {error}.")
        return []
