"""The benchmark report: all sections of a run, as JSON and as tables."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from .. import files
from ..table import Table
from .apart import makers
from .first_use import FirstUse, first_uses
from .growth import Growth, growth
from .language import LanguageStep, language_steps
from .machine import describe
from .measure import Clock
from .program import Program, programs
from .replicas import Replicas, replicas
from .shapes import BenchPlan, Shape
from .streaming import StreamingStep, streaming_steps
from .timings import Say, Timing, timings
from .turns import LanguageTurns, language_turns
from .work import TORCH, TORCH_PROJECTED, conditions


@dataclass(frozen=True)
class BenchReport:
    """Results of a benchmark run."""

    machine: dict[str, str]
    command: str
    precision: str
    seconds: float
    timings: list[Timing]
    growth: list[Growth]
    replicas: list[Replicas]
    programs: list[Program] = field(default_factory=list)
    language: list[LanguageStep] = field(default_factory=list)
    turns: list[LanguageTurns] = field(default_factory=list)
    streaming: list[StreamingStep] = field(default_factory=list)
    first_use: list[FirstUse] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "machine": self.machine,
            "command": self.command,
            "precision": self.precision,
            "seconds": round(self.seconds, 1),
            "timings": [
                flat(row)
                | {
                    "forward_ratio": row.forward_ratio,
                    "training_ratio": row.training_ratio,
                    "memory_ratio": row.memory_ratio,
                }
                for row in self.timings
            ],
            "growth": [flat(row) for row in self.growth],
            "replicas": [flat(row) for row in self.replicas],
            "programs": [asdict(row) | {"ratio": row.ratio} for row in self.programs],
            "language": [asdict(row) | {"ratio": row.ratio} for row in self.language],
            "turns": [asdict(row) | {"ratio": row.ratio} for row in self.turns],
            "streaming": [asdict(row) | {"ratio": row.ratio} for row in self.streaming],
            "first_use": [asdict(row) | {"more": row.more} for row in self.first_use],
        }


def run(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Run every benchmark in a plan."""
    machine = describe(plan.device) | ({"processes": "one for every layer"} if plan.apart else {})
    with conditions(plan), makers(plan) as make:
        clock = Clock(plan.budget)
        return BenchReport(
            machine=machine,
            command=command,
            precision=plan.precision,
            timings=list(timings(plan, make, clock, say)),
            growth=list(growth(plan, make, clock, say)),
            replicas=list(replicas(plan, clock, say)),
            seconds=plan.budget - clock.left,
        )


