"""The benchmark report: all sections of a run, as JSON and as tables."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from .sections import SECTIONS
from .shapes import BenchPlan
from .streaming import StreamingStep, streaming_steps
from .timings import Say, Timing, timings
from .turns import LanguageTurns, language_turns
from .work import conditions


@dataclass(frozen=True)
class BenchReport:
    """Results of a benchmark run. The rows of every section, see `SECTIONS`, are a list."""

    machine: dict[str, str]
    command: str
    precision: str
    seconds: float
    timings: list[Timing] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    replicas: list[Replicas] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    language: list[LanguageStep] = field(default_factory=list)
    turns: list[LanguageTurns] = field(default_factory=list)
    streaming: list[StreamingStep] = field(default_factory=list)
    first_use: list[FirstUse] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        about = {
            "machine": self.machine,
            "command": self.command,
            "precision": self.precision,
            "seconds": round(self.seconds, 1),
        }
        return about | {
            section.name: [section.plain(row) for row in getattr(self, section.name)] for section in SECTIONS
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
    return BenchReport(machine, command, "programs", time.perf_counter() - start, programs=found)


def run_language(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure word-level language models instead, on a GPU also several that train in turns."""
    machine, start = describe(plan.device), time.perf_counter()
    with conditions(plan):
        found = list(language_steps(plan.device, say))
        turns = list(language_turns(plan.device, say)) if plan.device.type == "cuda" else []
    return BenchReport(machine, command, plan.precision, time.perf_counter() - start, language=found, turns=turns)


def run_streaming(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure the latency of single steps instead."""
    machine, start = describe(plan.device), time.perf_counter()
    with conditions(plan):
        found = list(streaming_steps(plan.device, say))
    return BenchReport(machine, command, plan.precision, time.perf_counter() - start, streaming=found)


def run_first_use(plan: BenchPlan, command: str, say: Say = lambda _: None) -> BenchReport:
    """Measure the first layer in a new process instead."""
    machine, start = describe(plan.device), time.perf_counter()
    found = list(first_uses(plan.device, say))
    return BenchReport(machine, command, plan.precision, time.perf_counter() - start, first_use=found)


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
    """Read a report written by `save`. Sections that the file lacks are empty."""
    plain = json.loads(path.read_text("utf-8"))
    given: dict[str, Any] = {name: plain[name] for name in ("machine", "command", "precision", "seconds")}
    given |= {section.name: [section.made(row) for row in plain.get(section.name, ())] for section in SECTIONS}
    return BenchReport(**given)


# Tables.


PRECISION = {"tf32": "float32 with TF32 matmuls", "full": "full float32", "bf16": "bfloat16"}


def reading(report: BenchReport) -> str:
    """A paragraph that explains how to read the tables."""
    shown = (section.reading for section in SECTIONS if section.reading and getattr(report, section.name))
    return next(shown, SECTIONS[0].reading).format(
        precision=PRECISION.get(report.precision),
        rival=", the faster of its float32 and bfloat16" if report.precision == "bf16" else "",
    )


def tables(report: BenchReport) -> list[Table]:
    """The tables of all sections that have rows."""
    return [table for section in SECTIONS for table in section.tables(getattr(report, section.name))]
