"""Loggers for metrics: TensorBoard event files in the run folder, and MLflow or W&B through Lightning's loggers.

Lightning is imported only when requested. The bytes of an event file depend on the metrics alone: the writer of torch
puts times, host and process into names and events; here the time of an event is its update.
"""

from __future__ import annotations

import io
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ..names import lookup
from . import files
from .config import Run

LIGHTNING = "lightning.pytorch.loggers"


class Logger(Protocol):
    """A destination for metrics beside the run folder."""

    def log(self, run: Run, line: dict[str, Any]) -> None:
        """Log a new line of metrics."""

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        """Log the result of a run that has ended."""

    def close(self) -> None:
        """Called when training stops, temporarily or for good."""


class LightningLogger:
    """A logger of Lightning, one instance per run."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._make = lookup("logger", kind, {"mlflow": _mlflow, "wandb": _wandb})
        self._loggers: dict[Path, Any] = {}
        _expect_installed(kind)

    def _of(self, run: Run) -> Any:
        if run.directory not in self._loggers:
            self._loggers[run.directory] = logger = self._make(run)
            logger.log_hyperparams(run.description)
        return self._loggers[run.directory]

    def log(self, run: Run, line: dict[str, Any]) -> None:
        self._of(run).log_metrics(scalars(line), step=line["update"])

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        test = {f"test/{name}": value for name, value in (result["test"] or {}).items() if value is not None}
        self._of(run).log_metrics(test, step=result["updates"])
        self._loggers.pop(run.directory).finalize("success")

    def close(self) -> None:
        for logger in self._loggers.values():
            logger.finalize("interrupted")
        self._loggers.clear()


def make(name: str) -> Logger:
    """A logger by name: "mlflow" or "wandb"."""
    return LightningLogger(name)


def _expect_installed(kind: str) -> None:
    for package in ("lightning", kind):
        if find_spec(package) is None:
            raise ValueError(
                f"expected package {package} for logger {kind!r}, got none; pip install 'remanence-rnn[loggers]' {kind}"
            )


def _mlflow(run: Run) -> Any:
    return import_module(LIGHTNING).MLFlowLogger(
        experiment_name=run.experiment, run_name=f"{run.model_name} seed {run.seed}"
    )


def _wandb(run: Run) -> Any:
    name = f"{run.experiment} {run.model_name} seed {run.seed}"
    return import_module(LIGHTNING).WandbLogger(
        project="remanence", group=run.experiment, name=name, save_dir=str(run.directory.parent)
    )


EVENTS = "events.out.tfevents.remanence"
_said = False


class Events:
    """The event file of one run."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / EVENTS

    def rebuild(self, lines: list[dict[str, Any]]) -> None:
        """Write the whole file."""
        if available():
            files.write(self.path, b"".join([_header(), *(_record(line) for line in lines)]))

    def add(self, line: dict[str, Any]) -> None:
        """Add an evaluation."""
        if available():
            files.append(self.path, _record(line), settled=False)  # can be rebuilt from the metrics


def available() -> bool:
    """Whether TensorBoard is installed; warns once if not."""
    global _said
    try:
        import tensorboard.summary.writer.record_writer  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        if not _said:
            _said = True
            warnings.warn(
                "TensorBoard is not installed, so no event files are written (pip install 'remanence-rnn[train]')",
                stacklevel=2,
            )
        return False
    return True


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """The values of a line of metrics by name: validation/loss and so on."""
    found = {"lr": line["lr"], "epoch": line["epoch"]}
    for split in ("train", "validation"):
        found |= {f"{split}/{name}": value for name, value in line.get(split, {}).items() if value is not None}
    return found


def _header() -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]

    return _framed(Event(wall_time=0.0, file_version="brain.Event:2"))


def _record(line: dict[str, Any]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars(line).items()]
    return _framed(Event(wall_time=float(line["update"]), step=line["update"], summary=Summary(value=values)))


def _framed(event: Any) -> bytes:
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()
