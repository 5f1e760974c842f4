"""Tasks by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..names import lookup
from .adding import Adding
from .base import Task
from .copy import Copy
from .copy_variable import CopyVariable
from .dyck import Dyck2
from .frequency import Frequency
from .imdb import IMDB
from .next_word import NextWord
from .pixels import Pixels
from .text import Text

KNOWN: dict[str, type[Task]] = {
    task.name: task for task in (Copy, CopyVariable, Adding, Pixels, IMDB, Frequency, Dyck2, Text, NextWord)
}


def make(name: str, **arguments: Any) -> Task:
    """Make a task by name, with the arguments of a configuration.

    Args:
        name: A name in `KNOWN`.
        arguments: Fields of the task.
    """
    kind = lookup("task", name, KNOWN)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for argument in arguments:
        lookup(f"argument of task {name!r}", argument, known)
    return kind(**arguments)
