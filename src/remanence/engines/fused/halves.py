"""A matrix in half the bytes, with the digits of TF32."""

from __future__ import annotations

import torch
from torch import Tensor


def halved(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix as float16, divided by a power of two above its largest entry, and that.

    Args:
        matrix: `(N, G H, H)` float32.

    Returns:
        The like of it, and `(N, 1, 1)` float32.
    """
    scale = magnitude(matrix)
    return torch.div(matrix, scale, out=torch.empty_like(matrix, dtype=torch.float16)), scale


def magnitude(matrix: Tensor) -> Tensor:
    """The power of two above the largest entry, `(N, 1, 1)`."""
    scale: Tensor = torch.linalg.vector_norm(matrix, torch.inf, (-2, -1), keepdim=True)
    scale.view(torch.int32).add_(0x00800000).bitwise_and_(0x7F800000)
    return scale
