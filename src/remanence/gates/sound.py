"""Checks of a custom gate, run once when a layer is made with it, so that mistakes show before training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .base import Forgetting, Gate

BATCH, UNITS = 3, 5
"""Shape of the tensors that a gate is tested with."""
SAME = 1e-6
"""Tolerance of forget + complement = 1, in float64."""
TAKEN = frozenset({"input", "candidate", "candidate_reset", "output", "hidden", "cell", "dt"})
"""Names that cells use for their own rows and state."""


@contextmanager
def alone() -> Iterator[None]:
    """Leave the caller's context: functorch transforms, modes, checkpointing hooks, inference mode and autocast."""
    with ExitStack() as stack:
        if torch._C._are_functorch_transforms_active():  # else skip the import, which takes a second
            from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

            stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_unchanged, _unchanged))
        yield


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def expect_sound(gate: Gate) -> None:
    """Raise an error that says what is wrong with a gate, if anything is."""
    names = [*gate.rows, *gate.carries]
    clash = [name for place, name in enumerate(names) if name in TAKEN or name in names[:place]]
    if clash:
        raise ValueError(
            f"expected rows and carried values of gate {gate.name!r} to have unique names, got {clash[0]!r}, "
            "which is used twice or reserved for cells"
        )
    with alone():
        _expect_sound(gate, None)
        if gate.takes_dt:
            _expect_sound(gate, torch.full((BATCH, 1), 0.5, dtype=torch.float64, device="cpu"))


def _expect_sound(gate: Gate, dt: Tensor | None) -> None:
    source = torch.Generator("cpu").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64, device="cpu").requires_grad_()

    rows = tuple(draw(BATCH, UNITS) * 1 for _ in gate.rows)
    carried = tuple(draw(BATCH, UNITS).abs() for _ in gate.carries)
    weights = {name: draw(UNITS) * 1 for name in gate.per_unit}
    given = (*rows, *carried, *weights.values())
    before = [tensor._version for tensor in given]
    try:
        found = gate(rows, carried, weights, dt)
    except KeyError as error:
        declared = ", ".join(gate.per_unit) or "none"
        raise ValueError(
            f"expected gate {gate.name!r} to use weights that it declares in per_unit ({declared}), got {error}"
        ) from error
    except RuntimeError as error:  # from torch, such as a shape mismatch
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"expected gate {gate.name!r} to take rows of any shape (B, H), got for {(BATCH, UNITS)}: {reason}"
        ) from error
    if any(tensor._version != version for tensor, version in zip(given, before, strict=True)):
        raise ValueError(f"expected gate {gate.name!r} to leave its arguments unchanged, got one changed in place")
    if not isinstance(found, Forgetting):
        raise ValueError(f"expected gate {gate.name!r} to return a Forgetting, got {type(found).__name__}")
    if len(found.carried) != len(gate.carries):
        names = ", ".join(gate.carries) or "nothing"
        raise ValueError(
            f"expected gate {gate.name!r} to return everything in carries ({names}), got {len(found.carried)} values"
        )
    parts = {"forget": found.forget, "complement": found.complement}
    parts |= {f"carried {name!r}": part for name, part in zip(gate.carries, found.carried, strict=True)}
    for name, part in parts.items():
        if not isinstance(part, Tensor) or part.shape != (BATCH, UNITS):
            got = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise ValueError(
                f"expected {name} of gate {gate.name!r} to have the shape (B, H) of its rows, here "
                f"{(BATCH, UNITS)}, got {got}"
            )
    others = tuple(draw(BATCH, UNITS) * 1 for _ in gate.rows)
    if not found.forget.requires_grad and not torch.equal(found.forget, gate(others, carried, weights, dt).forget):
        raise ValueError(
            f"expected gate {gate.name!r} to be differentiable, got a forget value that changes with its rows "
            "but has no gradient"
        )
    together = float((found.forget + found.complement - 1).detach().abs().max())
    if not together <= SAME:
        raise ValueError(f"expected complement of gate {gate.name!r} to be 1 - forget, got a sum off by {together:.1e}")
