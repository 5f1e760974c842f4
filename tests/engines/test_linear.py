"""Kernels for linear layers of several replicas match torch, on the simulated GPU and on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import simulation
import torch

import remanence.engines.cuda as clusters
from remanence.engines.cuda import linear
from remanence.models import read_out

ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""Relative to the largest value of a tensor."""


@pytest.fixture(
    params=[
        pytest.param(
            "cpu", id="simulated", marks=pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
        ),
        pytest.param("cuda", marks=ON_A_GPU),
    ]
)
def place(request, libraries, monkeypatch) -> Iterator[str]:
    """Where to compute."""
    if request.param == "cuda":
        if (reason := clusters.device.lacks(torch.device("cuda", 0))) is not None:
            pytest.skip(reason)
        yield request.param
        return
    simulate(libraries, monkeypatch)
    yield request.param


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    linear._kernel.cache_clear()


def simulate(libraries, monkeypatch, **forgotten: str) -> None:
    """Run kernels on the simulated GPU, each without its `forgotten` text."""
    linear._kernel.cache_clear()
    simulation.stand_in(linear, libraries, monkeypatch, **forgotten)
    monkeypatch.setattr(linear, "PROGRAMS", 4)


def problem(replicas, rows, units, outputs, place, dtype=torch.float32):
    made = torch.Generator().manual_seed(rows)
    shapes = (replicas, rows, units), (replicas, outputs, units), (replicas, outputs), (replicas, rows, outputs)
    return [torch.randn(shape, generator=made).to(dtype).to(place) for shape in shapes]


def expected_of(hidden, weight, bias, d_outputs):
    """Outputs and gradients in float64."""
    hidden, weight, bias, d_outputs = (value.detach().double() for value in (hidden, weight, bias, d_outputs))
    outputs = torch.baddbmm(bias.unsqueeze(1), hidden, weight.mT)
    return [outputs, d_outputs @ weight, d_outputs.mT @ hidden, d_outputs.sum(1)]


def expect_right(hidden, weight, bias, d_outputs):
    found = [linear.outputs(hidden, weight, bias), *linear.slopes(hidden, weight, d_outputs)]
    for value, right in zip(found, expected_of(hidden, weight, bias, d_outputs), strict=True):
        assert value.shape == right.shape
        error = (value.double() - right).abs().max() / right.abs().max()
        assert error <= TOLERANCE[hidden.dtype]


@pytest.mark.long
@pytest.mark.parametrize(
    ("replicas", "rows", "units", "outputs"),
    [
        (1, 1, 4, 1),
        (2, 15, 20, 3),
        (2, 200, 100, 10),
        (1, 65, 128, 16),
        (5, 33, 68, 13),
    ],
)
def test_of_any_size(place, replicas, rows, units, outputs):
    expect_right(*problem(replicas, rows, units, outputs, place))


@pytest.mark.long
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_of_any_dtype(place, dtype):
    expect_right(*problem(2, 100, 20, 3, place, dtype))


@pytest.mark.parametrize("programs", [1, 3, 50])
def test_any_number_of_thread_blocks(place, programs, monkeypatch):
    monkeypatch.setattr(linear, "PROGRAMS", programs)
    expect_right(*problem(2, 300, 20, 3, place))


def test_nan_stays_in_its_row(place):
    hidden, weight, bias, _ = problem(2, 70, 20, 3, place)
    hidden[1, 5, 2] = torch.nan
    outputs = linear.outputs(hidden, weight, bias)
    assert outputs[1, 5].isnan().all()
    assert outputs.isnan().sum() == 3


def test_gradients_of_a_replica_are_aligned(place):
    """So that they can be copied with vector loads."""
    hidden, weight, _, d_outputs = problem(3, 20, 20, 3, place)
    for part in linear.slopes(hidden, weight, d_outputs):
        assert all(replica.is_contiguous() and replica.data_ptr() % 16 == 0 for replica in part)


def test_runs_repeat(place, monkeypatch):
    hidden, weight, _, d_outputs = problem(2, 300, 20, 3, place)
    once = linear.slopes(hidden, weight, d_outputs)
    monkeypatch.setattr(simulation.Kernel, "seed", 1)  # another order of threads
    assert all(map(torch.equal, once, linear.slopes(hidden, weight, d_outputs)))


