"""The calls that are timed: inference and training step of our layers and torch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn

from .. import engines
from ..cells import Cell, wide
from ..engines.machine import float32_products
from .layers import KNOWN as LAYERS
from .layers import PROJECTED, projection
from .measure import one, training_bytes
from .shapes import BenchPlan, Shape

TORCH = "torch.nn.LSTM"
TORCH_PROJECTED = f"{TORCH} {PROJECTED}"


class Measured(Protocol):
    """A layer with inputs that can be measured, wherever it runs."""

    def warm(self) -> int:
        """One forward and one training step; returns the memory of a training step in bytes."""

    def infer_ms(self) -> float:
        """Time of inference in milliseconds."""

    def train_ms(self) -> float:
        """Time of a training step in milliseconds."""


class Work:
    """A layer with inputs, ready to be called. The inputs require a gradient, as they do inside a network."""

    def __init__(self, layer: nn.Module, inputs: Tensor, units: int) -> None:
        self.layer = layer
        self.inputs = inputs.requires_grad_()
        self.direction = torch.ones(*inputs.shape[:2], units, device=inputs.device, dtype=inputs.dtype)

    def infer(self) -> None:
        """Forward under `torch.no_grad`."""
        self.layer.train(False)
        with torch.no_grad():
            self.layer(self.inputs)

    def train(self) -> None:
        """Forward and backward, with gradients of all weights and the inputs."""
        self.layer.train(True)
        self.layer.zero_grad(set_to_none=True)
        self.inputs.grad = None
        output, _ = self.layer(self.inputs)
        output.backward(self.direction)

    def warm(self) -> int:
        """See `Measured`."""
        self.infer()
        self.train()
        return training_bytes(self.layer, self.inputs, self.train)

    def infer_ms(self) -> float:
        """See `Measured`."""
        return one(self.infer, self.inputs.device)

    def train_ms(self) -> float:
        """See `Measured`."""
        return one(self.train, self.inputs.device)


def make_inputs(shape: Shape, plan: BenchPlan) -> Tensor:
    """Random inputs `(T, B, I)`."""
    return torch.randn(shape.steps, shape.batch, shape.inputs, device=plan.device).to(plan.dtype)


def make_work(layer: str, engine: str, shape: Shape, plan: BenchPlan) -> Work:
    """A layer with inputs: one of this package, or one of torch if no engine is named."""
    inputs, outputs = make_inputs(shape, plan), projection(layer, shape.units)
    made: nn.Module
    if engine:
        made = LAYERS[layer](shape.inputs, shape.units, engine=engine, device=plan.device, dtype=plan.dtype)
    else:
        inputs = inputs.to(rivals(plan)[layer])
        made = nn.LSTM(shape.inputs, shape.units, proj_size=outputs, device=plan.device, dtype=inputs.dtype)
    return Work(made, inputs, outputs or shape.units)


def rivals(plan: BenchPlan) -> dict[str, torch.dtype]:
    """The torch layers to beat: in the same precision, and for bfloat16 also in float32 (the faster one counts)."""
    dtypes = {"": plan.dtype}
    if plan.precision == "bf16":
        dtypes = {" bfloat16": torch.bfloat16, " float32": torch.float32}
    names = dict.fromkeys(rival(layer) for layer in plan.layers)
    return {f"{name}{suffix}": dtype for name in names for suffix, dtype in dtypes.items()}


def rival(layer: str) -> str:
    """Name of the torch layer that a layer is compared with."""
    return TORCH_PROJECTED if PROJECTED in layer else TORCH


def blank_task(layer: str, shape: Shape, plan: BenchPlan) -> engines.EngineTask:
    """A task of these sizes with uninitialised tensors, to query engines with."""
    cell, outputs = cell_of(layer, shape), projection(layer, shape.units) or shape.units

    def blank(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(size, device=plan.device, dtype=dtype)

    weights = cell.shapes(shape.inputs, shape.units, outputs, bias=True)
    widths = cell.widths(shape.units, outputs)
    return engines.EngineTask(
        cell=cell,
        weights={name: blank(size, plan.dtype) for name, size in weights.items()},
        inputs=blank((shape.steps, shape.batch, shape.inputs), plan.dtype),
        state=tuple(
            blank((shape.batch, width), plan.dtype if name == "hidden" else wide(plan.dtype))
            for name, width in widths.items()
        ),
    )


def cell_of(layer: str, shape: Shape) -> Cell:
    """The cell that engines run. It may depend on the number of units."""
    return LAYERS[layer](1, shape.units, device="meta").recurrence


@contextmanager
def conditions(plan: BenchPlan) -> Iterator[None]:
    """Set the precision of a plan, and fork the random state."""
    cuda = plan.device.type == "cuda"
    with (
        torch.random.fork_rng(devices=[plan.device] if cuda else []),
        float32_products(plan.precision != "full") if cuda else nullcontext(),
        torch.cuda.device(plan.device) if cuda else nullcontext(),
    ):
        torch.default_generator.manual_seed(0)
        if cuda:
            torch.cuda.manual_seed(0)
        yield


def why(error: Exception) -> str:
    """A short description of an error."""
    if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return "out of memory"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
