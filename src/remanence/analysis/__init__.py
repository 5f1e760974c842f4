"""What the papers look at, as numbers: functions on trained models, on metrics, or on nothing but the equations.

Every function returns a dataclass of arrays with a method `plain()` for a JSON file. Nothing here knows of files,
commands or figures.
"""

from .ablation import UnitAblation, random_orders, scores_without, unit_ablation
from .ages import UnitAges, ages_and_resets, exponents, later_reset_units, reference_times, reset_steps, signal_steps
from .assigned import AssignedEstimated, assigned_against_estimated, estimated_timescales
from .bootstrap import PairedBootstrap, paired_bootstrap
from .decay import DecayCurves, decay_curves
from .dependency import (
    AccuracyByDependency,
    PairTimescales,
    accuracy_by_dependency,
    longest_dependencies,
    pair_timescale_distribution,
    pair_timescales,
)
from .frequency_bins import BinnedPerplexity, both_countings, perplexity_by_frequency
from .gate_functions import GateFunctions, gate_functions
from .generalisation import Generalisation, generalisation
from .groups import Groups, groups_of_units
from .plain import Result, as_plain
from .routing import Routing, losses_without, routing
from .sequences import sequences_of
from .timescale_fits import Fit, TimescaleFits, timescale_fits
from .timescale_growth import TimescaleGrowth, timescale_growth
from .toy_flow import ToyCurve, ToyFlow, toy_gradient_flow
from .two_samples import TwoSamples, two_samples
from .word_ablation import WordAblation, word_ablation

__all__ = [
    "AccuracyByDependency",
    "AssignedEstimated",
    "BinnedPerplexity",
    "DecayCurves",
    "Fit",
    "GateFunctions",
    "Generalisation",
    "Groups",
    "PairTimescales",
    "PairedBootstrap",
    "Result",
    "Routing",
    "TimescaleFits",
    "TimescaleGrowth",
    "ToyCurve",
    "ToyFlow",
    "TwoSamples",
    "UnitAblation",
    "UnitAges",
    "WordAblation",
    "accuracy_by_dependency",
    "ages_and_resets",
    "as_plain",
    "assigned_against_estimated",
    "both_countings",
    "decay_curves",
    "estimated_timescales",
    "exponents",
    "gate_functions",
    "generalisation",
    "groups_of_units",
    "later_reset_units",
    "longest_dependencies",
    "losses_without",
    "pair_timescale_distribution",
    "pair_timescales",
    "paired_bootstrap",
    "perplexity_by_frequency",
    "random_orders",
    "reference_times",
    "reset_steps",
    "routing",
    "scores_without",
    "sequences_of",
    "signal_steps",
    "timescale_fits",
    "timescale_growth",
    "toy_gradient_flow",
    "two_samples",
    "unit_ablation",
    "word_ablation",
]
