"""Sections of a report, from result folders."""

from .gathering import gather
from .run_folders import sweeps_in, typed

__all__ = ["gather", "sweeps_in", "typed"]
