"""The training loop.

    for every update: draw, forward, loss, backward, clip, step
    at fixed updates: evaluate, save, stop

The loop works on a population of replicas, often of one. It never asks the device for a value between evaluations and
checkpoints, except for a progress bar once a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from .. import timescales
from ..engines.machine import device_named, wait_for
from ..models import LanguageModel
from ..models.modes import detached
from ..tasks.base import Batch, Source
from . import averaging, keeping, machine, optimisers, schedule
from .directory import Directory, Say
from .drawn import Drawn, Draws
from .elsewhere import Elsewhere
from .engine import settle
from .evaluation import evaluate
from .files import RunError
from .forward import Forward
from .graph import WARM, Graph, can_record
from .interruption import Budget, Interruption
from .loggers import Logger
from .population import Population, Replica
from .progress import Silent
from .randomness import kept_aside
from .ranks import Ranks
from .run import Run
from .share import expect_enough
from .states import each
from .stopping import best_of, updates_to, verdict
from .timetable import Timetable


def train(
    runs: Sequence[Run],
    *,
    device: torch.device | str = "cpu",
    budget: Budget | None = None,
    progress: Silent | None = None,
    loggers: Sequence[Logger] = (),
    ranks: Ranks | None = None,
    engine: str | None = None,
) -> list[dict[str, Any]]:
    """Train runs that differ in their seed alone, side by side. Runs that have ended are not trained again.

    Args:
        runs: what to train.
        device: where.
        budget: how long it may take.
        progress: what shows how it goes.
        loggers: other places for metrics.
        ranks: the processes that train them together, each with its share of every batch; all call this alike.
        engine: what runs the models; None for the one a run began with, or the fastest for one that begins.

    Returns:
        The result of every run.

    Raises:
        Stopped: a signal came or the budget is spent; everything is saved, and the same call goes on.
        ValueError: something is wrong with the runs, their configuration or their folders.
    """
    place = device_named(device)
    wait_for(place)
    progress = progress or Silent()
    runs = _expect_alike(runs)
    ranks = ranks or Ranks()
    ranks.told(lambda: expect_enough([runs[0].config], ranks))
    kind = Directory if ranks.first else Elsewhere
    directories = [kind(run.directory) for run in runs]
    interruption = Interruption(budget or Budget(), ranks)
    with ExitStack() as held:
        held.enter_context(kept_aside(place))
        waiting = ranks.told(lambda: _held(runs, directories, held))
        if waiting:
            if interruption.wanted("update"):
                raise interruption.stop("before anything was done")
            own = [directories[number] for number in waiting]
            runs_left = [runs[number] for number in waiting]
            held.enter_context(machine.threads(ranks.told(lambda: own[0].threads)))
            ranks.told(lambda: _start(runs_left, own, machine.describe(place, ranks), progress.say))
            held.enter_context(interruption.listening())
            for logger in loggers:
                held.callback(logger.close)
            sources = ranks.alike(lambda: [_training_source(run, place) for run in runs_left])
            timetable = ranks.alike(lambda: Timetable.of(runs_left[0].config, sources[0]))
            for update, numbers in ranks.told(lambda: keeping.groups(own, timetable, progress.say)):
                replicas = ranks.alike(
                    lambda: [Replica(runs_left[n], own[n], place, sources[n]) for n in numbers]  # noqa: B023
                )
                settle(replicas, engine, progress.say, ranks)
                Loop(replicas, timetable, place, update, interruption, progress, loggers).go()
    if interruption.signalled():  # it came too late to stop anything here, but a caller may have more to do
        raise interruption.stop("when all of these runs had ended")
    return ranks.told(lambda: [_result(directory) for directory in directories])


class Loop:
    """Replicas on their way from one number of updates to the end.

    Args:
        replicas: as they are at the start; they are brought to where they were saved.
        timetable: when something happens.
        device: where.
        update: from which checkpoint to go on; 0 for the start.
        interruption: whether to stop; it knows the ranks.
        progress: what shows how it goes.
        loggers: other places for metrics.
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
        self.forward = Forward(self.config, device)
        self.ranks = interruption.ranks
        self.population = Population(replicas, self.config, device, timetable.evaluate_every, self.ranks)
        self.at = keeping.restore(self.population, update)
        self.ranks.spread(self.population.parameters.data)  # machines may round differently as they make models
        self.watched = self.config.watch_timescales and _has_timescales(replicas[0])
        self.started = time.monotonic()
        self.slot = torch.zeros(1, dtype=torch.long, device=device)
        """Where in the population's losses that of the present update goes."""
        self.graph: Graph | None = None
        self.warm = 0
        self.recordable = can_record(self.config, self.population)
        self.draws = Draws([replica.order for replica in self.population.replicas])

    @classmethod
    def alone(cls, runs: Sequence[Run], device: torch.device) -> Loop:
        """The loop of runs at their start in new folders, to be driven update by update: nobody stops or watches it."""
        replicas = []
        for run in runs:
            directory = Directory(run.directory)
            directory.checkpoints.mkdir(parents=True)
            directory.start(run.description, machine.describe(device))
            replicas.append(Replica(run, directory, device, _training_source(run, device)))
        timetable = Timetable.of(runs[0].config, replicas[0].order.source)
        return cls(replicas, timetable, device, 0, Interruption(Budget()), Silent(), ())

    def go(self) -> None:
        """Train until every replica has ended."""
        self.progress.begin([replica.run for replica in self.population.replicas], self.at.update, self.timetable.total)
        for replica in self.population.replicas:
            replica.directory.time(what="start", update=self.at.update)
        try:
            while self.population.replicas:
                diverged: dict[int, int] = {}
                if self.timetable.evaluates(self.at.update) and self.at.evaluated < self.at.update:
                    self.stop_if_wanted("evaluation")
                    diverged = self.evaluate()
                elif self.timetable.saves(self.at.update) and self.at.saved < self.at.update:
                    diverged = keeping.first_bad(self.population, self.at)
                ended = self.ended(diverged)
                if ended or (self.timetable.saves(self.at.update) and self.at.saved < self.at.update):
                    self.save(diverged)
                if ended:
                    self.finish(ended, diverged)
                    continue
                self.stop_if_wanted("update")
                self.update()
        finally:
            self.progress.end()

    # One update.

    def update(self) -> None:
        """Draw, forward, loss, backward, clip, step."""
        population, replicas = self.population, self.population.replicas
        if replicas[0].order.at_start:
            for replica in replicas:
                replica.state = None
        drawn = self.draws.next()
        self.slot.fill_(self.at.since)
        population.optimiser.param_groups[0]["lr"] = self.lr(self.at.update) * replicas[0].order.factor
        self.record_if_warm(drawn)
        if self.graph is None:
            self.learn(drawn.shown())
        else:
            self.graph.play(drawn)
        self.at.update += 1
        if population.averages is not None:
            population.averages.add(population.parameters.data, self.at.update)
        self.interruption.after_update()
        if self.progress.wants_loss():
            self.progress.step(self.at.update, population.losses[:, self.at.since - 1].mean().item())

    def learn(self, batch: Batch) -> None:
        """The device's part: forward, loss, backward, clip, step. Several ranks share the batch."""
        population, replicas, share = self.population, self.population.replicas, self.population.share
        states = [self.carried(replica) for replica in replicas] if self.config.stateful else None
        own = share.of(batch, self.task)
        with share.active():
            outputs, after, penalties = self.forward(replicas, own, states)
        losses, minimised = share.weighted(self.task.loss(outputs, own), penalties, self.task, batch)
        gradients = population.gradients(minimised)
        with torch.no_grad():
            self.ranks.add_up(losses)
            self.step(gradients)
            population.losses.index_copy_(1, self.slot, losses.unsqueeze(1))
        if self.config.stateful:
            for replica, state in zip(replicas, after, strict=True):
                replica.state = detached(state)

    def carried(self, replica: Replica) -> Any:
        """The state that a replica goes on with; that of some sequences is set to zero where that is wanted."""
        if replica.state is None or not self.config.restart:
            return replica.state
        share = self.population.share
        with replica.noise.active():
            begins = torch.rand(share.batch) < self.config.restart
        begins = begins[share.start : share.start + share.size, None].to(self.population.device)
        return each(lambda part: part.masked_fill(begins, 0), replica.state)

    def record_if_warm(self, drawn: Drawn) -> None:
        """Record the device's part where that is possible, once everything has run a few times."""
        self.warm += 1
        if self.graph is not None or self.warm <= WARM or not self.recordable:
            return
        try:
            self.graph = Graph(self.learn, drawn)
        except RuntimeError as error:
            self.recordable = False
            self.progress.say(
                f"no CUDA graph of an update could be made, which costs speed: {str(error).splitlines()[0]}"
            )

    def step(self, gradients: Tensor) -> None:
        """Clip gradients `(R, P)` and move the parameters."""
        population, config = self.population, self.config.optimiser
        scale = population.scale
        fine = None if scale is None else scale.unscale(gradients)
        if config.clip_value is not None:
            gradients.clamp_(-config.clip_value, config.clip_value)
        if config.clip_norm is not None:
            norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
            gradients.mul_((config.clip_norm / (norms + 1e-6)).clamp(max=1))
        if scale is None or fine is None:
            population.move()
            return
        memory = optimisers.state_of(population.optimiser, population.parameters).values()
        with scale.left_out(fine, [population.parameters.data, *(part for part in memory if part.dim() == 2)]):
            population.move()

    def lr(self, update: int) -> float:
        """The learning rate of the update after so many."""
        factor = schedule.factor(self.config.schedule, update, self.timetable.total, self.timetable.epoch)
        return self.config.optimiser.lr * factor

    # At fixed updates.

    def evaluate(self) -> dict[int, int]:
        """Score all replicas on the validation split and write a line of metrics for each.

        Returns:
            Replicas that have diverged, and at which update. They get no line.
        """
        population, at = self.population, self.at
        weights = population.evaluated(at.update)
        with self.interruption.timed("evaluation"):
            start = time.monotonic()
            diverged = keeping.first_bad(population, at)
            with population.with_weights(weights):
                scores = self.scores(population.replicas, "validation")
            losses = population.losses[:, : at.since].double().mean(1).tolist()
            seconds = time.monotonic() - start
        updates, at.evaluated = at.since, at.update
        for number, replica in enumerate(population.replicas):
            if number in diverged:
                continue
            line: dict[str, Any] = {
                "update": at.update,
                "epoch": at.update / self.timetable.epoch,
                "lr": self.lr(at.update - 1),
                "train": {"loss": losses[number]},
            }
            if scores is not None:
                line["validation"] = {name: _number(value) for name, value in scores[number].items()}
            if self.watched:
                parts = [part.tolist() for part in timescales.of(_measured(replica))]
                line["timescales"] = [[_number(value) for value in part] for part in parts]
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
                since = averaging.began(replica.directory.lines, self.config.optimiser)
                if since == at.update:
                    population.averages.begin(number, since, population.parameters.data[number])
                    self.progress.say(f"{replica.run}: no better for a while, so weights are averaged from here on")
            self.progress.evaluated(replica.run, line)
            for logger in self.loggers:
                logger.log(replica.run, line)
        self.started = time.monotonic()
        return diverged

    def scores(self, replicas: Sequence[Replica], split: str) -> list[dict[str, float]] | None:
        """Scores of replicas on a split, from the first rank; None where the task has no such split."""
        return self.ranks.told(lambda: self._scores(replicas, split))

    def _scores(self, replicas: Sequence[Replica], split: str) -> list[dict[str, float]] | None:
        if split == "validation":
            sources = [replica.validation for replica in replicas]
        else:
            device = self.population.device
            sources = [replica.run.task.source("test", replica.run.seed, device) for replica in replicas]
        found = [source for source in sources if source is not None]
        if len(found) < len(sources):
            return None
        return evaluate(
            replicas,
            self.task,
            found,
            self.forward,
            batch=(self.config.test_batch if split == "test" else None)
            or self.config.evaluate_batch
            or self.config.batch,
            size=self.config.validation_size if split == "validation" else None,
            stateful=self.config.stateful,
            warm=self.config.evaluate_warm,
        )

    def ended(self, diverged: dict[int, int]) -> dict[int, str]:
        """Replicas that have ended, and how."""
        ended = dict.fromkeys(diverged, "diverged")
        if self.at.evaluated == self.at.update:
            for number, replica in enumerate(self.population.replicas):
                lines = replica.directory.lines
                if number not in ended and lines:
                    how = verdict(lines, self.config, self.task, self.timetable.total)
                    if how is not None:
                        ended[number] = how
        return dict(sorted(ended.items()))

    def save(self, diverged: dict[int, int]) -> None:
        """Write the checkpoints of all replicas but those that have diverged, whose last good ones stay."""
        with self.interruption.timed("saving"):
            good = [number for number in range(len(self.population.replicas)) if number not in diverged]
            keeping.save(self.population, self.at, good)

    def stop_if_wanted(self, work: str) -> None:
        """Stop before this work, if that is wanted, with everything saved."""
        if not self.interruption.wanted(work):
            return
        if self.at.update > 0 and self.at.saved < self.at.update:
            keeping.save(self.population, self.at, range(len(self.population.replicas)), interrupted=True)
        for replica in self.population.replicas:
            replica.directory.time(what="stop", update=self.at.update)
        raise self.interruption.stop(f"at update {self.at.update} of {self.timetable.total}")

    def finish(self, ended: dict[int, str], diverged: dict[int, int]) -> None:
        """Write the results of replicas that have ended. The others go on."""
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
            lines, best = replica.directory.lines, bests[place]
            weights = "best" if self.config.report == "best" and best is not None else "last"
            has_weights = weights == "best" or status != "diverged"
            result = {
                "experiment": replica.run.experiment,
                "model": replica.run.model_name,
                "seed": replica.run.seed,
                "status": status,
                "updates": diverged.get(number, self.at.update),
                "epochs": diverged.get(number, self.at.update) / self.timetable.epoch,
                "parameters": sum(parameter.numel() for parameter in replica.model.parameters()),
                "last": _summary(lines[-1] if lines else None),
                "best": _summary(best),
                "test": None
                if scores is None or not has_weights
                else {name: _number(value) for name, value in scores[place].items()},
                "test_weights": weights,
                "references": dict(self.task.references),
                "updates_to": updates_to(lines, self.task),
            }
            replica.directory.time(what="end", update=self.at.update)
            replica.directory.finish(result)
            if status == "diverged":
                self.progress.say(
                    f"{replica.run}: the loss is not finite at update {diverged[number]}; "
                    "the run stops, and its last good checkpoint stays"
                )
            self.progress.ended(replica.run, result)
            for logger in self.loggers:
                logger.ended(replica.run, result)
        self.graph, self.warm = None, 0
        population.keep([number for number in range(len(population.replicas)) if number not in ended])
        self.draws = Draws([replica.order for replica in population.replicas])


