"""Train several models at once, each in its own process.

Small models gain nothing from several threads, but do from a core each. Every process trains the seeds of one model
with `remanence.training.train` and sends its progress to the parent through a pipe.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

import torch

from ...training import Run, RunError, Stopped, train
from ...training.interruption import on_signals
from ...training.progress import Silent

EVERY = 0.5
"""Seconds between two messages about updates."""
Message = tuple[str, tuple[Any, ...]]
"""A method of `Silent` and its arguments; or "stopped" or "refused" and a message."""


class Messenger(Silent):
    """Sends progress to the parent process."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._sent = 0.0

    def begin(self, runs: Sequence[Run], update: int, total: int) -> None:
        self._tell("begin", runs, update, total)

    def wants_loss(self) -> bool:
        return time.monotonic() - self._sent > EVERY

    def step(self, update: int, loss: float | None = None) -> None:
        if loss is not None:
            self._sent = time.monotonic()
            self._tell("step", update, loss)

    def evaluated(self, run: Run, line: dict[str, Any]) -> None:
        self._tell("evaluated", run, line)

    def ended(self, run: Run, result: dict[str, Any]) -> None:
        self._tell("ended", run, result)

    def say(self, message: str) -> None:
        self._tell("say", message)

    def _tell(self, method: str, *arguments: Any) -> None:
        try:
            self._send((method, arguments))
        except OSError:  # the parent is gone: save and stop
            signal.raise_signal(signal.SIGTERM)


def work(runs: Sequence[Run], pipe: Connection) -> None:
    """Train the seeds of one model in a child process."""
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches all processes of a terminal; only the parent should get it, and stops the others
    torch.set_num_threads(1)
    with pipe:
        try:
            train(runs, progress=Messenger(pipe.send))
        except Stopped as stopped:
            last: Message = ("stopped", (stopped.reason,))
        except ValueError as error:
            if not str(error).startswith("expected "):  # our own messages do; anything else is a bug
                raise
            last = ("refused", (str(error),))
        else:
            return
        try:
            pipe.send(last)
        except OSError:
            return


def race(groups: Mapping[str, Sequence[Run]], shown: Mapping[str, Silent]) -> None:
    """Train all models at once.

    Args:
        groups: Runs that differ only in their seed, by model.
        shown: Progress display of each model.

    Raises:
        Stopped: A signal stopped it. Everything is saved, and the same call resumes.
        RunError: The contents of a run folder do not allow it.
    """
    context = get_context("spawn")
    asked: list[signal.Signals] = []
    refused: list[str] = []
    processes: dict[str, Any] = {}
    pipes: dict[Connection, str] = {}

    def stop() -> None:
        for process in processes.values():
            process.terminate()  # it saves and exits

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            for process in processes.values():
                process.kill()
        asked.append(signal.Signals(number))
        stop()

    try:
        with on_signals(signal.SIG_IGN, [signal.SIGINT]):  # a child that is still importing must not react to Ctrl-C
            for name, runs in groups.items():
                ours, theirs = context.Pipe(duplex=False)
                processes[name] = context.Process(target=work, args=(list(runs), theirs), name=name)
                processes[name].start()
                theirs.close()
                pipes[ours] = name
        with on_signals(ask):
            for name, message in _messages(pipes):
                if message is None:
                    processes[name].join()
                    code = processes[name].exitcode
                    if code and not asked and not refused:
                        raise RuntimeError(f"expected the process that trains {name} to end with 0, got {code}")
                elif message[0] == "refused":
                    refused.append(message[1][0])
                    stop()
                elif message[0] != "stopped":
                    getattr(shown[name], message[0])(*message[1])
    finally:
        stop()
        for process in processes.values():
            process.join()
            process.close()
        for pipe in pipes:
            pipe.close()
    if refused:
        raise RunError(refused[0])
    if asked:
        raise Stopped(f"stopped by {asked[0].name}; run the same command again to resume", 128 + asked[0])


def _messages(pipes: Mapping[Connection, str]) -> Iterator[tuple[str, Message | None]]:
    """Messages of the processes, and None for each that has exited."""
    left = dict(pipes)
    while left:
        for pipe in wait(list(left)):
            assert isinstance(pipe, Connection)
            try:
                message = pipe.recv()
            except EOFError:
                yield left.pop(pipe), None
            else:
                yield left[pipe], message
