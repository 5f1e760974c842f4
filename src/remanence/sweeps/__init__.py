"""Sweeps: a grid of experiments, models, seeds and values, run on one machine or on a cluster."""

from .folder import State, Sweep
from .grid import Grid, Unit, read, units
from .launchers import launcher_named
from .places import Launcher, Places

__all__ = ["Grid", "Launcher", "Places", "State", "Sweep", "Unit", "launcher_named", "read", "units"]