def _expect_alike(runs: Sequence[Run]) -> list[Run]:
    runs = list(runs)
    if not runs:
        raise ValueError("expected at least one run, got none")
    first = runs[0]
    for run in runs[1:]:
        if (run.config, run.task, run.model_name) != (first.config, first.task, first.model_name):
            raise ValueError(f"expected runs that differ in their seed alone, got {first} and {run}")
    if len(runs) > 1 and first.config.jitter:
        raise ValueError(
            f"expected runs with training.jitter one by one, whose chunks differ in length, got {len(runs)} together"
        )
    if len({run.directory for run in runs}) < len(runs):
        raise ValueError("expected a folder for every run, got one for several")
    return runs


def _held(runs: Sequence[Run], directories: Sequence[Directory], held: ExitStack) -> list[int]:
    """Hold the folders of runs that have not ended.

    Returns:
        The numbers of these runs.
    """
    waiting = [number for number, run in enumerate(runs) if _ended(run, directories[number]) is None]
    for number in waiting:
        held.enter_context(directories[number].held())
    return [number for number in waiting if directories[number].result is None]  # while we waited for the lock


def _start(runs: Sequence[Run], directories: Sequence[Directory], described: dict[str, Any], say: Say) -> None:
    for run, directory in zip(runs, directories, strict=True):
        directory.start(run.description, described, say)


