"""A layer and what is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from .. import engines
from ..cells import Cell, wide
from ..engines.machine import float32_products
from .layers import KNOWN as LAYERS
from .shapes import BenchPlan, Shape

TORCH = "torch.nn.LSTM"


class Work:
    """A layer with inputs, ready to be called. The inputs want a gradient, as they do inside a network."""

    def __init__(self, layer: nn.Module, inputs: Tensor, units: int) -> None:
        self.layer = layer
        self.inputs = inputs.clone().requires_grad_()  # its own: layers may run in several threads
        self.direction = torch.ones(*inputs.shape[:2], units, device=inputs.device, dtype=inputs.dtype)

    def infer(self) -> None:
        """Forward, with nothing kept."""
        self.layer.train(False)
        with torch.no_grad():
            self.layer(self.inputs)

    def train(self) -> None:
        """Forward and backward, to all weights and to the inputs."""
        self.layer.train(True)
        self.layer.zero_grad(set_to_none=True)
        self.inputs.grad = None
        output, _ = self.layer(self.inputs)
        output.backward(self.direction)


def make_inputs(shape: Shape, plan: BenchPlan) -> Tensor:
    """Random inputs `(T, B, I)`."""
    return torch.randn(shape.steps, shape.batch, shape.inputs, device=plan.device).to(plan.dtype)


def ours(layer: str, engine: str, shape: Shape, plan: BenchPlan, inputs: Tensor) -> Work:
    """A layer of this package."""
    made = LAYERS[layer](shape.inputs, shape.units, engine=engine, device=plan.device, dtype=plan.dtype)
    return Work(made, inputs, shape.units)


def references(shape: Shape, plan: BenchPlan, inputs: Tensor) -> dict[str, Work]:
    """What to beat: torch's layer in the same precision; against bfloat16, the faster of that and float32."""
    dtypes = {TORCH: plan.dtype}
    if plan.precision == "bf16":
        dtypes = {f"{TORCH} bfloat16": torch.bfloat16, f"{TORCH} float32": torch.float32}
    return {
        name: Work(
            nn.LSTM(shape.inputs, shape.units, device=plan.device, dtype=dtype),
            inputs.to(dtype),
            shape.units,
        )
        for name, dtype in dtypes.items()
    }


def blank_task(cell: Cell, shape: Shape, plan: BenchPlan) -> engines.EngineTask:
    """A task of these sizes with nothing in it, to ask engines about."""

    def blank(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(size, device=plan.device, dtype=dtype)

    weights = cell.shapes(shape.inputs, shape.units, shape.units, bias=True)
    widths = cell.widths(shape.units, shape.units)
    return engines.EngineTask(
        cell=cell,
        weights={name: blank(size, plan.dtype) for name, size in weights.items()},
        inputs=blank((shape.steps, shape.batch, shape.inputs), plan.dtype),
        state=tuple(
            blank((shape.batch, width), plan.dtype if name == "hidden" else wide(plan.dtype))
            for name, width in widths.items()
        ),
    )


@contextmanager
def conditions(plan: BenchPlan) -> Iterator[None]:
    """The precision of a plan, and random state of its own."""
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
    """An error in a few words."""
    if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return "out of memory"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