@pytest.mark.long
@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("name", "forgotten"),
    [
        ("linear_forward", "wait_for_fetches<STAGES - 1>();"),
        ("linear_backward", "wait_for_fetches<STAGES - 1>();"),
        ("linear_backward", "__syncwarp();"),
        ("linear_backward", "__syncthreads();"),
    ],
)
def test_a_kernel_that_does_not_wait_is_detected(name, forgotten, libraries, monkeypatch):
    simulate(libraries, monkeypatch, **{name: forgotten})
    given = problem(2, 300, 20, 3, "cpu")

    def goes_wrong(seed):
        monkeypatch.setattr(simulation.Kernel, "seed", seed)
        try:
            expect_right(*given)
        except AssertionError:
            return True
        return False

    assert any(goes_wrong(seed) for seed in range(5))


def test_a_cpu_has_no_kernels():
    assert not linear.suits(torch.zeros(2, 3, 16), 3)


def read_outs(hidden, weight, bias, d_outputs, dtype):
    """Ours and torch's, with gradients."""
    leaves = [value.to(dtype).requires_grad_() for value in (hidden, weight, bias)]
    for how in (read_out.by_kernels, read_out.by_torch):
        outputs = how(*leaves)
        yield [outputs, *torch.autograd.grad(outputs, leaves, d_outputs.to(dtype))]


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_read_outs_have_gradients(place, dtype):
    ours, theirs = read_outs(*problem(2, 100, 20, 3, place), dtype)
    for found, other in zip(ours, theirs, strict=True):
        assert found.dtype == other.dtype
        assert (found - other).abs().max() <= 5 * TOLERANCE[dtype] * other.abs().max()


def test_a_sum_of_read_outs_has_gradients(place):
    hidden, weight, bias, _ = problem(2, 100, 20, 3, place)
    weight.requires_grad_()
    read_out.by_kernels(hidden, weight, bias).sum().backward()  # by outputs it is a single number, repeated
    torch.testing.assert_close(weight.grad, hidden.sum(1, keepdim=True).expand_as(weight), rtol=1e-4, atol=1e-4)


def test_read_outs_have_second_derivatives(place):
    hidden, weight, bias, d_outputs = problem(2, 100, 20, 3, place)
    hidden.requires_grad_()
    weight.requires_grad_()
    (slope,) = torch.autograd.grad(read_out.by_kernels(hidden, weight, bias), hidden, d_outputs, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), weight)
    expected = d_outputs.sum(1).unsqueeze(-1).expand_as(weight)
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-4)


