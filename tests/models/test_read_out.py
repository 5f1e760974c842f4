"""The read-out of several models, padded and split, equals that of each model alone."""

import pytest
import torch
from torch.nn import functional

from remanence.models import read_out

DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2}
"""With tolerances: sums of a few dozen products in another order."""


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
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    leaves = [hidden, *weights, *biases]
    direction = torch.randn_like(expected)
    slopes = torch.autograd.grad(found, leaves, direction)
    for slope, other in zip(slopes, torch.autograd.grad(expected, leaves, direction), strict=True):
        torch.testing.assert_close(slope, other, rtol=tolerance, atol=tolerance)


@pytest.fixture
def always(monkeypatch):
    """As on a GPU with many rows."""
    monkeypatch.setattr(read_out, "many", lambda rows: True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 7, 8, 10, 16])
def test_padded_to_whole_vectors(always, outputs, dtype):
    expect_that_of_each(*problem(8, outputs, dtype), DTYPES[dtype])


@pytest.mark.parametrize("rows", [8, 9, 12])
@pytest.mark.parametrize("parts", [1, 4, 8])
def test_in_parts(always, rows, parts, monkeypatch):
    monkeypatch.setattr(read_out, "PARTS", parts)
    expect_that_of_each(*problem(rows, 3), DTYPES[torch.float64])


def test_as_it_is_on_a_cpu():
    hidden, weights, biases = problem(8, 3)
    expect_that_of_each(hidden, weights, biases, DTYPES[torch.float64])
    assert read_out.read_out(hidden, weights, biases).is_contiguous()


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 12), (torch.float64, 10), (torch.bfloat16, 16)])
def test_rows_are_whole_vectors_whose_padding_is_cut_off(always, dtype, width):
    found = read_out.read_out(*problem(8, 10, dtype))
    assert found.shape == (3, 8, 2, 10)
    assert found.stride() == (16 * width, 2 * width, width, 1)


def test_a_loss_of_padded_outputs_has_the_same_derivatives(always):
    hidden, weights, biases = problem(8, 3)
    targets = torch.randint(3, (3 * 8 * 2,))
    leaves = [hidden, *weights, *biases]
    plain = torch.stack([functional.linear(*each) for each in zip(hidden, weights, biases, strict=True)])
    slopes, expected = (
        torch.autograd.grad(functional.cross_entropy(outputs.flatten(0, -2), targets), leaves)
        for outputs in (read_out.read_out(hidden, weights, biases), plain)
    )
    for slope, other in zip(slopes, expected, strict=True):
        torch.testing.assert_close(slope, other)
