"""A run's folder.

    config.yaml                          what was asked for; a run with another configuration is refused
    metrics.jsonl                        one line per evaluation
    result.json                          once the run has ended
    checkpoints/step-00000782.safetensors, best.safetensors, and interrupted.safetensors while a run waits to go on
    events.out.tfevents.remanence        metrics.jsonl for TensorBoard
    machine.json                         device, versions, threads, command, date of the first start
    times.jsonl                          wall-clock times
    SHA256SUMS                           digests of config.yaml and machine.json, of all others once the run has ended
    lock                                 held by the process that trains

All but machine.json, times.jsonl and SHA256SUMS are the same however often a run was interrupted. Checkpoints hold the
metrics, so that a damaged metrics.jsonl is written anew by a run that goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import remove_left_overs
from . import checkpoint, files
from .config import plain
from .files import HeldError, RunError, Say
from .loggers import Events

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
        self.content = b""
        """The same, as it is written."""
        self._check = self._time_check = files.FIRST_CHECK
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
        if not self.begun or files.known_digests(self.path).get(path.name) == files.digest(as_yaml(description)):
            return  # of a folder with that digest it is the same, even if the file itself was damaged
        content = files.read(self.path, path.name)
        if content is None:
            return
        try:
            found = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError, RecursionError):
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
        content = files.read(self.path, "machine.json")
        if content is None:
            return {}
        try:
            machine = json.loads(content)
        except (ValueError, RecursionError):
            machine = None
        if not isinstance(machine, dict):
            raise RunError(f"expected a machine in {self.path / 'machine.json'}, got a file that cannot be read")
        return machine

    @property
    def threads(self) -> int | None:
        """With how many threads the run was started, None if it was not."""
        found = self.begun_with("threads")
        return found if isinstance(found, int) and found > 0 else None

    def begun_with(self, name: str) -> Any:
        """What machine.json says, or the newest checkpoint, which knows what the bits depend on, too; else None."""
        try:
            found = self.machine.get(name)
        except RunError:
            found = None
        if found is None and self.begun:
            whole = self.whole_checkpoints(lambda words: None)
            found = checkpoint.load(whole[max(whole)])[1].get(name) if whole else None
        return found

    def note(self, **what: Any) -> None:
        """Add something to machine.json, unless it says so."""
        machine = self.machine
        if machine | what != machine:
            content = files.as_json(machine | what)
            listed = files.known_digests(self.path)
            files.keep_digests(self.path, {name: listed[name] for name in listed if name != "machine.json"})
            files.write(self.path / "machine.json", content)
            files.keep_digests(self.path, {**listed, "machine.json": files.digest(content)})

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

    def start(self, description: dict[str, Any], machine: dict[str, Any], say: Say = lambda words: None) -> None:
        """Write what is known from the start, and mend what a killed process or a damaged disk left."""
        try:
            self._start(description, machine, say)
        except OSError as error:  # such as a folder in place of a file
            raise files.cannot_write(Path(error.filename or self.path), error) from error

    def _start(self, description: dict[str, Any], machine: dict[str, Any], say: Say) -> None:
        for folder in (self.path, self.checkpoints):
            remove_left_overs(folder)
        self.expect_configuration(description)  # again: only now is it sure that nobody else changes it
        listed = files.known_digests(self.path)
        path, content = self.path / "config.yaml", as_yaml(description)
        there = path.read_bytes() if path.exists() else None
        same = there == content
        if not same and (there is None or not self.begun or path.name in listed):
            files.write(path, content)
        try:
            started = self.machine
            damaged = False
        except RunError:
            started, damaged = {}, True
        if not started or (not same and not self.begun):
            files.write(self.path / "machine.json", files.as_json(machine))
        if damaged:
            say(f"{self.path / 'machine.json'} was damaged: it is written anew, and says where the run goes on")
        names = ("config.yaml", "machine.json")
        files.keep_digests(self.path, {name: files.digest((self.path / name).read_bytes()) for name in names})
        self._mend_times(say)

    def _mend_times(self, say: Say) -> None:
        path = self.path / "times.jsonl"
        content = path.read_bytes() if path.exists() else b""
        found, damaged = files.whole_lines(content)
        if damaged is not None:
            say(f"{path} was damaged: line {damaged} and those after it are left out")
        mended, self._time_check = files.packed_lines(found)
        if mended != content:
            files.write(path, mended)

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

    def rewind_to(self, data: dict[str, Any] | None, metrics: bytes | None = None) -> None:
        """Let metrics and events hold what a checkpoint knows of, None for nothing. Later checkpoints go.

        Args:
            data: the plain data of the checkpoint.
            metrics: the metrics it holds; None for a checkpoint of an earlier version, which held none.
        """
        update = 0 if data is None else int(data["update"])
        if metrics is not None:
            found, _ = files.whole_lines(metrics)
        else:
            found = [] if data is None else self._lines_until(int(data["evaluated"]))
        # They know of metrics that are taken back here: nobody must go on from them.
        later = [path for path in self.steps() if path.name > step_name(update)]
        if update == 0 or self.has_step(update):
            later.append(self.checkpoints / INTERRUPTED)
        self._remove(later)
        self.lines = found
        self.content, self._check = files.packed_lines(found)
        try:
            there = self.metrics.read_bytes() if self.metrics.exists() else b""
        except OSError as error:
            raise files.cannot_write(self.metrics, error) from error
        if not self.content:
            self._remove([self.metrics])
        elif there != self.content:
            files.write(self.metrics, self.content)
        self.events.rebuild(self.lines)

    def _lines_until(self, evaluated: int) -> list[dict[str, Any]]:
        """What metrics.jsonl holds up to an update, of a run that an earlier version began."""
        try:
            found = [line for line in files.read_lines(self.path, self.metrics.name) if line["update"] <= evaluated]
            complete = not evaluated or found[-1]["update"] == evaluated
        except (RunError, LookupError, TypeError):
            complete = False
        if not complete:
            raise RunError(
                f"expected evaluations up to update {evaluated} in {self.metrics}, got a file without them; "
                f"remove {self.path} to start anew"
            )
        return found

    # On the way.

    def add(self, line: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        content, self._check = files.packed_line(line, self._check)
        files.append(self.metrics, content)
        self.content += content
        self.lines.append(line)
        self.events.add(line)

    def time(self, **what: Any) -> None:
        """Note when something happened."""
        content, self._time_check = files.packed_line({"at": files.now(), **what}, self._time_check)
        files.append(self.path / "times.jsonl", content, settled=False)

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
        content = files.as_json(result)
        listed = {**files.known_digests(self.path), "result.json": files.digest(content)}
        if self.lines:
            listed[self.metrics.name] = files.digest(self.content)
        last = self.steps()[:1]
        for path in (self.path / "times.jsonl", *last, self.checkpoints / BEST):
            if path.exists():
                with path.open("rb") as file:
                    listed[path.relative_to(self.path).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
        files.keep_digests(self.path, listed)  # before the result, with which the run has ended
        files.write(self.path / "result.json", content)
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
    if not path.exists():
        return None
    content = files.read(folder, path.name)
    if content is None:
        return None
    try:
        result = json.loads(content, parse_constant=files.no_number)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise RunError(f"expected a result in {path}, got a file that cannot be read; remove it to go on")
    return result


def as_yaml(description: dict[str, Any]) -> bytes:
    """A configuration as a file for people."""
    import yaml

    content: str = yaml.safe_dump(plain(description), sort_keys=False, allow_unicode=True)
    return content.encode()


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


class InMemoryDirectory(Directory):
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
