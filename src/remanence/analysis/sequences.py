"""Running trained models on sequences of a task, shared by all analyses that need a model."""

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
"""Default number of sequences run at a time."""


def sequences_of(
    task: Task, count: int, *, seed: int = 0, device: torch.device | str = "cpu", at_once: int = AT_ONCE
) -> list[Batch]:
    """Sequences of the test split, or of the validation split if there is no test split, in batches.

    Args:
        task: task of the sequences.
        count: number of sequences; all of them if the split has fewer.
        seed: seed of the sequences. Experiments use seeds from 1 on, so no model was selected on those of seed 0.
        device: device of the sequences.
        at_once: sequences per batch.
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
    """Put models in evaluation mode without gradients; restore their mode afterwards."""
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
    """Device and dtype of a model."""
    return model.head.weight.device, model.head.weight.dtype


def layer_of(model: SequenceModel) -> Recurrent:
    """The layer of a model, time first. It must be a layer of this package: torch layers do not expose their gates."""
    if not isinstance(model.layer, Recurrent):
        name = type(model.layer).__name__
        raise TypeError(f"expected a model with a layer of remanence ({name}.from_torch), got torch.nn.{name}")
    layer = model.layer
    if layer.batch_first:
        layer = copy.copy(layer)  # shares the weights
        layer.batch_first = False
    return layer


def layer_input_of(model: SequenceModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """The input of the layer of a model, `(T, B, I)`, and dt if the layer uses it."""
    inputs, dt = _inputs_of(model, batch)
    return model.vectors(inputs, dt, batch.mask), model.dt_of_layer(dt)


def outputs_of(models: Sequence[SequenceModel], together: Batch) -> Tensor:
    """Outputs of R models, `(R, T, B, O)` or `(R, B, O)`, on stacked batches."""
    inputs, dt = _inputs_of(models[0], together)
    return forward_together(models, inputs, together.lengths, dt, mask=together.mask)[0]


def _inputs_of(model: SequenceModel, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Inputs in the dtype of a model, and dt if it uses it."""
    inputs = batch.inputs.to(home_of(model)[1]) if batch.inputs.is_floating_point() else batch.inputs
    return inputs, batch.dt if model.takes_dt else None


def repeated(batch: Batch, replicas: int) -> Batch:
    """One batch for R models, with R as the first dimension. Inputs are not copied."""

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
        task: task to score.
        batches: sequences.
        replicas: R.
        run: maps a batch to the outputs `(R, T, B, O)` or `(R, B, O)` of all replicas.
    """
    sums: dict[str, Score] = {}
    for batch in batches:
        for name, score in task.scores(run(batch), repeated(batch, replicas)).items():
            total, count = score.total.double(), score.count.double()
            before = sums.get(name)
            sums[name] = Score(total, count) if before is None else Score(before.total + total, before.count + count)
    return {name: (total / count).expand(replicas).tolist() for name, (total, count) in sums.items()}
