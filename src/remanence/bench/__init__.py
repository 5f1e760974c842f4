"""Benchmarks on this machine: every layer and engine against `torch.nn.LSTM` in the same run.

shapes     the benchmark plan: sizes of the papers' tasks, layers and precision
measure    interleaved timing of calls, and peak memory of a training step
apart      layers in processes of their own
timings, growth, replicas    the sections of a report
program    the full training loop against a minimal one
language   a language model against the same model on torch's own LSTM
turns      several language models that train in turns against one
streaming  latency of a single step of one sequence
first_use  latency of the first layer in a new process (kernel compilation and cache)
machine    hardware and versions
sections   what is written and shown of each section
report     all sections, as JSON and as tables
"""

from .report import (
    BenchReport,
    expect_writable,
    load,
    reading,
    run,
    run_first_use,
    run_language,
    run_programs,
    run_streaming,
    save,
    tables,
)
from .shapes import BenchPlan, plan

__all__ = [
    "BenchPlan",
    "BenchReport",
    "expect_writable",
    "load",
    "plan",
    "reading",
    "run",
    "run_first_use",
    "run_language",
    "run_programs",
    "run_streaming",
    "save",
    "tables",
]
