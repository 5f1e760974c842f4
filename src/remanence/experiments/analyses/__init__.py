"""Analyses of trained models: from the folders of finished runs to plain data and tables.

Each takes the runs that an experiment needs (see `Experiment.needs`) and the `arguments` in its file.
"""

from collections.abc import Callable

from .attractors import attractors
from .by_frequency import by_frequency
from .copy_task import generalisation, kt_and_p, unit_ablation
from .estimated_timescales import assigned_vs_estimated, fitted_timescales
from .forget_heatmaps import forget_heatmaps
from .perplexities import layer_choice, shape_sweep
from .routing import routing
from .timescale_growth import timescale_growth
from .trained import Findings, Trained
from .word_ablation import word_ablation

KNOWN: dict[str, Callable[..., Findings]] = {
    "generalisation": generalisation,
    "kt_and_p": kt_and_p,
    "unit_ablation": unit_ablation,
    "timescale_growth": timescale_growth,
    "by_frequency": by_frequency,
    "fitted_timescales": fitted_timescales,
    "routing": routing,
    "assigned_vs_estimated": assigned_vs_estimated,
    "forget_heatmaps": forget_heatmaps,
    "word_ablation": word_ablation,
    "shape_sweep": shape_sweep,
    "layer_choice": layer_choice,
    "attractors": attractors,
}

__all__ = ["KNOWN", "Findings", "Trained"]
