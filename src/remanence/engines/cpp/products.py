"""Compiled matmuls, see `products.cpp`."""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from ..kernels.layout import padded
from ..kernels.machine_code import joined
from .compiler import PRODUCTS, library

MOST_INPUTS = 64
"""Most inputs of a step that are multiplied together with its hidden state. The matmul of more is done for
many steps at once, which has to write the result and read it again."""
CONSTANTS = {"MOST_ALSO": MOST_INPUTS}
"""What products.cpp is compiled with."""


@cache
def products() -> ctypes.CDLL:
    """Compiled matmuls, which are the same for all kinds of steps."""
    number = ctypes.c_int64
    found = library(joined(PRODUCTS), CONSTANTS, ("columns", "multiply", "gates", "room_of", "sum_gradients"))
    found.gates.argtypes, found.gates.restype = (number,), number
    found.room_of.argtypes, found.room_of.restype = (number, number), number
    found.sum_gradients.argtypes = (ctypes.c_void_p,)
    return found


def panels(matrix: Tensor) -> Tensor:
    """The matrix in the layout of products.cpp: panels of a few columns, each panel row-major."""
    inner, width = matrix.shape
    columns = products().columns()
    return padded(matrix, (0, -width % columns)).reshape(inner, -1, columns).transpose(0, 1).contiguous()


def address(tensor: Tensor | None) -> int:
    """Address of a tensor's data. Checks that it is contiguous, because saved-tensor hooks may have changed that."""
    if tensor is None:
        return 0
    found = tensor.data_ptr()
    plain = tensor.dtype in (torch.float32, torch.int32) and tensor.is_cpu and not tensor.is_neg()
    if plain and tensor.is_contiguous() and (found or not tensor.numel()):
        return found
    got = f"one of {tensor.dtype} on {tensor.device} with strides {tensor.stride()} for {tuple(tensor.shape)}"
    raise RuntimeError(f'expected a contiguous float32 tensor on the CPU, got {got}; engine="loop" takes any tensor')
