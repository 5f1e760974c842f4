"""Training runs: their folders, which of them are stacked in one population, and which take turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ..engines.machine import device_named, wait_for
from . import machine, resume
from .config import Run, expect_own_folders, stacks
from .directory import Directory, InMemoryDirectory
from .files import RunError, Say
from .forward import forked_rng
from .interruption import Budget, Interruption
from .loggers import Logger
from .loop import Loop, training_source
from .machine import choose_engines
from .population import Replica
from .progress import Silent
from .ranks import Ranks, expect_enough
from .schedule import Timetable
from .turns import take_turns


def train(
    runs: Sequence[Run],
    *,
    device: torch.device | str = "cpu",
    budget: Budget | None = None,
    progress: Silent | None = None,
    loggers: Sequence[Logger] = (),
    ranks: Ranks | None = None,
    engine: str | None = None,
    at_once: int | None = None,
) -> list[dict[str, Any]]:
    """Train runs at the same time. Finished runs are not trained again.

    Runs that differ only in their seed are stacked: an update of all of them is one launch. Others take turns, as do
    language models with chunks of random lengths.

    Args:
        runs: Runs to train.
        device: Device to train on.
        budget: Time limit.
        progress: Progress display.
        loggers: Further loggers for the metrics, beside the run folder.
        ranks: The processes that train together, each on its share of every batch. Every process makes the same call.
        engine: Engine that runs the models; None for the one a run was started with, or the fastest for a new run.
        at_once: Most stacks that take turns at the same time, the next starting when one ends; None for all.

    Returns:
        The result of every run.

    Raises:
        Stopped: A signal arrived or the budget is spent. Everything is saved, and the same call resumes.
        ValueError: Something is wrong with the runs, their configuration or their folders.
    """
    if at_once is not None and at_once < 1:
        raise ValueError(f"expected at_once to be at least 1, got {at_once}")
    most = at_once or len(runs)
    place = device_named(device)
    wait_for(place)
    progress = progress or Silent()
    runs = expect_own_folders(runs)
    ranks = ranks or Ranks()  # told: rank 0 does the work and broadcasts the result; alike: every rank does it
    ranks.told(lambda: expect_enough([run.config for run in runs], ranks))
    kind = Directory if ranks.first else InMemoryDirectory
    directories = [kind(run.directory) for run in runs]
    interruption = Interruption(budget or Budget(), ranks)
    with ExitStack() as stack:
        if place.type == "cuda":
            stack.enter_context(torch.cuda.device(place))  # streams and graphs are those of the current device
        stack.enter_context(forked_rng(place))
        unfinished = ranks.told(lambda: _lock_unfinished(runs, directories, stack))
        if unfinished:
            if interruption.wanted("update"):
                raise interruption.stop("before training started")
            left = [runs[number] for number in unfinished]
            folders = [directories[number] for number in unfinished]
            stacked = stacks(left)
            turns = min(len(stacked), most)
            ranks.told(lambda: _start(left, folders, machine.describe(place, ranks, turns), progress.say))
            stack.enter_context(interruption.listening())
            for logger in loggers:
                stack.callback(logger.close)
            sources = ranks.alike(lambda: [training_source(run, place) for run in left])

            def start(numbers: Sequence[int], timetable: Timetable, update: int) -> Loop:
                replicas = ranks.alike(lambda: [Replica(left[n], folders[n], place, sources[n]) for n in numbers])
                choose_engines(replicas, engine, progress.say, ranks)
                return Loop(replicas, timetable, place, update, interruption, next(displays), loggers)

            def starts_of(numbers: Sequence[int]) -> Iterator[Callable[[], Loop]]:
                timetable = ranks.alike(lambda: Timetable.of(left[numbers[0]].config, sources[numbers[0]]))
                own = [folders[n] for n in numbers]
                # Usually one group: all runs start, or resume from the same update.
                for update, group in ranks.told(lambda: resume.groups(own, timetable, progress.say)):
                    yield partial(start, [numbers[n] for n in group], timetable, update)

            displays = itertools.chain([progress], (progress.another() for _ in itertools.count()))
            threads = ranks.told(lambda: [folder.threads for folder in folders])
            counts = [threads[numbers[0] if place.type == "cpu" else 0] for numbers in stacked]
            for count in dict.fromkeys(counts):  # usually one: all were started with as many threads
                with machine.threads(count):
                    alike = [numbers for numbers, own in zip(stacked, counts, strict=True) if own == count]
                    starts = [one for numbers in alike for one in starts_of(numbers)]
                    interruption.loops = min(len(starts), most)
                    take_turns(starts, place, most)
    if interruption.signalled():  # too late to stop anything here, but the caller may have more to do
        raise interruption.stop("after all of these runs had ended")
    return ranks.told(lambda: [_result(directory) for directory in directories])


def _lock_unfinished(runs: Sequence[Run], directories: Sequence[Directory], stack: ExitStack) -> list[int]:
    """Lock the folders of runs that have not ended.

    Returns:
        The indices of these runs.
    """
    waiting = [number for number, run in enumerate(runs) if _ended(run, directories[number]) is None]
    for number in waiting:
        stack.enter_context(directories[number].held())
    return [number for number in waiting if directories[number].result is None]  # another process may have finished it


def _start(runs: Sequence[Run], directories: Sequence[Directory], described: dict[str, Any], say: Say) -> None:
    for run, directory in zip(runs, directories, strict=True):
        directory.start(run.description, described, say)


def _ended(run: Run, directory: Directory) -> dict[str, Any] | None:
    """The result of a run that has ended. Finishes the clean-up of its folder if that was interrupted."""
    directory.expect_configuration(run.description)
    result = directory.result
    if result is not None and not directory.tidied:
        with directory.held():
            directory.tidy()
    return result


def _result(directory: Directory) -> dict[str, Any]:
    result = directory.result
    if result is None:
        raise RunError(f"expected a result in {directory.path}, got none; it was removed during training")
    return result
