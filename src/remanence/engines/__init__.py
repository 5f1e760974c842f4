"""Engines: ways to run a cell over time, and the choice between them."""

from . import loop
from .base import Engine, Result, Task
from .choice import KNOWN, check_name, choose

__all__ = ["KNOWN", "Engine", "Result", "Task", "check_name", "choose", "loop"]
