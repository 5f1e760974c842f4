"""The statistical recurrent unit (SRU) on engines with one matmul per step: its two matmuls become two steps.

    r_t = relu(W_r mu_{t-1} + b_r)    phi_t = relu(W_phi r_t + W_x x_t + b)    mu_t^a = a mu_{t-1}^a + (1 - a) phi_t

What an average contributes to r, s^a = W_r^a mu^a, is a moving average too: s_t^a = a s_{t-1}^a + (1 - a) W_r^a phi_t.
This gives a recurrence with one matmul. Its hidden state alternates between r and phi, and its cell carries all s^a:
the first half step computes phi_t from r_t and x_t, the second computes all s_t^a and r_{t+1} from phi_t. The rest is
not recurrent: the averages are computed from all phi_t at once, and the outputs are one matmul of the averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..cells import PointwiseCell, SRUCell, Step, Weights, wide
from .base import Engine, EngineResult, EngineTask, Zeros
from .loop import no_autocast
from .scan import scan
from .table import runs_side_by_side
from .transforms import obstacle_to_kernels

FIRST, SECOND = 1.0, 0.0
"""Flags for the two half steps, passed to kernels in place of dt."""


@dataclass(frozen=True)
class HalfStepCell(PointwiseCell):
    """Half a step of an SRU. Its state is r or phi, and all s^a; dt selects the half."""

    averages: tuple[float, ...]

    name: ClassVar[str] = "sru_half"

    @property
    def blocks(self) -> tuple[str, ...]:
        return (*(f"average{i}" for i in range(len(self.averages))), "statistics")

    @property
    def takes_dt(self) -> bool:
        return True

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size} | {f"average{i}": hidden_size for i in range(len(self.averages))}

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        rows = len(self.blocks) * hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        return shapes | ({"bias_ih": (rows,)} if bias else {}) | {"bias_summary": (hidden_size,)}

    def pointwise(
        self, projected: Tensor, recurrent: Tensor, state: tuple[Tensor, ...], weights: Weights, dt: Tensor | None
    ) -> Step:
        *seen, statistics = self.rows(projected + recurrent).values()
        before = state[1:]
        after = [a * old + (1 - a) * new for a, old, new in zip(self.averages, before, seen, strict=True)]
        summary = weights["bias_summary"].to(statistics.dtype) + sum(after[1:], after[0])
        if dt is None:
            return Step((torch.relu(statistics), *before), {})
        first = dt > 0.5
        hidden = torch.relu(torch.where(first, statistics, summary))
        return Step((hidden, *(torch.where(first, old, new) for old, new in zip(before, after, strict=True))), {})


class Doubled:
    """Runs SRUs on an engine for cells with one matmul per step."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = engine.name
        self.SIDE_BY_SIDE = runs_side_by_side(engine)

    def refuses(self, task: EngineTask) -> str | None:
        """Why it cannot run the task."""
        if torch.compiler.is_compiling():
            return "it cannot run an SRU inside a compiled graph"
        if (reason := obstacle_to_kernels(task.tensors)) is not None:
            return reason
        return self.engine.refuses(_halves(task, like=True))

    def run(self, task: EngineTask) -> EngineResult:
        """Run a task."""
        with no_autocast(task.inputs.device.type):
            return self._run(task)

    def _run(self, task: EngineTask) -> EngineResult:
        cell, weights = task.cell, task.weights
        assert isinstance(cell, SRUCell)
        exact, steps = wide(task.inputs.dtype), task.inputs.shape[-3]
        halves = self.engine.run(_halves(task)).output
        statistics = halves[..., int(task.reverse) :: 2, :, : cell.statistics].to(exact)
        decay = torch.cat([statistics.new_full((cell.statistics,), a) for a in cell.averages])
        shares = torch.cat([(1 - a) * statistics for a in cell.averages], -1)
        averages = scan(shares, decay, task.reverse)
        if not isinstance(task.state, Zeros):
            averages = averages + decay ** _count(task).to(exact) * task.state[1].to(exact).unsqueeze(-3)
        output = _product(averages.flatten(-3, -2), weights["weight_output"], weights.get("bias_output"))
        output = torch.relu(output).view(*averages.shape[:-1], -1)
        # In memory of their own: the output may be changed in place, and averages of all steps need not be kept.
        last, final = _last(task, averages).clone(), _last(task, output).clone()
        if task.lengths is not None:
            real = torch.arange(steps, device=output.device).unsqueeze(-1) < task.lengths.unsqueeze(-2)
            output = torch.where(real.unsqueeze(-1), output, 0)
        return EngineResult(output.to(task.inputs.dtype), (final.to(task.inputs.dtype), last))


@lru_cache
def _half(averages: tuple[float, ...]) -> HalfStepCell:
    """One cell object for all calls, because engines cache on a cell what is slow to derive."""
    return HalfStepCell(averages)


