"""A run's folder as it is seen by ranks that write nothing."""

from __future__ import annotations

from typing import Any

from .directory import Directory


class Elsewhere(Directory):
    """Knows the metrics, which decide how a run goes on; the first rank alone reads and writes files."""

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def note(self, **what: Any) -> None:
        pass

    def time(self, **what: Any) -> None:
        pass

    def save(self, update: int, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        pass

    def save_interrupted(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        pass

    def save_best(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        pass

    def finish(self, result: dict[str, Any]) -> None:
        pass
