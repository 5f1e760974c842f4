"""Saving a population to its run folders, and resuming from what was saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import checkpoint
from .config import Run
from .directory import Directory
from .files import RunError, Say
from .optimisers import averaging_began
from .population import Population, Replica
from .schedule import Line, Timetable, best_of


@dataclass
class Position:
    """The progress of a population."""

    update: int = 0
    """Updates done."""
    evaluated: int = 0
    """Updates done at the last evaluation."""
    saved: int = 0
    """Updates done at the last checkpoint."""

    @property
    def since(self) -> int:
        """Updates since the last evaluation."""
        return self.update - self.evaluated


def save(population: Population, position: Position, numbers: Sequence[int], interrupted: bool = False) -> None:
    """Write checkpoints of these replicas, and their best weights if they are new.

    Writes all checkpoints first, so that replicas that train together can resume together.
    """
    everything = population.checkpoint_tensors()
    losses = population.losses[:, : position.since].cpu()
    best_weights = population.best.cpu()
    for number in numbers:
        replica, tensors = population.replicas[number], everything[number]
        best = best_of(replica.directory.lines, replica.run.task, replica.run.config.best_by)
        data = {
            "update": position.update,
            "evaluated": position.evaluated,
            "order": replica.order.position,
            "best": None if best is None else best["update"],
            "device": population.device.type,
            "ranks": population.ranks.size,
            **({"threads": torch.get_num_threads()} if population.device.type == "cpu" else {}),
            **({"engines": replica.engines} if replica.engines else {}),
            **_who(replica.run),
        }
        tensors["losses"] = losses[number]
        tensors["metrics"] = _as_tensor(replica.directory.content)
        at_hand = best is not None and best["update"] == position.update and population.averages is None
        if best is not None and not at_hand:
            tensors |= {f"best/{name}": part for name, part in population.layout.split(best_weights[number]).items()}
        if interrupted:
            replica.directory.save_interrupted(tensors, data)
        else:
            replica.directory.save(position.update, tensors, data)
    if not interrupted:
        position.saved = position.update
        for number in numbers:
            _save_best(population, number, best_weights[number])


def _save_best(population: Population, number: int, weights: Tensor) -> None:
    replica = population.replicas[number]
    best = best_of(replica.directory.lines, replica.run.task, replica.run.config.best_by)
    if best is None or best["update"] == replica.best_written:
        return
    tensors = {**replica.model.state_dict(), **population.layout.split(weights)}
    data = {
        **_who(replica.run),
        "update": best["update"],
        "scores": best["validation"],
        "config": replica.run.description,
    }
    replica.directory.save_best(tensors, data)
    replica.best_written = best["update"]


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.zeros(0, dtype=torch.uint8)


def _who(run: Run) -> dict[str, Any]:
    return {"experiment": run.experiment, "model": run.model_name, "seed": run.seed}


def groups(directories: Sequence[Directory], timetable: Timetable, say: Say) -> list[tuple[int, list[int]]]:
    """Groups of runs that can resume side by side.

    Returns:
        Updates done, and the indices of the runs that resume from there. Usually there is one group: all runs resume
        from the newest checkpoint that all have. Without one, they restart together only while no run is past its first
        checkpoint.
    """
    found = [{0, *directory.whole_checkpoints(say)} for directory in directories]
    newest = [max(updates) for updates in found]
    common = max(set.intersection(*found))
    if common > 0 or max(newest) <= timetable.checkpoint_every:
        return [(common, list(range(len(found))))]
    return [(update, [n for n, own in enumerate(newest) if own == update]) for update in sorted(set(newest))]


def restore(population: Population, update: int) -> Position:
    """Load the checkpoints at this update; 0 for the start."""
    if update == 0:
        population.ranks.told(lambda: _rewind(population, 0, [b""] * len(population.replicas)))
        return Position()
    taken, plain, metrics, regular = population.ranks.told(lambda: _read(population, update))
    for replica, lines in zip(population.replicas, metrics, strict=True):
        replica.directory.lines = lines
    population.load_tensors(taken, [data["order"] for data in plain])
    for number, (tensors, data) in enumerate(zip(taken, plain, strict=True)):
        losses = tensors["losses"]
        population.losses[number, : len(losses)] = losses.to(population.device)
        if population.averages is not None:
            run = population.replicas[number].run
            lines = population.replicas[number].directory.lines
            population.averages.since[number] = averaging_began(lines, run.config.optimiser)
        if data["best"] is not None:
            # If nothing is averaged and the current weights are the best, the checkpoint holds them only once.
            at_hand = "best/" if any(name.startswith("best/") for name in tensors) else "model/"
            parts = {name: tensors[at_hand + name] for name in population.layout.places}
            population.best[number] = population.layout.join(parts, population.device)
            _save_best(population, number, population.best[number].cpu())
    return Position(update, plain[0]["evaluated"], update if regular else 0)


def _read(population: Population, update: int) -> tuple[list[dict[str, Tensor]], list[Line], list[list[Line]], bool]:
    """Tensors, plain data and metrics of every replica at an update, and whether all are regular checkpoints.

    Rewinds the folders to that update.
    """
    taken, plain = [], []
    for replica in population.replicas:
        tensors, data = checkpoint.load(replica.directory.whole_checkpoints(lambda words: None)[update])
        _expect(replica, tensors, data, population)
        taken.append(tensors)
        plain.append(data)
    _rewind(population, update, [tensors["metrics"].numpy().tobytes() for tensors in taken])  # after all were accepted
    regular = all(replica.directory.has_step(update) for replica in population.replicas)
    return taken, plain, [replica.directory.lines for replica in population.replicas], regular


def _rewind(population: Population, update: int, metrics: Sequence[bytes]) -> None:
    for replica, content in zip(population.replicas, metrics, strict=True):
        replica.directory.rewind_to(update, content)


def _expect(replica: Replica, tensors: dict[str, Tensor], data: dict[str, Any], population: Population) -> None:
    if data["device"] != population.device.type:
        raise RunError(
            f"expected to resume on {data['device']}, where {replica.directory.path} was started, "
            f"got {population.device.type}"
        )
    there = data.get("ranks", 1)
    if there != population.ranks.size:
        raise RunError(
            f"expected to resume with {there} processes, as {replica.directory.path} was started, "
            f"got {population.ranks.size}"
        )
    state = replica.model.state_dict()
    fits = all(
        f"model/{name}" in tensors and tensors[f"model/{name}"].shape == value.shape for name, value in state.items()
    )
    if not fits:
        raise RunError(f"expected checkpoints of this model in {replica.directory.path}, got those of another")


def first_nonfinite(population: Population, position: Position) -> dict[int, int]:
    """Replicas that have diverged, and the first update at which a loss was not finite.

    Synchronises with the device, so call it only at evaluations and checkpoints.
    """
    wrong = ~population.losses[:, : position.since].isfinite()
    weights = population.parameters.data.isfinite().all(1)
    at = torch.where(
        wrong.any(1),
        position.evaluated + 1 + wrong.int().argmax(1) if wrong.shape[1] else 0,
        torch.where(weights, 0, position.update),
    )
    return {number: update for number, update in enumerate(at.tolist()) if update > 0}
