"""Ablation of units: scores of a model as it loses units (pLSTM figure 5).

Forcing the hidden value of a unit to zero at every step is the same as zeroing its columns in every weight matrix that
reads hidden values: the recurrent matrix and the read-out. So an ablated model is the same model with masked weights,
and many of them run in parallel.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cells import GatedCell, NRUCell
from ..models import SequenceModel
from ..models.sequence import last
from ..tasks.base import Batch, Task
from .plain import Result
from .sequences import AT_ONCE, home_of, layer_input_of, layer_of, measuring, outputs_of, repeated, scored, sequences_of

Where = Literal["everywhere", "head"]
Units = NDArray[numpy.int64]

MEMORY = 2**33
"""Memory limit in bytes on a GPU for the activations of models that run in parallel."""
MEMORY_ON_CPU = 2**28
"""The same on a CPU: small, to fit into caches."""


@dataclass(frozen=True, eq=False)
class UnitAblation(Result):
    """Scores of a model with an increasing number of ablated units."""

    counts: Units
    """Number of ablated units, `(P,)`, starting at 0."""
    orders: Units
    """Orders of ablation, `(N, units)`."""
    goal: str
    """Name of the task's main score."""
    scores: dict[str, NDArray[numpy.float64]]
    """`(N, P)` by name of score."""
    mean: NDArray[numpy.float64]
    """Mean of the goal over orders, `(P,)`."""
    std: NDArray[numpy.float64]
    """Sample standard deviation of the goal over orders; zero for one order."""


def unit_ablation(
    model: SequenceModel,
    task: Task,
    *,
    orders: int | Sequence[Sequence[int]] = 20,
    ablated: int | None = None,
    step: int = 5,
    first: Sequence[int] | Units = (),
    where: Where = "everywhere",
    sequences: int = 1000,
    seed: int = 0,
    at_once: int = AT_ONCE,
    variants: int | None = None,
) -> UnitAblation:
    """Ablate an increasing number of units of the last layer, in several orders.

    Args:
        model: a trained model.
        task: task to score it on.
        orders: number of random orders, or the orders themselves.
        ablated: number of units ablated in the end; None for 100 of 128, or the same fraction of any other number.
        step: additional units from one point to the next.
        first: units that come first in every random order, such as `later_reset_units`.
        where: "everywhere" if an ablated unit reaches neither the read-out nor the recurrence, "head" if it is removed
            only from the read-out.
        sequences: number of sequences to score on.
        seed: seed of the random orders and of the sequences.
        at_once: sequences run at a time.
        variants: models run in parallel; None for one on a CPU, and as many as memory allows on a GPU.
    """
    if where not in ("everywhere", "head"):
        raise ValueError(f"expected where to be 'everywhere' or 'head', got {where!r}")
    units = _units(model)
    if isinstance(orders, int):
        ablated = math.ceil(units * 100 / 128) if ablated is None else ablated
        chosen = random_orders(units, orders, ablated, seed=seed, first=first)
    elif ablated is not None or len(first):
        raise ValueError("expected either orders of units, or their number with ablated and first, got both")
    else:
        chosen = _expect_orders(orders, units)
    counts = numpy.unique(numpy.append(numpy.arange(0, chosen.shape[1], _positive("step", step)), chosen.shape[1]))
    # Points without ablated units, and those within `first`, are the same in every order: run them once.
    kept = numpy.ones((len(chosen), len(counts), units), dtype=bool)
    for order, row in zip(chosen, kept, strict=True):
        for count, mask in zip(counts, row, strict=True):
            mask[order[:count]] = False
    different, which = numpy.unique(kept.reshape(-1, units), axis=0, return_inverse=True)
    device, _ = home_of(model)
    batches = sequences_of(task, sequences, seed=seed, device=device, at_once=at_once)
    found = scores_without(model, task, batches, torch.from_numpy(different), where=where, variants=variants)
    scores = {name: numpy.array(values)[which.reshape(kept.shape[:2])] for name, values in found.items()}
    goal = scores[task.goal]
    return UnitAblation(
        counts=counts,
        orders=chosen,
        goal=task.goal,
        scores=scores,
        mean=goal.mean(0),
        std=goal.std(0, ddof=1) if len(chosen) > 1 else numpy.zeros(len(counts)),
    )


def random_orders(units: int, orders: int, ablated: int, *, seed: int = 0, first: Sequence[int] | Units = ()) -> Units:
    """Orders in which to ablate units, `(orders, ablated)`: first those of `first`, then the others at random.

    Args:
        units: Number of units.
        orders: Number of orders.
        ablated: Length of an order.
        seed: Seed of the orders.
        first: Units to ablate first, in this order.
    """
    _positive("orders", orders)
    if not 1 <= ablated <= units:
        raise ValueError(f"expected to ablate between 1 and {units} units, got {ablated}")
    front = numpy.asarray(first, dtype=numpy.int64).reshape(-1)
    if len(front):
        _expect_orders([front], units)
    others = numpy.setdiff1d(numpy.arange(units), front)
    generator = numpy.random.default_rng(seed)
    rows = [numpy.concatenate((front, generator.permutation(others))) for _ in range(orders)]
    return numpy.stack(rows)[:, :ablated]


