"""Tasks from sequences of one's own."""

from .data import SequenceData
from .described import Described
from .task import DataTask, GivenData

__all__ = ["DataTask", "Described", "GivenData", "SequenceData"]
