"""User-defined tasks, given as `my_module:MyTask`. Naming one imports its module."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..names import imported
from ..tasks import KNOWN, DataTask, Task
from ..tasks.own.described import interface
from ..training.config import plain


def is_own(name: object) -> bool:
    """Whether a task name has the form `module:Class`."""
    return isinstance(name, str) and ":" in name


def own_task(text: str, path: str) -> type[Task]:
    """Import the class `module:Class`. The module is found as in a Python import.

    Args:
        text: the name.
        path: position in the configuration, for messages.
    """
    found = imported(path, text)
    if not (isinstance(found, type) and issubclass(found, Task)):
        got = "nothing of that name" if found is None else f"a {type(found).__name__}"
        raise ValueError(f"expected {path} {text!r} to be a subclass of remanence.tasks.Task, got {got}")
    missing = sorted(found.__abstractmethods__)
    missing += [name for name in ("name", "readout", "goal") if not hasattr(found, name)]
    if missing:
        raise ValueError(f"expected {path} {text!r} to define {', '.join(missing)}, got a class without them")
    if not dataclasses.is_dataclass(found):
        raise ValueError(f"expected {path} {text!r} to be a dataclass, whose fields are arguments, got a plain class")
    return found


def describe_task(task: Task) -> dict[str, Any]:
    """A task as plain data: its name and arguments, and the digests of its data."""
    kind = type(task)
    ours = kind.__module__.split(".")[0] == __name__.split(".")[0]
    return {
        "name": task.name if ours else f"{kind.__module__}:{kind.__qualname__}",
        **(plain(task) if dataclasses.is_dataclass(task) else {}),
        **({"data": task.digests} if isinstance(task, DataTask) else {}),
    }


def describe_interface(task: Task) -> dict[str, Any]:
    """The interface of a user-defined task, so that the run folder can be read without its code."""
    return {} if KNOWN.get(task.name) is type(task) else {"interface": interface(task)}
