"""The matrix exponential with a fixed number of products agrees with torch's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import remanence as rm
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_layer_is_captured_as_a_graph() -> None:
    layer = rm.ExpRNN(3, 40, device="cuda")
    x = torch.randn(20, 8, 3, device="cuda")

    def update() -> list[Tensor]:
        return list(torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters())))

    expected = update()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = update()
    for slope in found:
        slope.zero_()
    graph.replay()
    torch.testing.assert_close(found, expected)