def run_programs(device: torch.device, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure the training loop instead: one seed, and on a GPU also eight seeds side by side."""
    machine, start = describe(device), time.perf_counter()
    found = list(programs(device, say, (1, 8) if device.type == "cuda" else (1,)))
    return BenchReport(machine, command, "programs", time.perf_counter() - start, [], [], [], found)


def run_language(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure word-level language models instead, on a GPU also several that train in turns."""
    machine, start = describe(plan.device), time.perf_counter()
    with conditions(plan):
        found = list(language_steps(plan.device, say))
        turns = list(language_turns(plan.device, say)) if plan.device.type == "cuda" else []
    return BenchReport(
        machine, command, plan.precision, time.perf_counter() - start, [], [], [], language=found, turns=turns
    )


def run_streaming(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure the latency of single steps of one sequence instead."""
    machine, start = describe(plan.device), time.perf_counter()
    with conditions(plan):
        found = list(streaming_steps(plan.device, say))
    return BenchReport(machine, command, plan.precision, time.perf_counter() - start, [], [], [], streaming=found)


def run_first_use(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure the first layer in a new process instead."""
    machine, start = describe(plan.device), time.perf_counter()
    found = list(first_uses(plan.device, say))
    return BenchReport(machine, command, plan.precision, time.perf_counter() - start, [], [], [], first_use=found)


def flat(row: Timing | Growth | Replicas) -> dict[str, Any]:
    """A row as plain data, with its shape split into a name and its sizes."""
    values = asdict(row)
    shape: dict[str, Any] = values.pop("shape")
    return {"shape": shape.pop("name"), "sizes": shape} | values


# Files.


def expect_writable(path: Path) -> None:
    """Check that a file can be written to `path`, before spending time on measurements."""
    if path.is_dir():
        raise ValueError(f"expected a file to write to, got the folder {path}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"expected a file that can be written, got {path}: {error.strerror}") from None


def save(report: BenchReport, path: Path) -> None:
    """Write the report as JSON, atomically."""
    files.write(path, (json.dumps(report.plain(), indent=2) + "\n").encode())


def load(path: Path) -> BenchReport:
    """Read a report written by `save`."""
    plain = json.loads(path.read_text("utf-8"))
    return BenchReport(
        **{name: plain[name] for name in ("machine", "command", "precision", "seconds")},
        timings=[made(Timing, row) for row in plain["timings"]],
        growth=[made(Growth, row) for row in plain["growth"]],
        replicas=[made(Replicas, row) for row in plain["replicas"]],
        programs=[made(Program, row) for row in plain.get("programs", ())],
        language=[made(LanguageStep, row) for row in plain.get("language", ())],
        turns=[made(LanguageTurns, row) for row in plain.get("turns", ())],
        streaming=[made(StreamingStep, row) for row in plain.get("streaming", ())],
        first_use=[made(FirstUse, row) for row in plain.get("first_use", ())],
    )


Row = TypeVar("Row")


def made(kind: type[Row], values: Mapping[str, Any]) -> Row:
    """Rebuild a row from plain data, ignoring the derived ratios."""
    given = {entry.name: values[entry.name] for entry in fields(kind) if entry.name in values}  # type: ignore[arg-type]
    if "sizes" in values:
        given["shape"] = Shape(values["shape"], **values["sizes"])
    return kind(**given)


# Tables.


PRECISION = {"tf32": "float32 with TF32 matmuls", "full": "full float32", "bf16": "bfloat16"}


def reading(report: BenchReport) -> str:
    """A paragraph that explains how to read the tables."""
    if report.programs:
        return (
            "An update of the whole training loop (whole) against the bare forward, backward, gradient clipping and "
            "optimiser step of the same model on one batch (bare), in milliseconds. The ratio is bare over whole: 1 "
            "means no overhead. With several seeds trained side by side, bare is the time of one times their number."
        )
    if report.language:
        return (
            f"A training step of AWD-LSTM in {PRECISION[report.precision]} on chunks of 70 words, in milliseconds, and "
            "the seconds per epoch that follow from it. torch is the same model on torch's own LSTM, weight drop "
            "included. Ratios are torch's time over ours: above 1, ours is faster. The softmax column is the time of "
            "the softmax alone. Models in turns train in the training loop, on chunks of random lengths: the time "
            "of an update of one of them, updates per second of all together over those of one alone, and the time "
            "without CUDA graphs."
        )
    if report.streaming:
        return (
            "Inference latency of one step of one sequence, with as many inputs as units, in microseconds. Each step "
            "starts from the state of the previous one. Layers are compared with torch.nn.LSTM, step modules with "
            "torch.nn.LSTMCell. Ratios are torch's time over ours: above 1, ours is faster."
        )
    if report.first_use:
        return (
            "The first training step of a layer in a new process, in seconds: 50 steps of 32 sequences, 16 inputs, 64 "
            "units, after torch has initialised the device. The column more is the time beyond torch.nn.LSTM. Each "
            "value is the fastest of three processes, with an empty kernel cache and again with a warm one."
        )
    against = ", the faster of its float32 and bfloat16" if report.precision == "bf16" else ""
    return (
        f"One layer in {PRECISION[report.precision]} against torch.nn.LSTM{against}. Projected layers (half as many "
        "outputs as units) are compared with torch.nn.LSTM with the same proj_size. Inference and training step in "
        "milliseconds, each with torch's time over ours: above 1, ours is faster. Memory of a training step divided by "
        "T, with torch's memory over ours: above 1, ours uses less."
    )


def tables(report: BenchReport) -> list[Table]:
    """One table per shape, and one for every other section that has rows."""
    shapes = dict.fromkeys(row.shape for row in report.timings)
    found = [timing_table(shape, [row for row in report.timings if row.shape == shape]) for shape in shapes]
    if report.growth:
        found.append(growth_table(report.growth))
    if report.replicas:
        found.append(replica_table(report.replicas))
    if report.programs:
        found.append(program_table(report.programs))
    if report.language:
        found.append(language_table(report.language))
    if report.turns:
        found.append(turns_table(report.turns))
    if report.streaming:
        found.append(streaming_table(report.streaming))
    if report.first_use:
        found.append(first_use_table(report.first_use))
    return found


def timing_table(shape: Shape, rows: list[Timing]) -> Table:
    """All layers and engines at one shape."""
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
        "one step of one sequence",
        ("what", "gate", "units", "microseconds", "ratio"),
        [
            (
                *((row.what, row.gate) if row.gate else (theirs[row.what], "")),
                *(str(row.units), number(row.step_us, 1), number(row.ratio)),
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
