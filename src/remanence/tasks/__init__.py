"""Tasks: sequences to learn from, a loss and metrics. One file per task."""

from .adding import Adding
from .base import Batch, Readout, Score, Source, Split, Task, side_by_side
from .copy import Copy
from .copy_variable import CopyVariable
from .dyck import Dyck2
from .frequency import Frequency
from .generators import generator
from .imdb import IMDB
from .named import KNOWN, make
from .next_word import NextWord
from .own import DataTask, Described, GivenData, SequenceData
from .pixels import Pixels
from .text import Text

__all__ = [
    "IMDB",
    "KNOWN",
    "Adding",
    "Batch",
    "Copy",
    "CopyVariable",
    "DataTask",
    "Described",
    "Dyck2",
    "Frequency",
    "GivenData",
    "NextWord",
    "Pixels",
    "Readout",
    "Score",
    "SequenceData",
    "Source",
    "Split",
    "Task",
    "Text",
    "generator",
    "make",
    "side_by_side",
]
