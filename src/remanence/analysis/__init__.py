"""What the papers look at, as numbers: functions on trained models, on metrics, or on nothing but the equations.

Every function returns a dataclass of arrays with a method `plain()` for a JSON file. Nothing here knows of files,
commands or figures.
"""

from .ablation import UnitAblation, random_orders, scores_without, unit_ablation
from .ages import UnitAges, ages_and_resets, exponents, later_reset_units, reference_times, reset_steps, signal_steps
from .decay import DecayCurves, decay_curves
from .gate_functions import GateFunctions, gate_functions
from .generalisation import Generalisation, generalisation
from .plain import Result, as_plain
from .sequences import sequences_of
from .timescale_growth import TimescaleGrowth, timescale_growth
from .toy_flow import ToyCurve, ToyFlow, toy_gradient_flow
from .two_samples import TwoSamples, two_samples

__all__ = [
    "DecayCurves",
    "GateFunctions",
    "Generalisation",
    "Result",
    "TimescaleGrowth",
    "ToyCurve",
    "ToyFlow",
    "TwoSamples",
    "UnitAblation",
    "UnitAges",
    "ages_and_resets",
    "as_plain",
    "decay_curves",
    "exponents",
    "gate_functions",
    "generalisation",
    "later_reset_units",
    "random_orders",
    "reference_times",
    "reset_steps",
    "scores_without",
    "sequences_of",
    "signal_steps",
    "timescale_growth",
    "toy_gradient_flow",
    "two_samples",
    "unit_ablation",
]
