"""The matrix exponential with a fixed number of products agrees with torch's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from remanence.cells import exponential


def skew(size: int, norm: float) -> Tensor:
    drawn = torch.randn(size, size, dtype=torch.float64)
    found = drawn - drawn.t()
    largest = float(found.abs().sum(-1).max())
    return found * (norm / largest if largest else 0.0)


@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.25, 0.5, 0.51, 1.0, math.pi, 30.0, 500.0, 2048.0])
@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_values_and_gradients_are_those_of_torch(size: int, norm: float) -> None:
    matrix = skew(size, norm).requires_grad_()
    upstream = torch.randn(size, size, dtype=torch.float64)
    found, expected = exponential.scaled_and_squared(matrix), torch.linalg.matrix_exp(matrix)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    slopes = [torch.autograd.grad((value * upstream).sum(), matrix)[0] for value in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-11)


def test_a_matrix_that_is_not_skew_symmetric() -> None:
    matrix = 2 * torch.randn(6, 6, dtype=torch.float64)
    torch.testing.assert_close(exponential.scaled_and_squared(matrix), torch.linalg.matrix_exp(matrix))


def test_first_and_second_derivatives() -> None:
    matrix = skew(4, 3.0).requires_grad_()
    assert torch.autograd.gradcheck(exponential.scaled_and_squared, matrix)
    assert torch.autograd.gradgradcheck(exponential.scaled_and_squared, matrix)


@pytest.mark.parametrize("norm", [2049.0, 1e30, math.inf, math.nan])
def test_what_it_cannot_compute_is_not_a_number(norm: float) -> None:
    matrix = torch.tensor([[0.0, norm], [-norm, 0.0]], dtype=torch.float64)
    assert exponential.scaled_and_squared(matrix).isnan().all()
