"""Scores over all sequences of a split, and how they are logged: lines of metrics and results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .. import timescales
from ..models import LanguageModel
from ..models.states import each, narrowed, width
from ..tasks.base import Batch, Score, Source, Task, side_by_side
from ..tasks.sources import FixedSet, together
from .config import Run, Training
from .forward import Forward
from .population import Replica
from .schedule import Line, updates_to

WORST_LANE = "worst_lane_loss"
"""Name of the largest mean loss of a lane: far above the others if a state is lost for good."""


@torch.no_grad()
def evaluate(
    replicas: Sequence[Replica],
    task: Task,
    sources: Sequence[Source],
    forward: Forward,
    *,
    batch: int,
    size: int | None = None,
    stateful: bool = False,
    warm: int = 0,
) -> list[dict[str, float]]:
    """The mean of every score for every replica, and of a stream in lanes also the loss of the worst one.

    Accumulates on the device and synchronises once at the end.

    Args:
        replicas: Models to score.
        task: Task that they learn.
        sources: Sequences for every replica.
        forward: Runs the models.
        batch: Batch size.
        size: Number of sequences to use, from the first; None for all.
        stateful: Whether sequences are chunks of a stream, and the state is carried from one to the next.
        warm: For stateful sequences: number of warm-up chunks of each lane, see `Training.evaluate_warm`.
    """
    available = sources[0].size
    if available is None:
        raise ValueError(
            f"expected task {task.name!r} to evaluate on a fixed number of sequences, got an endless source"
        )
    count = available if size is None else min(size, available)
    totals: dict[str, list[Tensor]] = {}
    lanes: Score | None = None
    states: list[Any] | None = None
    for replica in replicas:
        replica.model.eval()
    try:
        if stateful and warm:
            states = warmed(replicas, sources, forward, next(index_batches(count, batch, forward.device, True)), warm)
        for numbers in index_batches(count, batch, forward.device, stateful):
            data = picked(sources, numbers)
            if states is not None and len(numbers) < width(states[0]):
                states = [narrowed(state, len(numbers)) for state in states]
            outputs, after, _ = forward(replicas, data, states)
            states = after if stateful else None
            for name, score in task.scores(outputs, data).items():
                pair = [score.total.double(), score.count.double()]
                totals[name] = [a + b for a, b in zip(totals[name], pair, strict=True)] if name in totals else pair
            if stateful:
                lanes = added(lanes, task.by_sequence(outputs, data))
    finally:
        for replica in replicas:
            replica.model.train()
    means = {name: (total / number).expand(len(replicas)) for name, (total, number) in totals.items()}
    if lanes is not None:
        means[WORST_LANE] = (lanes.total / lanes.count).amax(1)
    found = [dict(zip(means, row, strict=True)) for row in torch.stack([*means.values()]).T.tolist()]
    return [scores | task.derived(scores) for scores in found]


def added(lanes: Score | None, more: Score | None) -> Score | None:
    """Sums for every lane, `(R, B)`, with those of the next batch, in which the last lanes may have ended."""
    if lanes is None or more is None:
        return more
    missing = lanes.total.shape[1] - more.total.shape[1]
    return Score(*(before + functional.pad(part, (0, missing)) for before, part in zip(lanes, more, strict=True)))


def evaluate_split(
    replicas: Sequence[Replica], split: str, forward: Forward, config: Training
) -> list[dict[str, float]] | None:
    """Scores of replicas on the validation or test split; None if the task has no such split."""
    task = replicas[0].run.task
    if split == "validation":
        sources = [replica.validation for replica in replicas]
    else:
        sources = [replica.run.task.source("test", replica.run.seed, forward.device) for replica in replicas]
    found = [source for source in sources if source is not None]
    if len(found) < len(sources):
        return None
    return evaluate(
        replicas,
        task,
        found,
        forward,
        batch=(config.test_batch if split == "test" else None) or config.evaluate_batch or config.batch,
        size=config.validation_size if split == "validation" else None,
        stateful=config.stateful,
        warm=config.evaluate_warm,
    )


def warmed(
    replicas: Sequence[Replica], sources: Sequence[Source], forward: Forward, starts: Tensor, warm: int
) -> list[Any]:
    """States of lanes that start at these chunks of a stream, after `warm` warm-up chunks before each start.

    Warm-up starts with the state after the first `warm` chunks of the stream. The first lane starts with zeros.
    """
    states: list[Any] | None = None
    beginning = [torch.full_like(starts, number) for number in range(warm)]
    before = [(starts - back).clamp(min=0) for back in range(warm, 0, -1)]
    for numbers in (*beginning, *before):
        _, states, _ = forward(replicas, picked(sources, numbers), states)
    assert states is not None
    return [each(lambda part: part.index_fill(1, starts[:1], 0), state) for state in states]


def picked(sources: Sequence[Source], numbers: Tensor) -> Batch:
    """The sequences with these indices of every source, side by side, computed for all replicas at once if possible."""
    sets = [source for source in sources if isinstance(source, FixedSet)]
    if len(sets) < len(sources) or len(sets) == 1:
        return side_by_side([source.pick(numbers) for source in sources])
    return sets[0].show(together([source.parts_of(numbers) for source in sets]))


def index_batches(count: int, width: int, device: torch.device, stateful: bool) -> Iterator[Tensor]:
    """Indices 0 to count - 1 in batches. In a stream, longer lanes come first, so the last batch may be smaller."""
    if not stateful:
        for start in range(0, count, width):
            yield torch.arange(start, min(start + width, count), device=device)
        return
    width = min(width, count)
    steps, longer = divmod(count, width)
    lane = torch.arange(width, device=device)
    starts = lane * steps + lane.clamp(max=longer)
    for step in range(steps):
        yield starts + step
    if longer:
        yield starts[:longer] + steps


# Metrics and results, as they are written to files.


def metrics_line(
    replica: Replica,
    *,
    update: int,
    epoch: float,
    lr: float,
    loss: float,
    scores: dict[str, float] | None,
    watched: bool,
) -> Line:
    """A line of metrics.jsonl.

    Args:
        replica: Replica that was evaluated.
        update: Updates done.
        epoch: The same in epochs.
        lr: Learning rate of the last update.
        loss: Mean training loss since the previous evaluation.
        scores: Validation scores; None without a validation split.
        watched: Whether to add the timescale of every unit.
    """
    line: Line = {"update": update, "epoch": epoch, "lr": lr, "train": {"loss": loss}}
    if scores is not None:
        line["validation"] = {name: _finite(value) for name, value in scores.items()}
    if watched:
        parts = [part.tolist() for part in timescales.of(_measured(replica))]
        line["timescales"] = [[_finite(value) for value in part] for part in parts]
    return line


def result_of(
    replica: Replica, status: str, *, updates: int, epoch: int, best: Line | None, scores: dict[str, float] | None
) -> dict[str, Any]:
    """The content of result.json.

    Args:
        replica: Replica that has ended.
        status: How it ended.
        updates: Updates done; for a diverged run, the update at which it diverged.
        epoch: Updates per epoch.
        best: Line of its best evaluation.
        scores: Test scores.
    """
    parameters = sum(parameter.numel() for parameter in replica.model.parameters())
    lines = replica.directory.lines
    return content_of(
        replica.run,
        lines,
        status,
        updates=updates,
        epochs=updates / epoch,
        parameters=parameters,
        best=best,
        scores=scores,
    )


def content_of(
    run: Run,
    lines: Sequence[Line],
    status: str,
    *,
    updates: int,
    epochs: float,
    parameters: int,
    best: Line | None,
    scores: dict[str, float] | None,
) -> dict[str, Any]:
    """The content of result.json, from the lines of metrics.jsonl."""
    weights = "best" if run.config.report == "best" and best is not None else "last"
    has_weights = weights == "best" or status != "diverged"
    return {
        "experiment": run.experiment,
        "model": run.model_name,
        "seed": run.seed,
        "status": status,
        "updates": updates,
        "epochs": epochs,
        "parameters": parameters,
        "last": _summary(lines[-1] if lines else None),
        "best": _summary(best),
        "test": None if scores is None or not has_weights else {name: _finite(value) for name, value in scores.items()},
        "test_weights": weights,
        "references": dict(run.task.references),
        "updates_to": updates_to(lines, run.task),
        **({"data": note} if (note := run.task.note) else {}),
    }


def has_timescales(replica: Replica) -> bool:
    """Whether timescales follow from the biases of the model."""
    try:
        timescales.of(_measured(replica))
    except (TypeError, ValueError):  # a layer of torch.nn; a power law
        return False
    return True


def _measured(replica: Replica) -> Any:
    """The module whose timescales are measured."""
    return replica.model if isinstance(replica.model, LanguageModel) else replica.model.layer


def _summary(line: dict[str, Any] | None) -> dict[str, Any] | None:
    """Update and scores of an evaluation."""
    return None if line is None else {"update": line["update"], **line.get("validation", line["train"])}


def _finite(value: float) -> float | None:
    """The value, or None if it is not finite: JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None
