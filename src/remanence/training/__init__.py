"""The loop around a model: optimiser, schedule, checkpoints, resuming after an interruption, time budget, progress."""

from . import loggers
from .config import Optimiser, Run, Schedule, Stop, Training
from .files import RunError
from .interruption import Budget, Stopped
from .progress import Progress, Quiet, Silent
from .ranks import Ranks
from .runs import train

__all__ = [
    "Budget",
    "Optimiser",
    "Progress",
    "Quiet",
    "Ranks",
    "Run",
    "RunError",
    "Schedule",
    "Silent",
    "Stop",
    "Stopped",
    "Training",
    "loggers",
    "train",
]
