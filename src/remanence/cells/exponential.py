"""The matrix exponential without a transfer to the host, so that a CUDA graph can capture it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TERMS = 16
"""Of the Taylor series: at a norm of 1/2 the first one left out is below 1e-18."""
SQUARINGS = 12
"""Always computed, and used as far as the norm requires; enough for norms up to 2048."""


def matrix_exponential(matrix: Tensor) -> Tensor:
    """exp(A) of a float64 matrix `(n, n)`: `torch.linalg.matrix_exp`, on CUDA devices with a fixed number of products.

    The former reads the norm of the matrix on the host to choose its number of products, which waits for the device
    and cannot be captured.
    """
    return scaled_and_squared(matrix) if matrix.is_cuda else torch.linalg.matrix_exp(matrix)


def scaled_and_squared(matrix: Tensor) -> Tensor:
    """exp(A) = exp(A / 2^k)^(2^k), with k such that A / 2^k has a norm of at most 1/2; NaN if k exceeds `SQUARINGS`."""
    norm = matrix.detach().abs().sum(-1).amax()
    halvings = torch.log2(norm).ceil().clamp(min=-1) + 1  # log2(0) is -inf
    powers = _taylor(matrix * torch.exp2(-halvings))
    for number in range(SQUARINGS):
        powers = torch.where(number < halvings, powers @ powers, powers)
    return torch.where(halvings <= SQUARINGS, powers, torch.nan)


def _taylor(matrix: Tensor) -> Tensor:
    """The first terms of the series in six products: a polynomial in A^4 whose coefficients are polynomials in A.

    Paterson & Stockmeyer, "On the number of nonscalar multiplications necessary to evaluate polynomials" (1973).
    """
    squared = matrix @ matrix
    low = (torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device), matrix, squared, squared @ matrix)
    fourth = squared @ squared
    parts = [
        torch.stack([power / math.factorial(first + n) for n, power in enumerate(low)]).sum(0)
        for first in range(0, TERMS, len(low))
    ]
    total = parts.pop()
    while parts:
        total = total @ fourth + parts.pop()
    return total
