"""Analyses of trained models: from the folders of finished runs to plain data and tables.

Each takes the runs an experiment needs (see `Experiment.needs`) and what its file says under `arguments`.
"""

from collections.abc import Callable

from .generalisation import generalisation
from .kt_and_p import kt_and_p
from .timescale_growth import timescale_growth
from .trained import Found, Trained
from .unit_ablation import unit_ablation

KNOWN: dict[str, Callable[..., Found]] = {
    "generalisation": generalisation,
    "kt_and_p": kt_and_p,
    "unit_ablation": unit_ablation,
    "timescale_growth": timescale_growth,
}

__all__ = ["KNOWN", "Found", "Trained"]
