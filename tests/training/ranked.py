"""Several processes that train together as under torchrun, but start fast."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from killable import Telling, processes
from small_runs import run, words_run

from remanence.training import Budget, Ranks, Silent, Stopped, train
from remanence.training.forward import Forward


def in_float64() -> None:
    """Compute with weights, inputs and losses in float64 from here on."""
    torch.set_default_dtype(torch.float64)
    usual = Forward.__call__

    def widened(self: Forward, replicas: Any, batch: Any, states: Any = None) -> Any:
        if batch.inputs.is_floating_point():  # most tasks make float32 inputs
            batch = replace(batch, inputs=batch.inputs.double())
        return usual(self, replicas, batch, states)

    Forward.__call__ = widened


def trains(telling: int, folder: Path, keywords: dict[str, Any]) -> None:
    """Train small runs; keywords are those of `killable.Child`, and `float64`."""
    if keywords.pop("float64", False):
        in_float64()
    seeds, budget = keywords.pop("seeds", (1,)), keywords.pop("budget", None)
    make = words_run if keywords.pop("words", False) else run
    ranks = Ranks.join()
    try:
        train(
            [make(folder, seed, **keywords) for seed in seeds],
            progress=Telling(telling) if ranks.first else Silent(),
            budget=None if budget is None else Budget(budget),
            ranks=ranks,
        )
    except Stopped as stopped:
        print(stopped.reason, file=sys.stderr)
        ranks.leave()
        sys.exit(stopped.code)
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def commands(_: int, words: list[str], float64: bool) -> None:
    """What the command line does; {rank} in a word is the number of the process."""
    from remanence.cli.main import main

    if float64:
        in_float64()
    sys.argv = ["remanence", *(word.replace("{rank}", os.environ["RANK"]) for word in words)]
    main()


def begins(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    rank: int,
    size: int,
    port: int,
    connection: Any,
    log: Path,
) -> None:
    """What a child does."""
    both = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(both, 1)
    os.dup2(both, 2)
    torch.set_num_threads(1)
    os.environ |= environment
    local = {"WORLD_SIZE": size, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in local.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    work(connection.fileno(), *arguments)


class Ranked:
    """Processes that do the same work together.

    Args:
        log: folder for what they say, a file for every rank.
        work: a function of a file descriptor, which gets a byte for every update, and of the arguments.
        arguments: for it.
        size: how many processes.
    """

    def __init__(self, log: Path, work: Callable[..., None], *arguments: Any, size: int = 2) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.hears, says = processes.Pipe(duplex=False)
        log.mkdir(parents=True, exist_ok=True)
        self.logs = [log / f"rank-{rank}.txt" for rank in range(size)]
        settings = {name: value for name, value in os.environ.items() if name.startswith("REMANENCE_")}
        self.ranks = [
            processes.Process(target=begins, args=(work, arguments, settings, rank, size, port, says, self.logs[rank]))
            for rank in range(size)
        ]
        for process in self.ranks:
            process.start()
        says.close()

    def wait_for_updates(self, count: int) -> bool:
        """Until so many updates are done; False if all have ended before."""
        return all(os.read(self.hears.fileno(), 1) for _ in range(count))

    def strike(self, how: signal.Signals, *ranks: int) -> None:
        """Send a signal to some ranks."""
        for rank in ranks:
            process = self.ranks[rank]
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, how)

    def end(self) -> list[int]:
        """Exit codes of all; minus the signal that killed one. Nobody may wait for ever."""
        for process in self.ranks:
            process.join(120)
            if process.is_alive():
                for other in self.ranks:
                    other.kill()
                raise AssertionError(f"a rank hangs; ranks have said {self.said}")
        self.hears.close()
        return [process.exitcode for process in self.ranks if process.exitcode is not None]

    @property
    def said(self) -> list[str]:
        """What every rank has said."""
        return [log.read_text() if log.exists() else "" for log in self.logs]
