"""Tasks on the user's own data."""

from .data import SequenceData
from .described import Described
from .task import DataTask, GivenData

__all__ = ["DataTask", "Described", "GivenData", "SequenceData"]
