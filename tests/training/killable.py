"""Training in other processes, which can really be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import run, words_run

from remanence.training import Budget, Silent, Stopped, train

posix = pytest.mark.skipif(os.name != "posix", reason="processes are told and heard by POSIX signals and pipes")
processes: Any = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
if os.name == "posix":
    processes.set_forkserver_preload(["torch._dynamo", "small_runs"])  # so that a child starts in no time

KINDS: dict[str, dict[str, Any]] = {
    "one": {},
    "two together with dropout": {"seeds": (1, 2), "dropout": 0.2},
    "stateful": {"stateful": True, "checkpoint_every": 3, "model": "lstm"},
    "restart": {"stateful": True, "restart": 0.4, "checkpoint_every": 3, "model": "lstm"},
    "checkpoints between evaluations": {"evaluate_every": 6, "checkpoint_every": 4},
    "float16": {"precision": "float16"},
    "words with averages": {"words": True},
    "two texts in turns": {"words": True, "seeds": (1, 2)},
}
"""Runs of every kind, by arguments of `Child`."""


class Telling(Silent):
    """Writes a byte for every update, so that a test knows when to strike."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def wants_loss(self) -> bool:
        return True

    def step(self, update: int, loss: float | None = None) -> None:
        os.write(self.pipe, b".")


def die_inside(at: int) -> None:
    """Kill this process at its so manieth call of fsync or replace."""
    calls = 0

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return instead

    os.fsync, os.replace = dying(os.fsync), dying(os.replace)


def trains(folder: Path, seeds: tuple[int, ...], keywords: dict[str, Any], connection: Any, die_at: int | None) -> None:
    """What a child does. With `die_at` it dies inside of a write."""
    torch.set_num_threads(1)
    if die_at is not None:
        die_inside(die_at)
    budget = keywords.pop("budget", None)
    make = words_run if keywords.pop("words", False) else run
    try:
        train(
            [make(folder, seed, **keywords) for seed in seeds],
            progress=Telling(connection.fileno()),
            budget=None if budget is None else Budget(budget),
        )
    except Stopped as stopped:
        print(stopped.reason, file=sys.stderr)
        sys.exit(stopped.code)


class Child:
    """A process that trains."""

    def __init__(self, folder: Path, seeds: tuple[int, ...] = (1,), die_at: int | None = None, **keywords: Any) -> None:
        self.hears, says = processes.Pipe(duplex=False)
        self.process = processes.Process(target=trains, args=(folder, seeds, keywords, says, die_at))
        self.process.start()
        says.close()

    def wait_for_updates(self, count: int) -> bool:
        """Until it has done so many updates; False if it ended before."""
        return all(os.read(self.hears.fileno(), 1) for _ in range(count))

    def strike(self, how: signal.Signals) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, how)

    def end(self) -> int:
        """Its exit code; minus the signal that killed it."""
        while os.read(self.hears.fileno(), 4096):
            pass
        self.process.join()
        self.hears.close()
        assert self.process.exitcode is not None
        return self.process.exitcode