def _ended(run: Run, directory: Directory) -> dict[str, Any] | None:
    """The result of a run that has ended, whose folder is tidied should that have been cut short."""
    directory.expect_configuration(run.description)
    result = directory.result
    if result is not None and not directory.tidied:
        with directory.held():
            directory.tidy()
    return result


def _result(directory: Directory) -> dict[str, Any]:
    result = directory.result
    if result is None:
        raise RunError(f"expected a result in {directory.path}, got none; something removed it")
    return result


def _training_source(run: Run, device: torch.device) -> Source:
    source = run.task.source("train", run.seed, device)
    if source is None:
        raise ValueError(f"expected task {run.task.name!r} to have sequences to train on, got none")
    return source


def _has_timescales(replica: Replica) -> bool:
    try:
        timescales.of(_measured(replica))
    except (TypeError, ValueError):  # of a layer of torch's; of a power law
        return False
    return True


def _measured(replica: Replica) -> Any:
    """What has timescales."""
    return replica.model if isinstance(replica.model, LanguageModel) else replica.model.layer


def _summary(line: dict[str, Any] | None) -> dict[str, Any] | None:
    """Update and scores of an evaluation."""
    return None if line is None else {"update": line["update"], **line.get("validation", line["train"])}


def _number(value: float) -> float | None:
    """JSON knows no infinity and no NaN."""
    return value if math.isfinite(value) else None