def scores_without(
    model: SequenceModel,
    task: Task,
    batches: Sequence[Batch],
    kept: Tensor,
    *,
    where: Where = "everywhere",
    variants: int | None = None,
) -> dict[str, list[float]]:
    """Scores of V variants of a model, each with some units of its last layer ablated.

    Args:
        model: a trained model.
        task: task to score it on.
        batches: sequences to score on.
        kept: `(V, H)`, the units that are kept.
        where: see `unit_ablation`.
        variants: models run in parallel.

    Returns:
        A list of V values for every score.
    """
    _units(model)
    kept = kept.to(home_of(model)[0])
    if variants is None:
        variants = min(_side_by_side(model, batch, where) for batch in batches)
    found: dict[str, list[float]] = {}
    run = _everywhere if where == "everywhere" else _at_the_head
    with measuring(model):
        if where == "head":  # the recurrence is the same for all variants: run it once
            batches = [_hidden(model, batch) for batch in batches]
        for start in range(0, len(kept), _positive("variants", variants)):
            part = kept[start : start + variants]
            for name, values in scored(task, batches, len(part), run(model, part)).items():
                found.setdefault(name, []).extend(values)
    return found


def without(model: SequenceModel, kept: Tensor) -> SequenceModel:
    """A copy of a model in which nothing reads the units outside the mask `kept`, `(H,)`."""
    ablated = copy.deepcopy(model)
    layer = layer_of(ablated)
    suffix = layer.places[-1].suffix
    with torch.no_grad():
        ablated.head.weight.mul_(kept)
        getattr(layer, "weight_hh" + suffix).mul_(kept)
        if isinstance(layer.cell, NRUCell):  # NRU also writes its memory from hidden values
            getattr(layer, "weight_write" + suffix)[:, : len(kept)].mul_(kept)
    return ablated


def _everywhere(model: SequenceModel, kept: Tensor) -> Callable[[Batch], Tensor]:
    models = [without(model, mask) for mask in kept]

    def run(batch: Batch) -> Tensor:
        return outputs_of(models, repeated(batch, len(models)))

    return run


def _at_the_head(model: SequenceModel, kept: Tensor) -> Callable[[Batch], Tensor]:
    weights = (model.head.weight * kept.unsqueeze(1)).mT  # (V, H, O)

    def run(batch: Batch) -> Tensor:
        hidden = batch.inputs if model.readout == "every" else last(batch.inputs, batch.lengths)
        outputs: Tensor = hidden.flatten(0, -2) @ weights + model.head.bias
        return outputs.view(len(kept), *hidden.shape[:-1], -1)

    return run


def _hidden(model: SequenceModel, batch: Batch) -> Batch:
    """The input of the read-out: the hidden values of the layer, `(T, B, H)`."""
    vectors, dt = layer_input_of(model, batch)
    return replace(batch, inputs=layer_of(model)(vectors, None, dt, lengths=batch.lengths)[0], mask=None)


def _units(model: SequenceModel) -> int:
    layer = layer_of(model)
    if layer.bidirectional or layer.proj_size:
        raise ValueError("expected a unidirectional model without projection, got a bidirectional or projected one")
    if not isinstance(layer.cell, GatedCell | NRUCell):
        raise ValueError(
            f"expected a gated cell or NRU, got {layer.cell.name}: which weights read its units is not known"
        )
    return layer.hidden_size


def _side_by_side(model: SequenceModel, batch: Batch, where: Where) -> int:
    """Number of models to run in parallel, so that they fit into memory."""
    on_cpu = batch.inputs.device.type == "cpu"
    if on_cpu and where == "everywhere":
        return 1  # layers run one after the other on a CPU
    steps = batch.inputs.shape[0] * batch.inputs.shape[1]
    # Hidden values twice, cells, up to five blocks of pre-activations; outputs and the intermediates of scores.
    numbers = 8 * model.layer.hidden_size + 4 * model.head.out_features
    if where == "head":
        numbers = 4 * model.head.out_features
    return max(1, (MEMORY_ON_CPU if on_cpu else MEMORY) // (steps * numbers * 4))


def _expect_orders(orders: Sequence[Sequence[int] | Units], units: int) -> Units:
    if not len(orders) or len({len(order) for order in orders}) != 1 or not len(orders[0]):
        raise ValueError("expected at least one order, and all orders of the same length, got others")
    chosen = numpy.array(orders, dtype=numpy.int64)
    if chosen.min() < 0 or chosen.max() >= units or any(len(set(row)) != len(row) for row in chosen.tolist()):
        raise ValueError(f"expected every order to have distinct units from 0 to {units - 1}, got {chosen.tolist()}")
    return chosen


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"expected {name} to be at least 1, got {value}")
    return value
