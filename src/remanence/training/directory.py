"""A run's folder.

    config.yaml                          what was asked for; a run with another configuration is refused
    metrics.jsonl                        one line per evaluation
    result.json                          once the run has ended
    checkpoints/step-00000782.safetensors, best.safetensors, and interrupted.safetensors while a run waits to go on
    events.out.tfevents.remanence        metrics.jsonl for TensorBoard
    machine.json                         device, versions, threads, command, date of the first start
    times.jsonl                          wall-clock times
    lock                                 held by the process that trains

All but machine.json and times.jsonl are the same however often a run was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..files import remove_left_overs
from . import checkpoint, files
from .events import Events
from .files import HeldError, RunError
from .plain import plain

Say = Callable[[str], None]
KEPT = 2
"""Checkpoints kept while a run goes on: should the newest be damaged, there is another."""
INTERRUPTED = "interrupted.safetensors"
BEST = "best.safetensors"


class Directory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.lines: list[dict[str, Any]] = []
        """What metrics.jsonl holds."""
        self.size = 0
        """Bytes of metrics.jsonl."""
        self.events = Events(path)

    # What is there already.

    @property
    def begun(self) -> bool:
        """Whether there is something to go on from or to keep: a checkpoint or a result."""
        return any(path.exists() for path in (self.path / "result.json", self.checkpoints / INTERRUPTED, *self.steps()))

    def expect_configuration(self, description: dict[str, Any]) -> None:
        """Refuse a folder with a run of another configuration. One that came to nothing gives way."""
        import yaml

        path = self.path / "config.yaml"
        if not self.begun or not path.exists():
            return
        try:
            found = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError, UnicodeDecodeError):
            raise RunError(f"expected a configuration in {path}, got a file that cannot be read") from None
        different = difference(found, plain(description))
        if different is not None:
            name, there, now = different
            raise RunError(
                f"expected {name} to be {there!r} as in {path}, got {now!r}; "
                "give another folder, or remove that one to start anew"
            )

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a run that has ended."""
        return read_result(self.path)

    @property
    def machine(self) -> dict[str, Any]:
        """Where the run was started; empty if it was not."""
        try:
            machine: dict[str, Any] = json.loads((self.path / "machine.json").read_text())
        except (OSError, ValueError):
            return {}
        return machine

    def steps(self) -> list[Path]:
        """Checkpoints at fixed updates, the newest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"), reverse=True)

    def has_step(self, update: int) -> bool:
        """Whether there is a checkpoint at that update."""
        return (self.checkpoints / step_name(update)).exists()

    # Beginning.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and hold it: a second process is refused."""
        from filelock import FileLock, Timeout

        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise HeldError(f"expected {self.path} to be free, got a folder that another process trains in") from None
        except OSError as error:
            raise files.cannot_write(self.path, error) from error
        try:
            yield
        finally:
            lock.release()

    def start(self, description: dict[str, Any], machine: dict[str, Any]) -> None:
        """Write what is known from the start, and take away what a killed process left half written."""
        import yaml

        for folder in (self.path, self.checkpoints):
            remove_left_overs(folder)
        self.expect_configuration(description)  # again: only now is it sure that nobody else changes it
        path = self.path / "config.yaml"
        content = yaml.safe_dump(plain(description), sort_keys=False, allow_unicode=True).encode()
        other = path.exists() and not self.begun and path.read_bytes() != content
        if other or not path.exists():
            files.write(path, content)
        if other or not self.machine:
            files.write(self.path / "machine.json", as_json(machine))

    def whole_checkpoints(self, say: Say) -> dict[int, Path]:
        """Every checkpoint that is not damaged, by its number of updates."""
        found: dict[int, Path] = {}
        paths = [path for path in (self.checkpoints / INTERRUPTED, *self.steps()) if path.exists()]
        for path in paths:
            try:
                _, data = checkpoint.load(path)
            except checkpoint.DamagedError as error:
                say(f"{error}; it is left out, and the run goes on from an earlier one")
                continue
            found.setdefault(int(data["update"]), path)
        if paths and not found:
            raise RunError(
                f"expected a whole checkpoint in {self.checkpoints}, got damaged ones only; "
                f"remove {self.path} to start anew"
            )
        return found

    def go_back_to(self, data: dict[str, Any] | None) -> None:
        """Let metrics and events hold what a checkpoint knows of, None for nothing. Later checkpoints go."""
        update, self.size = (0, 0) if data is None else (int(data["update"]), int(data["metrics_bytes"]))
        # They know of metrics that are taken back here: nobody must go on from them.
        later = [path for path in self.steps() if path.name > step_name(update)]
        if update == 0 or self.has_step(update):
            later.append(self.checkpoints / INTERRUPTED)
        self._remove(later)
        try:
            content = self.metrics.read_bytes() if self.metrics.exists() else b""
            if len(content) < self.size:
                raise RunError(
                    f"expected at least {self.size} bytes in {self.metrics}, got {len(content)}; "
                    f"remove {self.path} to start anew"
                )
            if len(content) > self.size:
                os.truncate(self.metrics, self.size)
        except OSError as error:
            raise files.cannot_write(self.metrics, error) from error
        self.lines = [json.loads(line) for line in content[: self.size].splitlines()]
        self.events.rebuild(self.lines)

    # On the way.

    def add(self, line: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        content = json.dumps(line, allow_nan=False).encode() + b"\n"
        files.append(self.metrics, content)
        self.size += len(content)
        self.lines.append(line)
        self.events.add(line)

    def time(self, **what: Any) -> None:
        """Note when something happened."""
        files.append(self.path / "times.jsonl", json.dumps({"at": now(), **what}).encode() + b"\n", settled=False)

    def save(self, update: int, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write the checkpoint of an update, and remove those it makes superfluous."""
        checkpoint.save(self.checkpoints / step_name(update), tensors, data)
        self._remove([self.checkpoints / INTERRUPTED, *self.steps()[KEPT:]])

    def save_interrupted(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write a checkpoint to go on from, at an update that has none otherwise."""
        checkpoint.save(self.checkpoints / INTERRUPTED, tensors, data)

    def save_best(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write the weights that were best in validation, unless they are there."""
        path = self.checkpoints / BEST
        content = checkpoint.pack(tensors, data)
        if not path.exists() or path.read_bytes() != content:
            files.write(path, content)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result of a run that has ended; of its checkpoints the last and the best stay."""
        files.write(self.path / "result.json", as_json(result))
        self.tidy()

    def tidy(self) -> None:
        """Remove what a run that has ended does not need."""
        self._remove([self.checkpoints / INTERRUPTED, *self.steps()[1:]])

    @property
    def tidied(self) -> bool:
        """Whether nothing is left to remove."""
        return len(self.steps()) <= 1 and not (self.checkpoints / INTERRUPTED).exists()

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise files.cannot_write(path, error) from error


def step_name(update: int) -> str:
    """The file of the checkpoint at that update; names are in the order of updates."""
    return f"step-{update:08d}.safetensors"


def read_result(folder: Path) -> dict[str, Any] | None:
    """What result.json in a folder holds, None where there is none."""
    path = folder / "result.json"
    try:
        result = json.loads(path.read_text("utf-8"))
        if not isinstance(result, dict):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        raise RunError(f"expected a result in {path}, got a file that cannot be read; remove it to go on") from None
    return result


def now() -> str:
    """The present time, for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def as_json(content: dict[str, Any]) -> bytes:
    """Plain data as a file for people."""
    return (json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def difference(there: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two configurations differ: its name and both values."""
    if isinstance(there, dict) and isinstance(now, dict):
        for key in [*now, *(key for key in there if key not in now)]:
            found = difference(there.get(key), now.get(key), f"{name}.{key}" if name else str(key))
            if found is not None:
                return found
        return None
    if there == now and isinstance(there, bool) == isinstance(now, bool):
        return None
    return name or "the configuration", there, now
