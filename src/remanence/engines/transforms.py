"""Transformations of torch's that an engine cannot take part in: for which it has no rules, or which do not see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

PLAIN = (Tensor, torch.nn.Parameter)
ADVICE = 'engine="loop" takes part in it'


def transformed() -> bool:
    """Whether torch.func transforms what is running: tensors may stand for others, whose numbers are not known."""
    return torch._C._are_functorch_transforms_active()


def obstacle(tensors: Iterable[Tensor] = ()) -> str | None:
    """Why an engine that has a backward pass of its own cannot run now, on these tensors."""
    for tensor in tensors:
        if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
            return f"it takes plain tensors, and there is a {type(tensor).__name__}; {ADVICE}"
    if transformed():
        return f"torch.func transforms what calls it; {ADVICE}"
    if torch.jit.is_tracing() or (not torch.compiler.is_compiling() and _mode("PROXY")):  # type: ignore[attr-defined, no-untyped-call]
        return f"what torch records of it would not be all; {ADVICE}"
    return _without_forward_mode()


def plain(device: str) -> bool:
    """Whether nothing but numbers is asked for: no gradient, transform, trace, fake tensor, or autocast.

    In few calls, for it is asked before every single step.

    Args:
        device: type of that of the tensors.
    """
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
        or torch.is_autocast_enabled(device)
    )


def obstacle_to_kernels(tensors: Sequence[Tensor]) -> str | None:
    """Why an engine cannot that reads numbers at their addresses."""
    if _mode("FAKE") or any(type(tensor) not in PLAIN and isinstance(tensor, FakeTensor) for tensor in tensors):
        return f"tensors are fake, and it needs their numbers; {ADVICE}"
    return obstacle(tensors)


def _mode(name: str) -> bool:
    """Whether there is such a mode."""
    return torch._C._get_dispatch_mode(getattr(torch._C._TorchDispatchModeKey, name)) is not None


def is_traced(tensors: Iterable[Tensor]) -> bool:
    """Whether torch makes a graph of what is running, in the place of numbers."""
    return torch.compiler.is_compiling() or _mode("FAKE") or _mode("PROXY") or _mode("FUNCTIONAL")


def obstacle_to_torch() -> str | None:
    """Why torch's recurrent layers cannot."""
    levels = functorch.get_interpreter_stack() if transformed() else None
    if any(level.key() == functorch.TransformType.Vmap for level in levels or ()):
        return f"torch has no rules for it in torch.func.vmap; {ADVICE}"
    return _without_forward_mode()


def _without_forward_mode() -> str | None:
    return None if forward_ad._current_level < 0 else f"it has no derivatives in forward mode; {ADVICE}"
