"""How fast the layers are on this machine, against `torch.nn.LSTM` in the same run.

shapes     what is measured: sizes of the papers' tasks, and the layers
measure    time of calls taken in turn, and memory of a training step
timings, growth, replicas    the sections of a report
program    the training loop against its bare arithmetic
language   a language model against the same on torch's own LSTM
streaming  one step of one sequence
first_use  the first layer of a process
machine    where it was measured
report     all sections, as numbers and as tables
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
