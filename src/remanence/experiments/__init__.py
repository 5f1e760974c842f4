"""One file for every table and figure of the papers, and what turns it into runs."""

from .fitting import Fitted, fit
from .loading import load_model
from .registry import IDS, PAPERS, every, find
from .runs import Way, check, plan, run
from .schema import PRESETS, Experiment, Model

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