def _halves(task: EngineTask, like: bool = False) -> EngineTask:
    """The task for a `HalfStepCell`; with `like`, only its shapes are right and its values are zeros."""
    cell, weights, inputs = task.cell, task.weights, task.inputs
    assert isinstance(cell, SRUCell)
    *several, steps, batch, features = inputs.shape
    count, size = len(cell.averages), max(cell.statistics, cell.summary)
    half = _half(cell.averages)
    if like:
        shapes = half.shapes(features, size, size, "bias_ih" in weights)
        learns = any(tensor.requires_grad for tensor in task.tensors)
        return EngineTask(
            half,
            {name: inputs.new_zeros(1).expand(shape).requires_grad_(learns) for name, shape in shapes.items()},
            inputs.new_zeros(1).expand(2 * steps, batch, features),
            Zeros((size,) * (1 + count)),
            inputs.new_zeros(1, dtype=wide(inputs.dtype)).expand(2 * steps, batch),
            task.lengths,
            task.reverse,
        )

    def filled(vector: Tensor) -> Tensor:
        return pad(vector, (0, size - vector.shape[-1]))

    def rows(matrix: Tensor, width: int) -> Tensor:
        return pad(matrix, (0, width - matrix.shape[-1], 0, size - matrix.shape[-2]))

    seen = weights["weight_summary"].chunk(count, -1)
    other = inputs.new_zeros(*several, count * size, features)
    bias = weights.get("bias_summary")
    built = {
        "weight_ih": torch.cat((other, rows(weights["weight_ih"], features)), -2),
        "weight_hh": torch.cat([*(rows(part, size) for part in seen), rows(weights["weight_hh"], size)], -2),
    }
    if "bias_ih" in weights:
        vector = weights["bias_ih"]
        built["bias_ih"] = torch.cat((vector.new_zeros(*several, count * size), filled(vector)), -1)
    nothing = inputs.new_zeros(*several, size, dtype=wide(inputs.dtype))
    built["bias_summary"] = nothing if bias is None else filled(bias)
    without = torch.zeros_like(inputs)
    pair = (without, inputs) if task.reverse else (inputs, without)
    half_steps = torch.arange(2 * steps, device=inputs.device) + int(task.reverse)
    flags = torch.where(half_steps % 2 == 0, FIRST, SECOND).to(wide(inputs.dtype))
    return EngineTask(
        half,
        built,
        torch.stack(pair, -3).flatten(-4, -3),
        _first_state(task, built, seen, size),
        flags.unsqueeze(-1).expand(*several, -1, batch).contiguous(),
        None if task.lengths is None else 2 * task.lengths,
        task.reverse,
    )


def _first_state(task: EngineTask, built: Weights, seen: tuple[Tensor, ...], size: int) -> tuple[Tensor, ...]:
    """r_1 and all s_0^a, `(B, size)` each."""
    *several, _, batch, _ = task.inputs.shape
    exact = wide(task.inputs.dtype)
    bias = built["bias_summary"].to(exact).unsqueeze(-2)
    if isinstance(task.state, Zeros):
        parts = [task.inputs.new_zeros(*several, batch, size, dtype=exact)] * len(seen)
    else:
        first = task.state[1].chunk(len(seen), -1)
        parts = [
            pad(_product(part, weight, None), (0, size - weight.shape[-2]))
            for part, weight in zip(first, seen, strict=True)
        ]
    summary = torch.relu(bias + sum(parts[1:], parts[0]))
    return summary.to(task.inputs.dtype), *parts


def _product(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Like `affine`, for stacked weights as well."""
    product = (values.to(weight.dtype) @ weight.mT).to(wide(weight.dtype))
    return product if bias is None else product + bias.to(product.dtype).unsqueeze(-2)


def _count(task: EngineTask) -> Tensor:
    """Number of steps done after each step, `(T, B, 1)`; zero in the padding of a reverse pass."""
    *several, steps, batch, _ = task.inputs.shape
    at = torch.arange(steps, device=task.inputs.device).unsqueeze(-1)
    lengths = at.new_full((*several, batch), steps) if task.lengths is None else task.lengths
    gone = lengths.unsqueeze(-2) - at if task.reverse else torch.minimum(at + 1, lengths.unsqueeze(-2))
    return gone.clamp(min=0).unsqueeze(-1)


def _last(task: EngineTask, values: Tensor) -> Tensor:
    """The values after the last step, `(B, width)`, of all values `(T, B, width)`."""
    if task.reverse:
        return values.select(-3, 0)
    if task.lengths is None:
        return values.select(-3, -1)
    before = (task.lengths.long() - 1).clamp(min=0)  # a chunk of a sequence may have no steps: the state stays
    at = before[..., None, :, None].expand(*values.shape[:-3], 1, *values.shape[-2:])
    return values.gather(-3, at).squeeze(-3)
