"""Trained models on sequences of a task: what all analyses that need a model share."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

import torch
from torch import Tensor

from ..models import SequenceModel, forward_together
from ..nn.recurrent import Recurrent
from ..tasks.base import Batch, Score, Task

AT_ONCE = 500
"""Sequences run at a time unless told otherwise."""


def sequences_of(
    task: Task, count: int, *, seed: int = 0, device: torch.device | str = "cpu", at_once: int = AT_ONCE
) -> list[Batch]:
    """Sequences of the test split, or of the validation split where there is none, in batches.

    Args:
        task: what the sequences are of.
        count: how many; all there are where the split has fewer.
        seed: which ones. Experiments train with seeds from 1 on: no model was chosen on those of seed 0.
        device: where they are made.
        at_once: sequences in a batch.
    """
    if count < 1 or at_once < 1:
        raise ValueError(f"expected at least one sequence, in batches of at least one, got {count} and {at_once}")
    device = torch.device(device)
    source = task.source("test", seed, device)
    if source is None:
        source = task.source("validation", seed, device)
    if source is None:
        raise ValueError(f"expected a task with a test or validation split, got {task.name!r}, which has neither")
    if source.size is None:
        generator = torch.Generator(device).manual_seed(seed)
        return [source.draw(min(at_once, count - done), generator) for done in range(0, count, at_once)]
    numbers = torch.arange(min(count, source.size), device=device)
    return [source.pick(numbers[start : start + at_once]) for start in range(0, len(numbers), at_once)]


@contextmanager
def measuring(*models: SequenceModel) -> Iterator[None]:
    """Models in evaluation mode and without gradients; afterwards in the mode they were in."""
    modes = [model.training for model in models]
    try:
        for model in models:
            model.eval()
        with torch.no_grad():
            yield
    finally:
        for model, mode in zip(models, modes, strict=True):
            model.train(mode)


def home_of(model: SequenceModel) -> tuple[torch.device, torch.dtype]:
    """Where a model is, and in which dtype."""
    return model.head.weight.device, model.head.weight.dtype


def layer_of(model: SequenceModel) -> Recurrent:
    """The layer of a model with time first, if it is one of this package: torch's own cannot be taken apart."""
    if not isinstance(model.layer, Recurrent):
        name = type(model.layer).__name__
        raise TypeError(f"expected a model with a layer of remanence ({name}.from_torch), got torch.nn.{name}")
    layer = model.layer
    if layer.batch_first:
        layer = copy.copy(layer)  # shares the weights
        layer.batch_first = False
    return layer


def heard_by(model: SequenceModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """What goes into the layer of a model, `(T, B, I)`, and dt if the layer has a use for it."""
    inputs, dt = _inputs_of(model, batch)
    return model.vectors(inputs, dt, batch.mask), model.dt_of_layer(dt)


def outputs_of(models: Sequence[SequenceModel], together: Batch) -> Tensor:
    """Outputs of R models, `(R, T, B, O)` or `(R, B, O)`, on batches side by side."""
    inputs, dt = _inputs_of(models[0], together)
    return forward_together(models, inputs, together.lengths, dt, mask=together.mask)[0]


def _inputs_of(model: SequenceModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Inputs as a model takes them, and dt if it has a use for it."""
    inputs = batch.inputs.to(home_of(model)[1]) if batch.inputs.is_floating_point() else batch.inputs
    return inputs, batch.dt if model.takes_dt else None


def repeated(batch: Batch, replicas: int) -> Batch:
    """One batch for all of R models, with R in front of every shape. Inputs are not copied."""

    def one(name: str) -> Tensor | None:
        value: Tensor | None = getattr(batch, name)
        if value is None:
            return None
        value = value.unsqueeze(0).expand(replicas, *value.shape)
        return value if name == "inputs" else value.contiguous()

    return Batch(**{field.name: one(field.name) for field in fields(Batch)})  # type: ignore[arg-type]


def scored(
    task: Task, batches: Sequence[Batch], replicas: int, run: Callable[[Batch], Tensor]
) -> dict[str, list[float]]:
    """Every score of a task, as a mean over all batches, for every replica.

    Args:
        task: what is scored.
        batches: sequences.
        replicas: R.
        run: from a batch to the outputs `(R, T, B, O)` or `(R, B, O)` of all replicas.
    """
    sums: dict[str, Score] = {}
    for batch in batches:
        for name, score in task.scores(run(batch), repeated(batch, replicas)).items():
            total, count = score.total.double(), score.count.double()
            before = sums.get(name)
            sums[name] = Score(total, count) if before is None else Score(before.total + total, before.count + count)
    return {name: (total / count).expand(replicas).tolist() for name, (total, count) in sums.items()}
