"""From folders of results to the sections of a report."""

from .gathering import gather
from .run_folders import sweeps_in

__all__ = ["gather", "sweeps_in"]
