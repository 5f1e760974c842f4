"""The forward pass in TF32 takes its factors in 16 bits, and nobody should notice."""

from __future__ import annotations

import os

import pytest
import torch

import remanence as rm
from remanence.engines.machine import float32_products

pytest.importorskip("triton")
from remanence.engines.triton import recurrence

PLACES = [
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
    ),
    pytest.param(
        "cpu",
        id="interpreted",
        marks=pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted"),
    ),
]
pytestmark = [
    # The interpreter computes both sides of a `where` in NumPy, which tells of the one not taken.
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
]
everywhere = pytest.mark.parametrize("place", PLACES)


@pytest.fixture(autouse=True)
def _tf32_everywhere(monkeypatch):
    monkeypatch.setattr(recurrence, "HALVED_FROM", 16)
    with float32_products(True):
        yield


def error(name, place, state=None, change=lambda layer: None):
    """Largest difference of outputs to float64, relative to the largest output."""
    torch.manual_seed(0)
    layer = rm.make(name, 3, 20, device=place, engine="triton")
    change(layer)
    exact = rm.make(name, 3, 20, device=place, dtype=torch.float64, engine="loop")
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(6, 4, 3, device=place)
    with torch.no_grad():
        found, _ = layer(x, state)
        true, _ = exact(x.double(), None if state is None else tuple(part.double() for part in state))
    return float((found - true).abs().max() / true.abs().max())


@everywhere
@pytest.mark.parametrize("name", ["lstm", "fast", "plstm", "gru", "janet"])
def test_values_are_as_near_as_tf32_allows(name, place):
    assert error(name, place) < 1e-3


@everywhere
@pytest.mark.parametrize("name", ["lstm", "plstm", "gru"])
def test_gradients_are_as_near_as_tf32_allows(name, place):
    torch.manual_seed(0)
    layer = rm.make(name, 3, 20, device=place, engine="triton")
    exact = rm.make(name, 3, 20, device=place, dtype=torch.float64, engine="loop")
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(6, 4, 3, device=place)
    layer(x)[0].square().sum().backward()
    exact(x.double())[0].square().sum().backward()
    for (part, ours), theirs in zip(layer.named_parameters(), exact.parameters(), strict=True):
        assert (ours.grad - theirs.grad).abs().max() < 3e-3 * theirs.grad.abs().max(), part


@everywhere
@pytest.mark.parametrize("factor", [1e-6, 1e-12, 0.0])
def test_small_matrices_lose_nothing(factor, place):
    def change(layer):
        layer.weight_hh_l0.data.mul_(factor)

    assert error("lstm", place, change=change) < 1e-3


@everywhere
def test_a_matrix_beyond_the_range_of_float16_saturates_gates_and_nothing_else(place):
    def change(layer):
        layer.weight_hh_l0.data.mul_(1e6).sign_().mul_(1e6)

    assert error("lstm", place, change=change) < 1e-3


@everywhere
def test_a_first_state_beyond_the_range_of_float16_is_no_infinity(place):
    state = tuple(torch.full((1, 4, 20), value, device=place) for value in (1e6, 0.5))

    def change(layer):
        layer.weight_hh_l0.data.abs_()

    assert error("lstm", place, state, change) < 1e-3


@everywhere
def test_what_is_no_number_stays_none(place):
    layer = rm.make("lstm", 3, 20, device=place, engine="triton")
    state = torch.full((1, 4, 20), torch.nan, device=place), torch.zeros(1, 4, 20, device=place)
    with torch.no_grad():
        assert layer(torch.randn(2, 4, 3, device=place), state)[0].isnan().all()
