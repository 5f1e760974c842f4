"""Detects torch transforms (torch.func, tracing, forward-mode AD, fake tensors) that an engine does not support."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

PLAIN = frozenset((Tensor, torch.nn.Parameter))
FAKE, PROXY = torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY
ADVICE = 'engine="loop" supports it'


def transformed() -> bool:
    """Whether a torch.func transform is active: tensors may then be wrappers without data of their own."""
    return torch._C._are_functorch_transforms_active()


def obstacle(tensors: Iterable[Tensor] = ()) -> str | None:
    """Why an engine with its own backward pass cannot run now on these tensors; None if it can."""
    for tensor in tensors:
        if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
            return f"it takes plain tensors, and got a {type(tensor).__name__}; {ADVICE}"
    if transformed():
        return f"it does not support torch.func transforms; {ADVICE}"
    if torch.jit.is_tracing() or (not torch.compiler.is_compiling() and _mode("PROXY")):  # type: ignore[attr-defined, no-untyped-call]
        return f"it does not support tracing; {ADVICE}"
    return _without_forward_mode()


def plain(device: str) -> bool:
    """Whether only values are needed: no gradient, transform, trace, fake tensor or autocast.

    It makes few calls because it runs before every single step.

    Args:
        device: Device type of the tensors.
    """
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled(device)
        or not untransformed()
    )


def untransformed() -> bool:
    """Whether no transform, trace, fake tensor or forward-mode AD is active, in few calls like `plain`."""
    return not (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch._C._get_dispatch_mode(FAKE) is not None
        or torch._C._get_dispatch_mode(PROXY) is not None
    )


def obstacle_to_kernels(tensors: Sequence[Tensor]) -> str | None:
    """Why an engine that reads tensors by their addresses cannot run now; None if it can."""
    if untransformed() and PLAIN.issuperset(map(type, tensors)):
        return None
    if _mode("FAKE") or any(type(tensor) not in PLAIN and isinstance(tensor, FakeTensor) for tensor in tensors):
        return f"the tensors are fake, and it needs their data; {ADVICE}"
    return obstacle(tensors)


def _mode(name: str) -> bool:
    """Whether a dispatch mode of this kind is active."""
    return torch._C._get_dispatch_mode(getattr(torch._C._TorchDispatchModeKey, name)) is not None


def is_traced(tensors: Iterable[Tensor]) -> bool:
    """Whether torch is building a graph instead of computing values."""
    return torch.compiler.is_compiling() or _mode("FAKE") or _mode("PROXY") or _mode("FUNCTIONAL")


def obstacle_to_torch() -> str | None:
    """Why torch's recurrent layers cannot run now; None if they can."""
    levels = functorch.get_interpreter_stack() if transformed() else None
    if any(level.key() == functorch.TransformType.Vmap for level in levels or ()):
        return f"torch has no batching rule for it in torch.func.vmap; {ADVICE}"
    return _without_forward_mode()


def _without_forward_mode() -> str | None:
    return None if forward_ad._current_level < 0 else f"it does not support forward-mode AD; {ADVICE}"
