"""Matmuls with padding match those without."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from remanence.engines.kernels import products
from remanence.engines.kernels.layout import Blocks

BLOCKS, WIDTH, UNITS, STEPS, ROWS, INPUTS = 3, 16, 13, 6, 4, 7
PADDED, EXACT = Blocks(BLOCKS, WIDTH, UNITS), Blocks(BLOCKS, UNITS, UNITS)


@pytest.fixture(params=[(), (2,)], ids=["alone", "replicas"])
def lead(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return request.param


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def real(d_pre: Tensor) -> Tensor:
    """Without the padding of every block."""
    return d_pre.unflatten(-1, (BLOCKS, WIDTH))[..., :UNITS].flatten(-2)


@pytest.fixture
def d_pre(lead: tuple[int, ...]) -> Tensor:
    return draw(*lead, STEPS * ROWS, BLOCKS * WIDTH)


@pytest.mark.parametrize(("large", "few"), [(1, 1), (2**20, 2**24)], ids=["padded", "as they are"])
def test_inputs(large: int, few: int, lead: tuple[int, ...], d_pre: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", large)
    monkeypatch.setattr(products, "FEW", few)
    inputs, weight = draw(*lead, STEPS * ROWS, INPUTS), draw(*lead, BLOCKS * UNITS, INPUTS)
    found = products.by_weight(inputs, weight)
    assert found.shape[-1] == BLOCKS * UNITS + 1  # padded to whole vectors
    torch.testing.assert_close(found[..., :-1], inputs @ weight.mT)
    by_inputs = products.derivatives_by_inputs(d_pre, weight, PADDED)
    torch.testing.assert_close(by_inputs, real(d_pre) @ weight)
    by_weight = products.derivatives_by_weight(d_pre, inputs, PADDED)
    torch.testing.assert_close(by_weight, real(d_pre).mT @ inputs)
    assert by_weight.is_contiguous()


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of what the products from now on multiply by."""
    found: list[int] = []

    def times(a: Tensor, b: Tensor) -> Tensor:
        found.append(b.shape[-1])
        return a @ b

    monkeypatch.setattr(products, "times", times)
    return found


@pytest.mark.parametrize(
    ("inputs", "few", "expected"),
    [(7, 1, 8), (7, 2**24, 7), (1, 1, 1), (products.NARROW + 1, 2**24, products.NARROW + 2)],
    ids=["many numbers", "few numbers", "a vector", "wide"],
)
def test_narrow_inputs_are_padded_where_it_pays(
    inputs: int, few: int, expected: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "FEW", few)
    d_pre, weight = draw(STEPS * ROWS, BLOCKS * UNITS), draw(BLOCKS * UNITS, inputs)
    torch.testing.assert_close(products.derivatives_by_inputs(d_pre, weight, EXACT), d_pre @ weight)
    assert widths == [expected]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("first", [False, True], ids=["from zero", "from a state"])
def test_recurrent_weight(reverse: bool, first: bool, lead: tuple[int, ...], d_pre: Tensor) -> None:
    outputs, hidden = draw(*lead, STEPS, ROWS, WIDTH), draw(*lead, ROWS, WIDTH)
    before = torch.cat([hidden.unsqueeze(-3) * first, (outputs.flip(-3) if reverse else outputs)[..., :-1, :, :]], -3)
    before = (before.flip(-3) if reverse else before).flatten(-3, -2)
    expected = real(d_pre).mT @ before[..., :UNITS]
    found = products.derivatives_by_recurrent_weight(d_pre, outputs, hidden if first else None, PADDED, reverse=reverse)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous()
    if lead:
        torch.testing.assert_close(products.derivatives_of_replicas(d_pre, before, PADDED), expected)


@pytest.mark.parametrize("first", [False, True], ids=["from zero", "from a state"])
def test_recurrent_weight_of_units_without_padding(first: bool, lead: tuple[int, ...], widths: list[int]) -> None:
    """The rows of h are padded to whole vectors for the matmul."""
    d_pre, hidden = draw(*lead, STEPS * ROWS, BLOCKS * UNITS), draw(*lead, ROWS, UNITS)
    h = draw(*lead, STEPS, ROWS, UNITS)
    found = products.derivatives_by_recurrent_weight(d_pre, h, hidden if first else None, EXACT, reverse=False)
    before = torch.cat([hidden.unsqueeze(-3) * first, h[..., :-1, :, :]], -3).flatten(-3, -2)
    torch.testing.assert_close(found, d_pre.mT @ before)
    assert widths == [UNITS + 1] * (1 + first)
    assert found.is_contiguous()


