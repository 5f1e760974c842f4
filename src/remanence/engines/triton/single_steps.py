"""The same kernels with one launch per step, without synchronisation between programs.

For drivers that refuse cooperative launches, whose programs must all be resident on the GPU at once. Slower, because
every launch reloads the matrix, but with the same results: each launch leaves in memory what the next one reads.

N replicas, T steps, B batch rows, H units; a launch is one step of one replica. Tensors and numbers are the arguments
of the kernel, see there for their order and shapes; a single replica has no leading N.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import starting, tiling
from .kernels import backward_kernel, forward_kernel

Constants = Callable[..., dict[str, Any]]
Tensors = Sequence[Tensor | None]

_refused: set[torch.device] = set()


def is_needed(device: torch.device) -> bool:
    """Whether the driver has refused a cooperative launch on this device."""
    return device in _refused


def note(device: torch.device, refusal: tiling.RefusedError) -> None:
    """Use one launch per step on this device from now on, and warn once."""
    _refused.add(device)
    warnings.warn(
        f"the driver of {device} refused a cooperative launch ({refusal}): "
        "recurrent layers run with one kernel launch per step, which is slower",
        stacklevel=2,
    )


def forward(
    tiles: tiling.Tiling,
    constants: Constants,
    kind: tuple[Any, ...],
    tensors: Tensors,
    numbers: Sequence[Any],
    reverse: bool,
) -> None:
    """Run `forward_kernel` with one launch per step."""
    _, steps, rows, units, *rest = numbers
    given = _named(forward_kernel, tensors, steps, rows)
    last_cell, last_carried = given["last_cell"], given["last_carried"]
    grid = (-(-rows // tiles.row_tile) * tiles.unit_tiles(units),)
    for n, outputs in enumerate(_there(given["hidden"])):
        own = {name: part[n] for name, part in given.items() if part is not None}
        before = own["first_hidden"]
        for place, first in ((last_cell, "first_cell"), (last_carried, "first_carried")):
            if place is not None:
                place[n].copy_(own[first]) if first in own else place[n].zero_()
        for t in range(steps - 1, -1, -1) if reverse else range(steps):
            now: dict[str, Any] = {name: part[t] if name in OF_A_STEP else part for name, part in own.items()}
            now |= {"first_hidden": before, "first_cell": own["last_cell"], "counters": given["counters"]}
            if "lengths" in own:
                now["lengths"] = own["lengths"] - t
            if "last_carried" in own:
                now["first_carried"] = own["last_carried"]
            _start(forward_kernel, constants, kind, grid, now, (0, 1, rows, units, *rest))
            before = outputs[t]


def backward(
    tiles: tiling.Tiling,
    constants: Constants,
    kind: tuple[Any, ...],
    tensors: Tensors,
    numbers: Sequence[Any],
    reverse: bool,
) -> None:
    """Run `backward_kernel` with one launch per step."""
    _, _, steps, rows, units, *rest = numbers
    given = _named(backward_kernel, tensors, steps, rows)
    cells = _there(given["cells"])
    unit_tiles, groups = tiles.unit_tiles(units), -(-rows // tiles.row_tile)
    shares = cells.new_empty(2, groups, unit_tiles, tiles.row_tile, units)
    states = ["hidden", "cell"]
    if given["carried_steps"] is not None:
        states.append("carried")
    order = list(range(steps - 1, -1, -1) if reverse else range(steps))
    for n in range(len(cells)):
        own = {name: part[n] for name, part in given.items() if part is not None and name != "d_dt"}
        running = {state: torch.zeros_like(own[STEPS_OF.get(state, "cells")][0]) for state in states}
        # Gradients of the state after the current step; each launch replaces them by those of the state before it.
        for state, place in running.items():
            place += own.get(f"d_last_{state}", 0)
        slopes = [] if "d_gate_weights" not in own else [torch.zeros_like(own["d_gate_weights"]) for _ in range(2)]
        by_dt = None if given["d_dt"] is None else cells.new_empty(unit_tiles, 1, rows)
        for t, earlier in reversed(list(zip(order, [None, *order], strict=False))):
            now: dict[str, Any] = {name: part[t] if name in OF_A_STEP else part for name, part in own.items()}
            now |= {"shares": shares, "counters": given["counters"], "d_dt": by_dt}
            now |= {f"d_{place}_{state}": part for state, part in running.items() for place in ("last", "first")}
            if "lengths" in own:
                now["lengths"] = own["lengths"] - t
            if slopes:
                now["d_gate_weights"] = slopes[0]
            if earlier is not None:
                now |= {
                    "first_cell": own["cells"][earlier],
                    "first_carried": own["carried_steps"][earlier] if "carried_steps" in own else None,
                }
            _start(backward_kernel, constants, kind, (groups * unit_tiles,), now, (0, groups, 1, rows, units, *rest))
            if not tiles.alone:  # the shares of all programs, which a single launch would sum itself
                running["hidden"] += shares[0].sum(1).flatten(0, 1)[:rows]
            if slopes:
                slopes[1] += slopes[0]
            if by_dt is not None:
                _there(given["d_dt"])[:, n, t] = by_dt[:, 0]
        for state, part in running.items():
            if f"d_first_{state}" in own:
                own[f"d_first_{state}"].copy_(part)
        if slopes:
            own["d_gate_weights"].copy_(slopes[1])


STEPS_OF = {"carried": "carried_steps"}
"""Tensor that holds a state for every step and has its shape; `cells` for all others."""
OF_A_STEP = ("pre", "dt", "hidden", "cells", "carried_steps", "parts", "d_hidden", "d_pre", "d_parts")
"""Arguments with a time dimension; all others belong to a replica as a whole."""


def _named(kernel: Any, tensors: Tensors, steps: int, rows: int) -> dict[str, Tensor | None]:
    """Tensors by the name of the kernel's parameter, with the replica dimension first and steps (if any) second."""
    named: dict[str, Tensor | None] = dict(zip(kernel.arg_names, tensors, strict=False))
    single = _there(named["matrix"]).dim() == 2
    for name, part in named.items():
        if part is None or name in ("counters", "shares"):
            continue
        if single:
            part = part.unsqueeze(1 if name == "d_dt" else 0)
        named[name] = part.view(len(part), steps, rows, -1) if name in ("pre", "d_pre") else part
    return named


def _start(
    kernel: Any,
    constants: Constants,
    kind: tuple[Any, ...],
    grid: tuple[int],
    now: dict[str, Any],
    numbers: Sequence[Any],
) -> None:
    names = kernel.arg_names[: kernel.arg_names.index("counters") + 1]
    starting.start(kernel, constants, kind, grid, [now.get(name) for name in names], numbers)


def _there(value: Tensor | None) -> Tensor:
    assert value is not None
    return value
