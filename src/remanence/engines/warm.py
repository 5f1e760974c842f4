"""Compiles kernels ahead of time, so that the first request to a server does not wait for a compiler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from .. import gates
from ..cells import Cell, GatedCell, SRUCell
from .base import Engine, EngineTask
from .check import checked
from .choice import fitted_to
from .comparison import run, undisturbed
from .kernels.one_step import one_step
from .machine import device_named, devices, threads
from .samples import BUILT, UNGATED, Sizes, in_evaluation, layers_with, leaf, make_task
from .self_check import self_check
from .streaming import STEPPING

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Warmed(NamedTuple):
    """The result for one engine on one device."""

    device: str
    engine: str
    layers: int
    """Number of kinds of layers with compiled kernels: cell, gate, with and without dt, dtype, sizes."""
    reason: str | None
    """Why the engine must not be used, see `self_check`; None if it agrees with the loop."""


class _Layer(NamedTuple):
    """A kind of layer, and the engine that runs it."""

    engine: Engine
    training: EngineTask
    evaluation: EngineTask


def warm(
    device: str | torch.device | None = None,
    engines: Sequence[str] | None = None,
    gate: str | gates.Gate | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    units: Sequence[int] = (128,),
    batch: int = 32,
    inputs: int = 32,
) -> Iterator[Warmed]:
    """Compile kernels and check engines; both are cached on disk.

    Covers training, inference and single steps. GPU kernels depend on the sizes of a layer, on its direction, and on
    whether its inputs need a gradient, CPU kernels do not. On GPUs both directions are compiled, for the first layer
    of a network and for those on top of others, and sequences of equal length.

    Args:
        device: Device to compile for; by default the CPU and, if there is one, the current CUDA device.
        engines: Names of the engines; by default all that compile kernels.
        gate: The only gate, by name or as an object; by default all registered gates and the layers without a gate.
        dtypes: Dtypes of inputs and weights.
        units: Hidden sizes.
        batch: Batch size.
        inputs: Input size.
    """
    only = None if gate is None else gates.gate_named(gate)
    for place in devices() if device is None else [device_named(device)]:
        sizes = [Sizes(3, batch, width, each) for each in units for width in _widths(inputs, each, place)]
        for engine in checked(engines):
            if hasattr(engine, "made_of"):
                layers = _layers(engine, only, dtypes, sizes, place)
                if layers:
                    with _pool(place) as pool:
                        list(pool.map(partial(_compile, specialised=place.type == "cuda"), layers))
                    yield Warmed(str(place), engine.name, len(layers), self_check(engine, place))


def _widths(inputs: int, units: int, device: torch.device) -> list[int]:
    """Input sizes of the first layer of a network and of those on top of it, if kernels depend on them."""
    return sorted({inputs, units}) if device.type == "cuda" else [inputs]


def _cells(gate: gates.Gate | None, units: int) -> Iterator[Cell]:
    """The cells of all layers, or of those with this gate. An SRU has its default widths."""
    for each in (made() for made in gates.KNOWN.values()) if gate is None else (gate,):
        yield from layers_with(each)
    if gate is None:
        yield from (cell for cell in BUILT if not isinstance(cell, GatedCell))
        yield from UNGATED
        yield SRUCell(units, max(1, round(0.3 * units)))


def _layers(
    engine: Engine,
    gate: gates.Gate | None,
    dtypes: Sequence[torch.dtype],
    sizes: Sequence[Sizes],
    device: torch.device,
) -> list[_Layer]:
    """All kinds of layers that the engine can run."""
    found = []
    for size in sizes:
        for cell in _cells(gate, size.units):
            then = in_evaluation(cell)
            for irregular in (False, True) if cell.takes_dt else (False,):
                for dtype in dtypes:
                    task = make_task(cell, size, dtype, device, irregular=irregular)
                    found.append(_Layer(fitted_to(engine, task), task, replace(task, cell=then)))
    with _pool(device) as pool:  # an engine may have to compile to find out
        refused = list(pool.map(lambda layer: layer.engine.refuses(layer.evaluation), found))
    return [layer for layer, reason in zip(found, refused, strict=True) if reason is None]


def _compile(layer: _Layer, specialised: bool) -> None:
    """Run a layer in all the ways that have kernels of their own.

    Args:
        layer: The layer.
        specialised: Whether kernels are compiled for a direction, and for inputs that need a gradient or do not.
    """
    device = layer.training.inputs.device
    with undisturbed(device):
        for reverse in (False, True) if specialised else (False,):
            training, evaluation = (replace(task, reverse=reverse) for task in (layer.training, layer.evaluation))
            run(layer.engine, training, training.inputs.dtype)
            if specialised:
                _train_first(layer.engine, training)
            with torch.no_grad():
                layer.engine.run(evaluation)
        if layer.engine.name == STEPPING[device.type]:
            _step(layer.evaluation)


def _train_first(engine: Engine, task: EngineTask) -> None:
    """A training step of the first layer of a network: its inputs need no gradient."""
    weights = {name: leaf(weight) for name, weight in task.weights.items()}
    output = engine.run(replace(task, weights=weights)).output
    torch.autograd.grad(output.float().sum(), list(weights.values()), allow_unused=True)


def _step(task: EngineTask) -> None:
    """A single step of one sequence; nothing happens if there is no compiled one, as for 16-bit dtypes."""
    dt = None if task.dt is None else task.dt[0, :1]
    with torch.no_grad():
        one_step(task.cell, task.weights, task.inputs[0, :1], tuple(part[:1] for part in task.first_state), dt)


def _pool(device: torch.device) -> ThreadPoolExecutor:
    return threads(device) if device.type == "cuda" else ThreadPoolExecutor(os.cpu_count())
