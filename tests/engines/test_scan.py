"""Linear recurrences of all steps at once, against one step after another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from remanence.engines.scan import scan

DECAY = torch.tensor([0.0, 0.3, 0.999], dtype=torch.float64)


def one_by_one(values: Tensor, reverse: bool) -> Tensor:
    now, found = torch.zeros(values.shape[1:], dtype=values.dtype), []
    for value in values.flip(0) if reverse else values:
        now = DECAY * now + value
        found.append(now)
    return torch.stack(found[::-1] if reverse else found)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 3, 9, 10, 37])
def test_all_steps_at_once(steps: int, reverse: bool) -> None:
    torch.manual_seed(steps)
    values = torch.randn(steps, 2, 3, dtype=torch.float64)
    before = values.clone()
    torch.testing.assert_close(scan(values, DECAY, reverse), one_by_one(values, reverse))
    assert torch.equal(values, before)


@pytest.mark.parametrize("reverse", [False, True])
def test_more_dimensions_in_front(reverse: bool) -> None:
    values = torch.randn(4, 11, 2, 3, dtype=torch.float64)
    expected = torch.stack([one_by_one(one, reverse) for one in values])
    torch.testing.assert_close(scan(values, DECAY, reverse), expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_first_and_second_derivatives(reverse: bool) -> None:
    values = torch.randn(7, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scan(x, DECAY, reverse), values)
    assert torch.autograd.gradgradcheck(lambda x: scan(x.square(), DECAY, reverse), values)


def test_nan_stays_out_of_earlier_steps() -> None:
    values = torch.ones(20, 1, 3, dtype=torch.float64)
    values[13] = torch.nan
    found = scan(values, DECAY)
    assert found[:13].isfinite().all()
    assert found[13:].isnan().all()
