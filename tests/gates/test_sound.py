"""A custom gate that breaks the rules of `Gate` raises a one-sentence error when a layer is made with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import remanence as rm
from remanence.gates import KNOWN, Forgetting, Gate
from remanence.gates.sound import expect_sound


def gate_that(compute: Callable[..., Any], **more: Any) -> Gate:
    """A gate of this function of its rows, what it carries, its weights and dt."""

    def call(self: Gate, pre: Any, carried: Any, weights: Any, dt: Any) -> Any:
        return compute(pre, carried, weights, dt)

    return type("Odd", (Gate,), {"name": "odd", "__call__": call, **more})()


def logistic(z: Tensor, *carried: Tensor) -> Forgetting:
    return Forgetting(torch.sigmoid(z), torch.sigmoid(-z), carried)


OWN_TENSOR = torch.ones(8)
BAD: dict[str, tuple[Gate, str]] = {
    "no Forgetting": (
        gate_that(lambda pre, carried, weights, dt: (torch.sigmoid(pre[0]), torch.sigmoid(-pre[0]))),
        r"expected gate 'odd' to return a Forgetting, got tuple",
    ),
    "shape of forget": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0].sum(-1, keepdim=True))),
        r"expected forget of gate 'odd' to have the shape \(B, H\) of its rows, here \(3, 5\), got \(3, 1\)",
    ),
    "shape of complement": (
        gate_that(lambda pre, carried, weights, dt: Forgetting(torch.sigmoid(pre[0]), torch.zeros(()))),
        r"expected complement of gate 'odd' to have the shape .* got \(\)",
    ),
    "shape of what is carried": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0], pre[0][:1]), carries=("age",)),
        r"expected carried 'age' of gate 'odd' to have the shape .* got \(1, 5\)",
    ),
    "no tensor": (
        gate_that(lambda pre, carried, weights, dt: Forgetting(torch.sigmoid(pre[0]), 0.5)),  # type: ignore[arg-type]
        r"expected complement of gate 'odd' .* got float",
    ),
    "forgets what it carries": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0], carried[0]), carries=("age", "average")),
        r"to return everything in carries \(age, average\), got 1 values",
    ),
    "carries more": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0], pre[0])),
        r"to return everything in carries \(nothing\), got 1 values",
    ),
    "an undeclared weight": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0] * weights["rate"]), per_unit=("pace",)),
        r"to use weights that it declares in per_unit \(pace\), got 'rate'",
    ),
    "detached": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0].detach())),
        r"expected gate 'odd' to be differentiable, got a forget value that changes with its rows but has no gradient",
    ),
    "rounded": (
        gate_that(lambda pre, carried, weights, dt: Forgetting((pre[0] > 0).double(), (pre[0] <= 0).double())),
        r"expected gate 'odd' to be differentiable",
    ),
    "complement": (
        gate_that(lambda pre, carried, weights, dt: Forgetting(torch.sigmoid(pre[0]), torch.sigmoid(pre[0]))),
        r"expected complement of gate 'odd' to be 1 - forget, got a sum off by",
    ),
    "no number": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0] - 10).__class__(pre[0].sub(9).log(), pre[0].log())),
        r"expected complement of gate 'odd' to be 1 - forget, got a sum off by nan",
    ),
    "with dt": (
        gate_that(
            lambda pre, carried, weights, dt: logistic(pre[0]) if dt is None else logistic(pre[0]).forget,
            takes_dt=True,
        ),
        r"to return a Forgetting, got Tensor",
    ),
    "changes its row": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0].clamp_(-1, 1))),
        r"expected gate 'odd' to leave its arguments unchanged, got one changed in place",
    ),
    "changes its state": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0], carried[0].mul_(2)), carries=("age",)),
        r"expected gate 'odd' to leave its arguments unchanged",
    ),
    "a tensor of another size": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0] * OWN_TENSOR)),
        r"expected gate 'odd' to take rows of any shape \(B, H\), got for \(3, 5\): The size",
    ),
    "two of a name": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0], carried[0]), carries=("forget",)),
        r"rows and carried values of gate 'odd' to have unique names, got 'forget'",
    ),
    "the name of a cell's row": (
        gate_that(lambda pre, carried, weights, dt: logistic(pre[0] + pre[1]), rows=("forget", "candidate")),
        r"rows and carried values of gate 'odd' to have unique names, got 'candidate'",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("layer", [rm.LSTM, rm.GRU, rm.JANET])
def test_a_bad_gate_gets_one_sentence(layer: Any, name: str) -> None:
    gate, sentence = BAD[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        layer(3, 4, gate=gate)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", KNOWN)
def test_gates_of_the_package_are_sound(name: str) -> None:
    expect_sound(KNOWN[name]())


def test_a_good_gate_is_not_mentioned() -> None:
    """With several rows, state, weights and dt."""

    def compute(pre: Any, carried: Any, weights: Any, dt: Any) -> Forgetting:
        z = pre[0] * weights["rate"] + pre[1] - carried[0] * (1.0 if dt is None else dt)
        return logistic(z, carried[0] + 1)

    gate = gate_that(
        compute,
        rows=("forget", "second"),
        carries=("steps",),
        per_unit=("rate",),
        takes_dt=True,
        parameters=lambda self, units: {"rate": torch.ones(units, dtype=torch.float64)},
    )
    output, _ = rm.LSTM(3, 4, gate=gate)(torch.randn(2, 1, 3), None, torch.ones(2, 1))
    assert output.isfinite().all()
