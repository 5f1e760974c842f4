"""Engines: ways to run a cell over time, and the choice between them."""

from . import loop
from .base import Engine, EngineResult, EngineTask, Zeros
from .check import check
from .choice import choose, fitted_to, run_stacked
from .explain import Explanation, explain
from .kernels.contract import derivation
from .side_by_side import stacked
from .streaming import STEPPING, QuickSteps, equation, step
from .table import KNOWN, check_name, runs_side_by_side
from .traced import ready, run

__all__ = [
    "KNOWN",
    "STEPPING",
    "Engine",
    "EngineResult",
    "EngineTask",
    "Explanation",
    "QuickSteps",
    "Zeros",
    "check",
    "check_name",
    "choose",
    "derivation",
    "equation",
    "explain",
    "fitted_to",
    "loop",
    "ready",
    "run",
    "run_stacked",
    "runs_side_by_side",
    "stacked",
    "step",
]
