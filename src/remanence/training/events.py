"""Metrics for TensorBoard, in a file whose bytes depend on the metrics alone.

Torch's own writer puts times, host and process into names and events. Here the time of an event is its update.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from . import files

NAME = "events.out.tfevents.remanence"
_said = False


class Events:
    """The event file of one run."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def rebuild(self, lines: list[dict[str, Any]]) -> None:
        """Write the file anew."""
        if available():
            files.write(self.path, b"".join([_header(), *(_record(line) for line in lines)]))

    def add(self, line: dict[str, Any]) -> None:
        """Add an evaluation."""
        if available():
            files.append(self.path, _record(line), settled=False)  # made anew from the metrics if it must be


def available() -> bool:
    """Whether TensorBoard is installed; if not, that is said once."""
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
    """The numbers of a line of metrics by name: validation/loss and so on."""
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
