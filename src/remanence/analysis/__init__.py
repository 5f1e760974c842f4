"""The analyses of the papers: functions of trained models, of training metrics, or of the equations alone.

Every function returns a dataclass of arrays with a method `plain()`, which returns JSON-serialisable data. Nothing here
depends on files, commands or figures.
"""

from .ablation import UnitAblation, random_orders, scores_without, unit_ablation
from .ages import UnitAges, ages_and_resets, exponents, later_reset_units, reference_times, reset_steps, signal_steps
from .assigned import AssignedEstimated, assigned_against_estimated
from .at_rest import LayerAtRest, gates_at_rest
from .attractors import Attractors, attractors
from .bootstrap import PairedBootstrap, paired_bootstrap
from .by_length import AccuracyByLength, ScoresOfSequences, accuracy_by_length, scores_of_sequences
from .decay import DecayCurves, decay_curves
from .decay_fits import DecayFits, fit_decay
from .dependency import (
    AccuracyByDependency,
    PairTimescales,
    accuracy_by_dependency,
    longest_dependencies,
    pair_timescale_distribution,
    pair_timescales,
)
from .forget_maps import ForgetMap, ForgetMaps, forget_maps
from .forget_values import estimated_timescales
from .free_decay import FreeDecay, LayerDecay, free_decay
from .frequency_bins import BinnedPerplexity, both_countings, perplexity_by_frequency
from .gate_functions import GateFunctions, gate_functions
from .generalisation import Generalisation, generalisation
from .groups import Groups, groups_of_units
from .opened import as_model
from .plain import Result, as_plain
from .reset_maps import ResetMap, ResetMaps, reset_maps
from .routing import Routing, losses_without, routing
from .sequences import sequences_of
from .timescale_distribution import LayerTimescales, TimescaleDistribution, timescale_distribution
from .timescale_fits import Fit, TimescaleFits, timescale_fits
from .timescale_growth import TimescaleGrowth, timescale_growth
from .toy_flow import ToyCurve, ToyFlow, toy_gradient_flow
from .two_samples import TwoSamples, two_samples
from .word_ablation import WordAblation, word_ablation

__all__ = [
    "AccuracyByDependency",
    "AccuracyByLength",
    "AssignedEstimated",
    "Attractors",
    "BinnedPerplexity",
    "DecayCurves",
    "DecayFits",
    "Fit",
    "ForgetMap",
    "ForgetMaps",
    "FreeDecay",
    "GateFunctions",
    "Generalisation",
    "Groups",
    "LayerAtRest",
    "LayerDecay",
    "LayerTimescales",
    "PairTimescales",
    "PairedBootstrap",
    "ResetMap",
    "ResetMaps",
    "Result",
    "Routing",
    "ScoresOfSequences",
    "TimescaleDistribution",
    "TimescaleFits",
    "TimescaleGrowth",
    "ToyCurve",
    "ToyFlow",
    "TwoSamples",
    "UnitAblation",
    "UnitAges",
    "WordAblation",
    "accuracy_by_dependency",
    "accuracy_by_length",
    "ages_and_resets",
    "as_model",
    "as_plain",
    "assigned_against_estimated",
    "attractors",
    "both_countings",
    "decay_curves",
    "estimated_timescales",
    "exponents",
    "fit_decay",
    "forget_maps",
    "free_decay",
    "gate_functions",
    "gates_at_rest",
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
    "reset_maps",
    "reset_steps",
    "routing",
    "scores_of_sequences",
    "scores_without",
    "sequences_of",
    "signal_steps",
    "timescale_distribution",
    "timescale_fits",
    "timescale_growth",
    "toy_gradient_flow",
    "two_samples",
    "unit_ablation",
    "word_ablation",
]
