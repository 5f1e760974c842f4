"""The read-out of several models is that of each alone."""

import pytest
import torch
from torch.nn import functional

from remanence.models import read_out

DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2}
"""With their tolerance: sums of a few dozen products, in another order."""


def problem(rows, outputs, dtype=torch.float64):
    made = torch.Generator().manual_seed(1)
    hidden, *leaves = (
        torch.randn(shape, generator=made, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((3, rows, 2, 5), *[(outputs, 5)] * 3, *[(outputs,)] * 3)
    )
    return hidden, leaves[:3], leaves[3:]


def expect_that_of_each(hidden, weights, biases, tolerance):
    found = read_out.read_out(hidden, weights, biases)
    expected = torch.stack([functional.linear(*each) for each in zip(hidden, weights, biases, strict=True)])
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    leaves = [hidden, *weights, *biases]
    direction = torch.randn_like(expected)
    slopes = torch.autograd.grad(found, leaves, direction)
    for slope, other in zip(slopes, torch.autograd.grad(expected, leaves, direction), strict=True):
        assert slope.dtype == other.dtype
        torch.testing.assert_close(slope, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outputs", [1, 3, 8, 10])
def test_of_each(outputs, dtype):
    expect_that_of_each(*problem(8, outputs, dtype), DTYPES[dtype])
