"""The training loop.

    for every update: batch, forward, loss, backward, clip, step
    at fixed updates: evaluate, log, save a checkpoint, stop

The loop trains a population of replicas, often just one. Between evaluations and checkpoints it never waits for the
device, except once a second for a progress bar. `train` in `runs` sets everything up.

Read it from the top: `Loop.updates` is the loop, `Loop.update` and `Loop.learn` are one update.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import torch

from ..models.states import detached, each
from ..tasks.base import Batch, Source
from . import machine, optimisers, resume, schedule
from .batches import Batches, Drawn
from .config import Run
from .directory import Directory
from .evaluation import evaluate_split, has_timescales, metrics_line, result_of
from .forward import Forward
from .graph import Graphs, can_capture, has_constant_lr
from .interruption import Budget, Interruption, Stopped
from .loggers import Logger
from .population import Population, Replica
from .progress import Silent
from .schedule import Timetable, best_of, verdict


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
            replicas.append(Replica(run, directory, device, training_source(run, device)))
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
                population.step()
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
        self.population.step()

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


def training_source(run: Run, device: torch.device) -> Source:
    """The sequences that a run trains on."""
    source = run.task.source("train", run.seed, device)
    if source is None:
        raise ValueError(f"expected task {run.task.name!r} to have sequences to train on, got none")
    return source
