"""Experiments: one YAML file per table or figure of the papers, and the code that runs them."""

from .fitting import Fitted, fit
from .loading import load_model
from .registry import IDS, PAPERS, every, find
from .runs import check, plan, run
from .schema import PRESETS, Experiment, Model
from .way import Way

__all__ = [
    "IDS",
    "PAPERS",
    "PRESETS",
    "Experiment",
    "Fitted",
    "Model",
    "Way",
    "check",
    "every",
    "find",
    "fit",
    "load_model",
    "plan",
    "run",
]
