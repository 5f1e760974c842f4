"""The sections of a report: their rows, their tables, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..table import Table
from .first_use import FirstUse
from .growth import Growth
from .language import LanguageStep
from .program import Program
from .replicas import Replicas
from .shapes import Shape
from .streaming import StreamingStep
from .timings import Timing
from .turns import LanguageTurns
from .work import TORCH, TORCH_PROJECTED


@dataclass(frozen=True)
class BenchSection:
    """Rows of one kind."""

    name: str
    """The field of `BenchReport` and of the file."""
    row: type[Any]
    table: Callable[[list[Any]], Table]
    """The table of some rows; of one shape, if the rows have shapes."""
    derived: tuple[str, ...] = ()
    """Properties of a row that are written to the file as well."""
    reading: str = ""
    """How to read the tables, with `{precision}` and `{rival}`; empty if the paragraph of another section says it."""

    def plain(self, row: Any) -> dict[str, Any]:
        """A row as plain data. A shape is split into a name and its sizes."""
        values = asdict(row)
        if "shape" in values:
            shape: dict[str, Any] = values.pop("shape")
            values = {"shape": shape.pop("name"), "sizes": shape} | values
        return values | {name: getattr(row, name) for name in self.derived}

    def made(self, values: Mapping[str, Any]) -> Any:
        """Rebuild a row from plain data, ignoring the derived values."""
        given = {entry.name: values[entry.name] for entry in fields(self.row) if entry.name in values}
        if "sizes" in values:
            given["shape"] = Shape(values["shape"], **values["sizes"])
        return self.row(**given)

    def tables(self, rows: list[Any]) -> list[Table]:
        """The tables of all rows: one per shape, if the rows have shapes."""
        shapes = dict.fromkeys(getattr(row, "shape", None) for row in rows)
        return [self.table([row for row in rows if getattr(row, "shape", None) == shape]) for shape in shapes]


# Tables.


def timing_table(rows: list[Timing]) -> Table:
    """All layers and engines at one shape."""
    shape = rows[0].shape
    return Table(
        f"{shape.name}: {shape.sizes}",
        ("layer", "engine", "forward", "ratio", "training", "ratio", "KiB/step", "ratio"),
        [
            (
                layer_named(row.layer),
                engine_named(row.layer, row.engine, row.ran),
                number(row.forward_ms),
                number(row.forward_ratio),
                number(row.training_ms),
                number(row.training_ratio),
                number(None if row.bytes_per_step is None else row.bytes_per_step / 1024, digits=0),
                number(row.memory_ratio),
            )
            for row in rows
        ],
        words=2,
        notes=missing(rows),
    )


def missing(rows: list[Timing]) -> list[str]:
    """One note per reason, with the rows that it applies to."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            name = f"{layer_named(row.layer)} {engine_named(row.layer, row.engine, row.ran)}".strip()
            reasons.setdefault(row.reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def growth_table(rows: list[Growth]) -> Table:
    """How time grows with T, B and H."""
    return Table(
        f"growth: training time at twice the size over that at {rows[0].shape.sizes}",
        ("layer", "engine", "training", "2T / T", "2B / B", "2H / H"),
        [
            (
                layer_named(row.layer),
                engine_named(row.layer, row.ran, row.ran),
                *(number(value) for value in (row.training_ms, row.steps, row.batch, row.units)),
            )
            for row in rows
        ],
        words=2,
        notes=list(dict.fromkeys(row.reason for row in rows if row.reason)),
    )


def replica_table(rows: list[Replicas]) -> Table:
    """A training step of several replicas."""
    headings, values = ["training", "ratio"], ["training_ms", "ratio"]
    if any(row.replayed_ms is not None for row in rows):
        headings += ["as a CUDA graph", "ratio"]
        values += ["replayed_ms", "replayed_ratio"]
    return Table(
        f"replicas: time of a training step with several replicas over one, at {rows[0].shape.sizes}",
        ("layer", "replicas", *headings),
        [(layer_named(row.layer), str(row.count), *(number(getattr(row, value)) for value in values)) for row in rows],
        words=1,
        notes=list(dict.fromkeys(row.reason for row in rows if row.reason)),
    )


def program_table(rows: list[Program]) -> Table:
    """Overhead of the training loop."""
    return Table(
        "the training loop",
        ("task", "model", "seeds", "bare", "whole", "ratio"),
        [
            (row.task, row.layer, str(row.replicas), number(row.bare_ms), number(row.whole_ms), number(row.ratio))
            for row in rows
        ],
        words=2,
        notes=[],
    )


def language_table(rows: list[LanguageStep]) -> Table:
    """Training steps of language models."""
    return Table(
        "word-level language model",
        ("text", "model", "engine", "words", "batch", "training", "ratio", "epoch, s", "softmax"),
        [
            (
                *(row.corpus, row.model, row.engine, f"{row.words:,}", str(row.batch)),
                *(number(row.training_ms), number(row.ratio), number(row.epoch_seconds, 1), number(row.softmax_ms)),
            )
            for row in rows
        ],
        words=3,
    )


def turns_table(rows: list[LanguageTurns]) -> Table:
    """Several language models in turns."""
    return Table(
        "language models in turns",
        ("text", "model", "models", "an update", "together", "without graphs"),
        [
            (row.corpus, row.model, str(row.count), number(row.update_ms), number(row.ratio), number(row.launched_ms))
            for row in rows
        ],
        words=2,
    )


def streaming_table(rows: list[StreamingStep]) -> Table:
    """Latency of single steps."""
    theirs = {"layer": TORCH, "step module": f"{TORCH}Cell"}
    return Table(
        "one step",
        ("what", "gate", "units", "sequences", "microseconds", "ratio"),
        [
            (
                *((row.what, row.gate) if row.gate else (theirs[row.what], "")),
                *(str(row.units), str(row.sequences), number(row.step_us, 1), number(row.ratio)),
            )
            for row in rows
        ],
        words=2,
    )


def first_use_table(rows: list[FirstUse]) -> Table:
    """Latency of the first layer in a new process."""
    return Table(
        "the first layer of a process",
        ("layer", "", "seconds", "more"),
        [(row.layer or TORCH, row.disk, number(row.seconds, 3), number(row.more, 3)) for row in rows],
        words=2,
    )


def layer_named(layer: str) -> str:
    """Display name of a layer: the gate for LSTMs, the cell for GRU, JANET and NRU."""
    if layer.startswith(TORCH):
        return f"{TORCH}, projected" if layer.startswith(TORCH_PROJECTED) else TORCH
    return layer.upper() if layer in ("gru", "janet", "nru") else layer


def engine_named(layer: str, engine: str, ran: str) -> str:
    """The engine that ran, and whether "auto" chose it; for torch's own layer its dtype, if any."""
    if layer.startswith(TORCH):
        return layer.removeprefix(TORCH_PROJECTED).removeprefix(TORCH).strip()
    return f"auto: {ran}" if engine == "auto" else engine


def number(value: float | None, digits: int = 2) -> str:
    """A formatted number, or a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


SECTIONS = (
    BenchSection(
        "timings",
        Timing,
        timing_table,
        ("forward_ratio", "training_ratio", "memory_ratio"),
        "One layer in {precision} against torch.nn.LSTM{rival}. Projected layers (half as many outputs as units) are "
        "compared with torch.nn.LSTM with the same proj_size. Inference and training step in milliseconds, each with "
        "torch's time over ours: above 1, ours is faster. Memory of a training step divided by T, with torch's memory "
        "over ours: above 1, ours uses less.",
    ),
    BenchSection("growth", Growth, growth_table),
    BenchSection("replicas", Replicas, replica_table),
    BenchSection(
        "programs",
        Program,
        program_table,
        ("ratio",),
        "An update of the whole training loop (whole) against the bare forward, backward, gradient clipping and "
        "optimiser step of the same model on one batch (bare), in milliseconds. The ratio is bare over whole: 1 means "
        "no overhead. With several seeds trained side by side, bare is the time of one times their number.",
    ),
    BenchSection(
        "language",
        LanguageStep,
        language_table,
        ("ratio",),
        "A training step of AWD-LSTM in {precision} on chunks of 70 words, in milliseconds, and the seconds per epoch "
        "that follow from it. torch is the same model on torch's own LSTM, weight drop included. Ratios are torch's "
        "time over ours: above 1, ours is faster. The softmax column is the time of the softmax alone. Models in turns "
        "train in the training loop, on chunks of random lengths: the time of an update of one of them, updates per "
        "second of all together over those of one alone, and the time without CUDA graphs.",
    ),
    BenchSection("turns", LanguageTurns, turns_table, ("ratio",)),
    BenchSection(
        "streaming",
        StreamingStep,
        streaming_table,
        ("ratio",),
        "Inference latency of one step of one or a few sequences, with as many inputs as units, in microseconds. Each "
        "step starts from the state of the previous one. Layers are compared with torch.nn.LSTM, step modules with "
        "torch.nn.LSTMCell. Ratios are torch's time over ours: above 1, ours is faster.",
    ),
    BenchSection(
        "first_use",
        FirstUse,
        first_use_table,
        ("more",),
        "The first training step of a layer in a new process, in seconds: 50 steps of 32 sequences, 16 inputs, 64 "
        "units, after torch has initialised the device. The column more is the time beyond torch.nn.LSTM. Each value "
        "is the fastest of three processes, with an empty kernel cache and again with a warm one.",
    ),
)
"""In the order of the file and of the tables."""