class TestChoice:
    """Whose products a read-out is made of, as if a CPU were a GPU."""

    @pytest.fixture(autouse=True)
    def taken(self, libraries, monkeypatch):
        simulate(libraries, monkeypatch)
        monkeypatch.setattr(read_out, "many", lambda rows: True)
        monkeypatch.setattr(linear, "suits", lambda rows, width: True)
        taken = []

        def by_kernels(*given):
            taken.append(given)
            return read_out.ReadOut.apply(*given)

        monkeypatch.setattr(read_out, "by_kernels", by_kernels)
        return taken

    @pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
    def test_is_that_of_each(self, taken):
        hidden, weight, bias, d_outputs = problem(2, 100, 20, 3, "cpu")
        leaves = [hidden, *weight.unbind(), *bias.unbind()]
        for leaf in leaves:
            leaf.requires_grad_()
        found = read_out.read_out(hidden.view(2, 5, 20, 20), leaves[1:3], leaves[3:])
        assert len(taken) == 1
        exact = expected_of(hidden, weight, bias, d_outputs)
        slopes = torch.autograd.grad(found, leaves, d_outputs.view(2, 5, 20, 3))
        for value, right in zip((found.flatten(1, 2), *slopes), (*exact[:2], *exact[2], *exact[3]), strict=True):
            torch.testing.assert_close(value.double(), right, rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize(("rows", "outputs"), [(100, 3), (96, 4), (96, 2)])
    def test_others_are_made_of_torchs(self, rows, outputs, taken, monkeypatch):
        monkeypatch.setattr(linear, "suits", lambda rows, width: False)
        hidden, weight, bias, d_outputs = problem(2, rows, 20, outputs, "cpu")
        found = read_out.read_out(hidden, weight.unbind(), bias.unbind())
        assert not taken
        torch.testing.assert_close(
            found.double(), expected_of(hidden, weight, bias, d_outputs)[0], rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("wrong", ["models", "units", "outputs", "dtype"])
    def test_what_is_wrong_torch_says(self, wrong, taken):
        hidden, weight, bias, _ = problem(2, 40, 32, 4, "cpu")
        weights, biases = list(weight), list(bias)
        if wrong == "models":
            weights, biases = weights[:1], biases[:1]
        elif wrong == "units":
            weights = [each[:, :28] for each in weights]
        elif wrong == "outputs":
            biases = [each[:3] for each in biases]
        else:
            weights = [each.double() for each in weights]
        with pytest.raises(RuntimeError):
            read_out.read_out(hidden, weights, biases)
        assert not taken

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_as_autocast_asks(self, dtype, monkeypatch):
        hidden, weight, bias, _ = problem(2, 40, 32, 4, "cpu")
        rows = hidden.to(dtype)
        assert read_out.kernels_take(rows, weight, bias) == (dtype == torch.float32)
        monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)
        monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
        assert read_out.kernels_take(rows, weight, bias) == (dtype == torch.bfloat16)


class TestReadOut:
    """With many rows on a GPU."""

    pytestmark = ON_A_GPU

    @pytest.fixture(autouse=True)
    def _clusters(self):
        if (reason := clusters.device.lacks(torch.device("cuda", 0))) is not None:
            pytest.skip(reason)

    @pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
    @pytest.mark.parametrize(("units", "outputs"), [(128, 10), (100, 1), (64, 16)])
    def test_no_worse_than_cublas(self, dtype, units, outputs):
        given = [value.to(dtype) for value in problem(8, 28_160, units, outputs, "cuda")]
        ours, theirs = read_outs(*given, dtype)
        for found, other, exact in zip(ours, theirs, expected_of(*given), strict=True):
            error, its = ((value.double() - exact).square().mean().sqrt() for value in (found, other))
            assert error <= 3 * its + 1e-7 * exact.abs().max()  # sums of single numbers, by chance better or worse

    @pytest.mark.parametrize("rows", [read_out.MANY, read_out.MANY - 1, read_out.MANY + 1])
    @pytest.mark.parametrize(("units", "outputs"), [(32, 4), (30, 3), (256, 2)])
    def test_is_that_of_each(self, rows, units, outputs):
        hidden, weight, bias, d_outputs = problem(2, rows, units, outputs, "cuda")
        leaves = [hidden, *weight.unbind(), *bias.unbind()]
        for leaf in leaves:
            leaf.requires_grad_()
        assert read_out.kernels_take(hidden, weight, bias) == (units == 32)
        found = read_out.read_out(hidden.view(2, 1, rows, units), leaves[1:3], leaves[3:])[:, 0]
        exact = expected_of(hidden, weight, bias, d_outputs)
        slopes = torch.autograd.grad(found, leaves, d_outputs)
        assert (found.double() - exact[0]).abs().max() < 1e-4
        right = [exact[1], *exact[2], *exact[3]]
        for slope, other in zip(slopes, right, strict=True):
            assert (slope.double() - other).abs().max() <= 1e-5 * other.abs().max()

    def test_what_there_are_kernels_for(self):
        def suits(units=32, outputs=4, first=0, dtype=torch.float32):
            hidden = torch.zeros(2 * 5 * units + first, device="cuda", dtype=dtype)[first:].view(2, 5, units)
            return linear.suits(hidden, outputs)

        assert suits()
        assert suits(linear.WIDEST, linear.OUTPUTS)
        assert not suits(units=34)
        assert not suits(units=linear.WIDEST + 4)
        assert not suits(outputs=linear.OUTPUTS + 1)
        assert not suits(first=1)
        assert not suits(dtype=torch.float64)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_as_autocast_asks(self, dtype):
        hidden, weight, bias, _ = problem(2, 5000, 32, 4, "cuda")
        with torch.autocast("cuda", dtype):
            assert not read_out.kernels_take(hidden, weight, bias)
            assert read_out.kernels_take(hidden.to(dtype), weight, bias)
            for given in (hidden, hidden.to(dtype)):
                found = read_out.read_out(given, weight.unbind(), bias.unbind())
                assert found.dtype == dtype
                expected = torch.baddbmm(bias.unsqueeze(1), given, weight.mT)
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)

    def test_as_part_of_a_graph(self):
        hidden, weight, bias, d_outputs = problem(2, 5000, 32, 4, "cuda")
        right = linear.slopes(hidden, weight, d_outputs)
        linear.outputs(hidden, weight, bias)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs, slopes = linear.outputs(hidden, weight, bias), linear.slopes(hidden, weight, d_outputs)
        graph.replay()
        assert torch.equal(outputs, linear.outputs(hidden, weight, bias))
        assert all(map(torch.equal, slopes, right))
