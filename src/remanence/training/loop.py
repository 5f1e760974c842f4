"""The training loop.

    for every update: batch, forward, loss, backward, clip, step
    at fixed updates: evaluate, log, save a checkpoint, stop

The loop trains a population of replicas, often just one. Between evaluations and checkpoints it never waits for the
device, except once a second for a progress bar. Runs that cannot be stacked in one population take turns.

Read it from the top: `train` sets everything up, `Loop.updates` is the loop, `Loop.update` and `Loop.learn` are one
update.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ..engines.machine import device_named, wait_for
from ..models.modes import detached
from ..models.states import each
from ..tasks.base import Batch, Source
from . import machine, optimisers, resume, schedule
from .batches import Batches, Drawn
from .config import Run, expect_own_folders, stacks
from .directory import Directory, InMemoryDirectory
from .evaluation import evaluate_split, has_timescales, metrics_line, result_of
from .files import RunError, Say
from .forward import Forward, forked_rng
from .graph import Graphs, can_capture, has_constant_lr
from .interruption import Budget, Interruption, Stopped
from .loggers import Logger
from .machine import choose_engines
from .population import Population, Replica
from .progress import Silent
from .ranks import Ranks, expect_enough
from .schedule import Timetable, best_of, verdict
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
            turns = min(len(stacked), at_once or len(stacked))
            ranks.told(lambda: _start(left, folders, machine.describe(place, ranks, turns), progress.say))
            stack.enter_context(interruption.listening())
            for logger in loggers:
                stack.callback(logger.close)
            sources = ranks.alike(lambda: [_training_source(run, place) for run in left])

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
                    interruption.loops = min(len(starts), at_once or len(starts))
                    take_turns(starts, place, at_once)
    if interruption.signalled():  # too late to stop anything here, but the caller may have more to do
        raise interruption.stop("after all of these runs had ended")
    return ranks.told(lambda: [_result(directory) for directory in directories])


class Loop:
    """Trains replicas from one update to the end.

    Args:
        replicas: New replicas; they are restored from their checkpoints.
        timetable: Updates at which to evaluate, save and end.
        device: Device to train on.
        update: Update of the checkpoint to resume from; 0 to start.
        interruption: Decides whether to stop; knows the ranks.
        progress: Progress display.
        loggers: Further loggers for the metrics.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        timetable: Timetable,
        device: torch.device,
        update: int,
        interruption: Interruption,
        progress: Silent,
        loggers: Sequence[Logger],
    ) -> None:
        first = replicas[0].run
        self.task, self.config, self.timetable = first.task, first.config, timetable
        self.interruption, self.progress, self.loggers = interruption, progress, loggers
        self.ranks = interruption.ranks
        self.forward = Forward(self.config, device)
        self.population = Population(replicas, self.config, device, timetable.evaluate_every, self.ranks)
        self.at = resume.restore(self.population, update)
        self.ranks.spread(self.population.parameters.data)  # machines may round differently when they initialise models
        self.batches = Batches([replica.order for replica in self.population.replicas])
        self.watched = self.config.watch_timescales and has_timescales(replicas[0])
        self.started = time.monotonic()
        self.slot = torch.zeros(1, dtype=torch.long, device=device)
        """Column of `population.losses` for the loss of the current update."""
        self.graphs = self.new_graphs()

    @classmethod
    def alone(cls, runs: Sequence[Run], device: torch.device) -> Loop:
        """A loop over new runs in new folders, for a caller that calls `update` itself, without budget or progress."""
        replicas = []
        for run in runs:
            directory = Directory(run.directory)
            directory.checkpoints.mkdir(parents=True)
            directory.start(run.description, machine.describe(device))
            replicas.append(Replica(run, directory, device, _training_source(run, device)))
        timetable = Timetable.of(runs[0].config, replicas[0].order.source)
        return cls(replicas, timetable, device, 0, Interruption(Budget()), Silent(), ())

    def updates(self) -> Generator[None]:
        """Train until every replica has ended; yields after every update."""
        at, timetable = self.at, self.timetable
        self.progress.begin([replica.run for replica in self.population.replicas], at.update, timetable.total)
        for replica in self.population.replicas:
            replica.directory.time(what="start", update=at.update)
        try:
            yield  # all that take turns have begun before one is evaluated
            while self.population.replicas:
                evaluates = timetable.evaluates(at.update) and at.evaluated < at.update
                saves = timetable.saves(at.update) and at.saved < at.update
                # Evaluate on the validation split and log.
                diverged: dict[int, int] = {}
                if evaluates:
                    self.stop_if_wanted("evaluation")
                    diverged = self.evaluate()
                elif saves:
                    diverged = resume.first_nonfinite(self.population, at)
                # Save checkpoints.
                ended = self.ended(diverged)
                if ended or saves:
                    self.save(diverged)
                # Test the replicas that have ended, and continue with the others.
                if ended:
                    self.finish(ended, diverged)
                    continue
                # Train: one update, unless a signal or the budget requests a stop.
                self.stop_if_wanted("update")
                self.update()
                yield
        finally:
            self.progress.end()

    # One update.

    def update(self) -> None:
        """Take the next batch, set the learning rate, learn, and log the loss."""
        population, replicas = self.population, self.population.replicas
        if replicas[0].order.at_start:
            for replica in replicas:
                replica.state = None
        drawn = self.batches.next()
        self.slot.fill_(self.at.since)
        population.optimiser.param_groups[0]["lr"] = self.lr(self.at.update) * replicas[0].order.factor
        if self.replayed(drawn):
            if not self.steps_in_graphs:
                population.step(population.gradients)
        else:
            self.learn(drawn.shown())
        self.at.update += 1
        if population.averages is not None:
            population.averages.add(population.parameters.data, self.at.update)
        self.interruption.after_update()
        if self.progress.wants_loss():
            self.progress.step(self.at.update, population.losses[:, self.at.since - 1].mean().item())

    def learn(self, batch: Batch) -> None:
        """The part of an update on the device: forward, loss, backward, clip, step. Ranks share the batch."""
        self.differentiate(batch)
        self.population.step(self.population.gradients)

    def differentiate(self, batch: Batch) -> None:
        """Forward, loss, backward."""
        population, replicas, share = self.population, self.population.replicas, self.population.share
        # Forward.
        states = [self.carried(replica) for replica in replicas] if self.config.stateful else None
        own = share.of(batch, self.task)
        with share.active():
            outputs, after, penalties = self.forward(replicas, own, states)
        # Loss.
        losses, minimised = share.weighted(self.task.loss(outputs, own), penalties, self.task, batch)
        # Backward.
        population.differentiate(minimised)
        # Log.
        with torch.no_grad():
            self.ranks.add_up(losses)
            population.losses.index_copy_(1, self.slot, losses.unsqueeze(1))
        # Truncate backpropagation through time.
        if self.config.stateful:
            for replica, state in zip(replicas, after, strict=True):
                replica.state = detached(state)

    def lr(self, update: int) -> float:
        """The learning rate after `update` updates."""
        factor = schedule.lr_factor(self.config.schedule, update, self.timetable.total, self.timetable.epoch)
        return self.config.optimiser.lr * factor

    def carried(self, replica: Replica) -> Any:
        """The carried state of a replica, with the state of random sequences reset to zero if `restart` is set."""
        if replica.state is None or not self.config.restart:
            return replica.state
        share = self.population.share
        with replica.noise.active():
            resets = torch.rand(share.batch) < self.config.restart
        resets = resets[share.start : share.start + share.size, None].to(self.population.device)
        return each(lambda part: part.masked_fill(resets, 0), replica.state)

    def new_graphs(self) -> Graphs | None:
        """No graphs yet, for the replicas of the population; None if its updates cannot be captured."""
        self.steps_in_graphs = has_constant_lr(self.config)
        work = self.learn if self.steps_in_graphs else self.differentiate
        if not can_capture(self.config, self.population):
            return None
        return Graphs(work, self.population.replicas, self.population.device, getattr(self, "graphs", None))

    def replayed(self, drawn: Drawn) -> bool:
        """Replay a captured graph, if there is one for such a batch or one can be captured now."""
        try:
            return self.graphs is not None and self.graphs.replay(drawn)
        except RuntimeError as error:
            self.graphs = None
            self.progress.say(
                f"could not capture an update as a CUDA graph, so training is slower: {str(error).splitlines()[0]}"
            )
            return False

    # At fixed updates.

    def evaluate(self) -> dict[int, int]:
        """Score all replicas on the validation split and log a line of metrics for each.

        Returns:
            Replicas that have diverged, and at which update. No metrics are logged for them.
        """
        population, at = self.population, self.at
        weights = population.evaluated(at.update)
        with self.interruption.timed("evaluation"):
            diverged = resume.first_nonfinite(population, at)  # waits until the device has done all updates
            start = time.monotonic()
            with population.with_weights(weights):
                scores = self.scores(population.replicas, "validation")
            losses = population.losses[:, : at.since].double().mean(1).tolist()
            seconds = time.monotonic() - start
        updates, at.evaluated = at.since, at.update
        for number, replica in enumerate(population.replicas):
            if number in diverged:
                continue
            line = metrics_line(
                replica,
                update=at.update,
                epoch=at.update / self.timetable.epoch,
                lr=self.lr(at.update - 1),
                loss=losses[number],
                scores=None if scores is None else scores[number],
                watched=self.watched,
            )
            replica.directory.add(line)
            replica.directory.time(
                what="evaluation",
                update=at.update,
                updates=updates,
                seconds=time.monotonic() - self.started,
                evaluation=seconds,
            )
            if best_of(replica.directory.lines, self.task, self.config.best_by) is line:
                population.best[number] = weights[number]
            if population.averages is not None:
                since = optimisers.averaging_began(replica.directory.lines, self.config.optimiser)
                if since == at.update:
                    population.averages.begin(number, since, population.parameters.data[number])
                    self.progress.say(
                        f"{replica.run}: the validation loss no longer improves, so weights are now averaged"
                    )
            self.progress.evaluated(replica.run, line)
            for logger in self.loggers:
                logger.log(replica.run, line)
        self.started = time.monotonic()
        return diverged

    def scores(self, replicas: Sequence[Replica], split: str) -> list[dict[str, float]] | None:
        """Scores of replicas on a split, computed by the first rank; None if the task has no such split."""
        return self.ranks.told(lambda: evaluate_split(replicas, split, self.forward, self.config))

    def ended(self, diverged: dict[int, int]) -> dict[int, str]:
        """Replicas that have ended, and their status."""
        ended = dict.fromkeys(diverged, "diverged")
        if self.at.evaluated == self.at.update:
            for number, replica in enumerate(self.population.replicas):
                lines = replica.directory.lines
                if number not in ended and lines:
                    status = verdict(lines, self.config, self.task, self.timetable.total)
                    if status is not None:
                        ended[number] = status
        return dict(sorted(ended.items()))

    def save(self, diverged: dict[int, int]) -> None:
        """Write checkpoints of all replicas except those that have diverged, which keep their last good one."""
        with self.interruption.timed("saving"):
            good = [number for number in range(len(self.population.replicas)) if number not in diverged]
            resume.save(self.population, self.at, good)

    def stop_if_wanted(self, work: str) -> None:
        """Save everything and raise `Stopped` before this work, if a stop was requested."""
        if self.interruption.wanted(work):
            raise self.stop()

    def stop(self) -> Stopped:
        """Save everything; the exception to raise."""
        if self.at.update > 0 and self.at.saved < self.at.update:
            everyone = range(len(self.population.replicas))
            resume.save(self.population, self.at, everyone, interrupted=True)
        for replica in self.population.replicas:
            replica.directory.time(what="stop", update=self.at.update)
        return self.interruption.stop(f"at update {self.at.update} of {self.timetable.total}")

    def finish(self, ended: dict[int, str], diverged: dict[int, int]) -> None:
        """Score the replicas that have ended on the test split, write their results, and continue with the others."""
        population = self.population
        replicas = [population.replicas[number] for number in ended]
        bests = [best_of(replica.directory.lines, self.task, self.config.best_by) for replica in replicas]
        reported = population.evaluated(self.at.update).clone()
        for number, best in zip(ended, bests, strict=True):
            if self.config.report == "best" and best is not None:
                reported[number] = population.best[number]
        with population.with_weights(reported):
            scores = self.scores(replicas, "test")
        for place, (number, status) in enumerate(ended.items()):
            replica = population.replicas[number]
            result = result_of(
                replica,
                status,
                updates=diverged.get(number, self.at.update),
                epoch=self.timetable.epoch,
                best=bests[place],
                scores=None if scores is None else scores[place],
            )
            replica.directory.time(what="end", update=self.at.update)
            replica.directory.finish(result)
            if status == "diverged":
                self.progress.say(
                    f"{replica.run}: the loss is not finite at update {diverged[number]}; "
                    "the run stops and keeps its last good checkpoint"
                )
            self.progress.ended(replica.run, result)
            for logger in self.loggers:
                logger.ended(replica.run, result)
        population.keep([number for number in range(len(population.replicas)) if number not in ended])
        self.batches = Batches([replica.order for replica in population.replicas])
        self.graphs = self.new_graphs() if population.replicas else None


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


def _training_source(run: Run, device: torch.device) -> Source:
    source = run.task.source("train", run.seed, device)
    if source is None:
        raise ValueError(f"expected task {run.task.name!r} to have sequences to train on, got none")
    return source