def test_biases(d_pre: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    for sums in (1, 5, 64):
        monkeypatch.setattr(products, "SUMS", sums)
        torch.testing.assert_close(products.sum_over_rows(d_pre), d_pre.sum(-2).float())


@pytest.mark.parametrize(
    ("rows", "width", "units", "parts"),
    [
        (19200, 2880, 720, 5),  # 69 tiles of 132
        (19072, 2880, 720, 8),
        (78400, 2048, 512, 1),  # 32: torch splits it by itself
        (1400, 4608, 1152, 1),  # 180
        (19201, 2880, 720, 7),
        (19209, 2880, 720, 3),
        (19207, 2880, 720, 1),  # a prime
        (0, 2880, 720, 1),
    ],
)
def test_a_matmul_that_would_leave_sms_idle_is_split(
    rows: int, width: int, units: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "processors", lambda device: 132)
    d_pre, factors = torch.empty(rows, width, device="meta"), torch.empty(rows, units, device="meta")
    assert products._parts(d_pre, factors) == parts
    assert products._parts(d_pre.bfloat16(), factors.bfloat16()) == 1
    assert products._parts(d_pre[None], factors[None]) == 1


@pytest.mark.parametrize("rows", [0, ROWS])
def test_one_step_has_none_before_it(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "processors", lambda device: 132)
    outputs, d_pre, blocks = torch.ones(1, rows, 720), torch.ones(rows, 2880), Blocks(4, 720, 716)
    found = products.derivatives_by_recurrent_weight(d_pre, outputs, outputs[0], blocks, reverse=False)
    assert torch.equal(found, torch.full((4 * 716, 716), float(rows)))
    assert not products.derivatives_by_recurrent_weight(d_pre, outputs, None, blocks, reverse=True).any()
    assert torch.equal(products.derivatives_by_weight(d_pre, outputs[0], blocks), torch.full((2864, 720), float(rows)))


def test_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_parts", lambda d_pre, factors: 4)
    d_pre, inputs = draw(STEPS * ROWS, BLOCKS * WIDTH), draw(STEPS * ROWS, INPUTS)
    found = products.derivatives_by_weight(d_pre, inputs, PADDED)
    torch.testing.assert_close(found, real(d_pre).mT @ inputs)
    assert found.is_contiguous()


@pytest.mark.parametrize("parts", [1, 4])
def test_rows_padded_after_the_last_block(parts: int, lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros for one more unit of every block, and one more."""
    monkeypatch.setattr(products, "_parts", lambda d_pre, factors: parts if d_pre.shape[-2] % parts == 0 else 1)
    rest = torch.zeros(*lead, STEPS * ROWS, BLOCKS + 1, dtype=torch.float64)
    d_pre, inputs = draw(*lead, STEPS * ROWS, BLOCKS * UNITS), draw(*lead, STEPS * ROWS, INPUTS)
    weight, h = draw(*lead, BLOCKS * UNITS, INPUTS), draw(*lead, STEPS, ROWS, UNITS)
    longer = torch.cat([d_pre, rest], -1)
    torch.testing.assert_close(products.derivatives_by_inputs(longer, weight, EXACT), d_pre @ weight)
    torch.testing.assert_close(products.derivatives_by_weight(longer, inputs, EXACT), d_pre.mT @ inputs)
    before = torch.cat([torch.zeros_like(h[..., :1, :, :]), h[..., :-1, :, :]], -3).flatten(-3, -2)
    for found in (
        products.derivatives_by_recurrent_weight(longer, h, None, EXACT, reverse=False),
        products.derivatives_of_replicas(longer, before, EXACT),
    ):
        torch.testing.assert_close(found, d_pre.mT @ before)
        assert found.is_contiguous()
