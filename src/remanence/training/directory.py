"""The folder of a run.

    config.yaml                          the configuration; a run with another configuration is refused
    metrics.jsonl                        one line per evaluation
    result.json                          the result, once the run has ended
    checkpoints/step-00000782.safetensors, best.safetensors, and interrupted.safetensors while a run is stopped
    events.out.tfevents.remanence        metrics.jsonl for TensorBoard
    machine.json                         device, versions, threads, command, date of the first start
    times.jsonl                          wall-clock times
    SHA256SUMS                           digests of config.yaml and machine.json; of all files once the run has ended
    lock                                 held by the process that trains

All files except machine.json, times.jsonl and SHA256SUMS are identical however often a run was interrupted. Checkpoints
contain the metrics, so a run that resumes can rewrite a damaged metrics.jsonl.
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
"""Checkpoints kept during a run: if the newest is damaged, there is another."""
INTERRUPTED = "interrupted.safetensors"
BEST = "best.safetensors"


class Directory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self.lines: list[dict[str, Any]] = []
        """The lines of metrics.jsonl."""
        self.content = b""
        """The bytes of metrics.jsonl."""
        self._check = self._time_check = files.FIRST_CHECK
        self.events = Events(path)

    # Existing files.

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint or a result."""
        return any(path.exists() for path in (self.path / "result.json", self.checkpoints / INTERRUPTED, *self.steps()))

    def expect_configuration(self, description: dict[str, Any]) -> None:
        """Refuse a folder with a run of another configuration, unless that run saved nothing."""
        if self.begun:
            self.expect_written(description)

    def expect_written(self, description: dict[str, Any]) -> None:
        """Refuse a config.yaml of another configuration."""
        import yaml

        path = self.path / "config.yaml"
        if files.known_digests(self.path).get(path.name) == files.digest(as_yaml(description)):
            return  # the digest matches, even if the file itself is damaged
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
                "give another folder, or remove this one to start again"
            )

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a run that has ended."""
        return read_result(self.path)

    @property
    def machine(self) -> dict[str, Any]:
        """The content of machine.json; empty if the run was not started."""
        content = files.read(self.path, "machine.json")
        if content is None:
            return {}
        try:
            machine = json.loads(content)
        except (ValueError, RecursionError):
            machine = None
        if not isinstance(machine, dict):
            raise RunError(f"expected a JSON object in {self.path / 'machine.json'}, got a file that cannot be read")
        return machine

    @property
    def threads(self) -> int | None:
        """Number of threads that the run was started with; None if it was not started."""
        found = self.begun_with("threads")
        return found if isinstance(found, int) and found > 0 else None

    def begun_with(self, name: str) -> Any:
        """A value of machine.json or, failing that, of the newest checkpoint, which holds what the bits depend on."""
        try:
            found = self.machine.get(name)
        except RunError:
            found = None
        if found is None and self.begun:
            whole = self.whole_checkpoints(lambda words: None)
            found = checkpoint.load(whole[max(whole)])[1].get(name) if whole else None
        return found

    def note(self, **what: Any) -> None:
        """Add values to machine.json, unless it has them."""
        machine = self.machine
        if machine | what != machine:
            content = files.as_json(machine | what)
            listed = files.known_digests(self.path)
            files.keep_digests(self.path, {name: listed[name] for name in listed if name != "machine.json"})
            files.write(self.path / "machine.json", content)
            files.keep_digests(self.path, {**listed, "machine.json": files.digest(content)})

    def steps(self) -> list[Path]:
        """Regular checkpoints, the newest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"), reverse=True)

    def has_step(self, update: int) -> bool:
        """Whether there is a regular checkpoint at that update."""
        return (self.checkpoints / step_name(update)).exists()

    # Starting and resuming.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder and lock it: a second process gets a `HeldError`."""
        from filelock import FileLock, Timeout

        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise HeldError(f"expected {self.path} to be free, got a folder in which another process trains") from None
        except OSError as error:
            raise files.cannot_write(self.path, error) from error
        try:
            yield
        finally:
            lock.release()

    def start(self, description: dict[str, Any], machine: dict[str, Any], say: Say = lambda words: None) -> None:
        """Write the configuration and machine, and repair what a killed process or a damaged disk left behind."""
        try:
            self._start(description, machine, say)
        except OSError as error:  # for example, a folder in place of a file
            raise files.cannot_write(Path(error.filename or self.path), error) from error

    def _start(self, description: dict[str, Any], machine: dict[str, Any], say: Say) -> None:
        for folder in (self.path, self.checkpoints):
            remove_left_overs(folder)
        self.expect_configuration(description)  # again, now that the folder is locked
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
            say(f"{self.path / 'machine.json'} was damaged: rewrote it with the machine that resumes the run")
        names = ("config.yaml", "machine.json")
        files.keep_digests(self.path, {name: files.digest((self.path / name).read_bytes()) for name in names})
        self._mend_times(say)

    def _mend_times(self, say: Say) -> None:
        path = self.path / "times.jsonl"
        content = path.read_bytes() if path.exists() else b""
        found, damaged = files.whole_lines(content)
        if damaged is not None:
            say(f"{path} was damaged: dropped line {damaged} and all after it")
        mended, self._time_check = files.packed_lines(found)
        if mended != content:
            files.write(path, mended)

    def whole_checkpoints(self, say: Say) -> dict[int, Path]:
        """All intact checkpoints, by number of updates."""
        found: dict[int, Path] = {}
        paths = [path for path in (self.checkpoints / INTERRUPTED, *self.steps()) if path.exists()]
        for path in paths:
            try:
                _, data = checkpoint.load(path)
            except checkpoint.DamagedError as error:
                say(f"{error}; ignoring it and resuming from an earlier one")
                continue
            found.setdefault(int(data["update"]), path)
        if paths and not found:
            raise RunError(
                f"expected an intact checkpoint in {self.checkpoints}, got only damaged ones; "
                f"remove {self.path} to start again"
            )
        return found

    def rewind_to(self, update: int, metrics: bytes = b"") -> None:
        """Rewind metrics and events to a checkpoint, and remove later checkpoints.

        Args:
            update: Updates done at the checkpoint; 0 to rewind to the start.
            metrics: Content of metrics.jsonl in the checkpoint.
        """
        found, _ = files.whole_lines(metrics)
        # They contain metrics that are removed here, so nothing may resume from them.
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

    # During training.

    def add(self, line: dict[str, Any]) -> None:
        """Append a line to the metrics."""
        content, self._check = files.packed_line(line, self._check)
        files.append(self.metrics, content)
        self.content += content
        self.lines.append(line)
        self.events.add(line)

    def time(self, **what: Any) -> None:
        """Log the current time with these values to times.jsonl."""
        content, self._time_check = files.packed_line({"at": files.now(), **what}, self._time_check)
        files.append(self.path / "times.jsonl", content, settled=False)

    def save(self, update: int, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write the regular checkpoint of an update, and remove those that are no longer needed."""
        checkpoint.save(self.checkpoints / step_name(update), tensors, data)
        self._remove([self.checkpoints / INTERRUPTED, *self.steps()[KEPT:]])

    def save_interrupted(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write a checkpoint of an interrupted run, at an update without a regular one."""
        checkpoint.save(self.checkpoints / INTERRUPTED, tensors, data)

    def save_best(self, tensors: dict[str, Any], data: dict[str, Any]) -> None:
        """Write the best weights by validation, unless the file has them."""
        path = self.checkpoints / BEST
        content = checkpoint.pack(tensors, data)
        if not path.exists() or path.read_bytes() != content:
            files.write(path, content)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result of a run that has ended. Only the last checkpoint and the best weights are kept."""
        content = files.as_json(result)
        listed = {**files.known_digests(self.path), "result.json": files.digest(content)}
        if self.lines:
            listed[self.metrics.name] = files.digest(self.content)
        last = self.steps()[:1]
        for path in (self.path / "times.jsonl", *last, self.checkpoints / BEST):
            if path.exists():
                with path.open("rb") as file:
                    listed[path.relative_to(self.path).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
        files.keep_digests(self.path, listed)  # before result.json, which marks the run as ended
        files.write(self.path / "result.json", content)
        self.tidy()

    def tidy(self) -> None:
        """Remove the files that are not needed after the end of a run."""
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
    """File name of the checkpoint at that update; names sort by update."""
    return f"step-{update:08d}.safetensors"


def read_result(folder: Path) -> dict[str, Any] | None:
    """The content of result.json in a folder; None without one."""
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
        raise RunError(f"expected a result in {path}, got a file that cannot be read; remove it to continue")
    return result


def as_yaml(description: dict[str, Any]) -> bytes:
    """A configuration as a human-readable YAML file."""
    import yaml

    content: str = yaml.safe_dump(plain(description), sort_keys=False, allow_unicode=True)
    return content.encode()


def difference(there: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Name and both values of the first field in which two configurations differ; None if they are equal."""
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
    """The folder on ranks other than the first: keeps the metrics, which control the run, but uses no files."""

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
