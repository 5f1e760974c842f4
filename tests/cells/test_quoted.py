"""ExpRNN, uRNN, EURNN, GORU and SRU against an independent NumPy implementation of their equations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

import remanence as rm
from remanence.cells import BuiltCell, Rotations
from remanence.nn.unitary import authors_permutation

INPUTS, BATCH, STEPS = 3, 2, 6
LAYERS: dict[str, tuple[type[Any], int, dict[str, Any]]] = {
    "exprnn": (rm.ExpRNN, 5, {}),
    "urnn": (rm.UnitaryRNN, 6, {}),
    "eurnn": (rm.EURNN, 12, {"capacity": 5}),
    "eurnn-fft": (rm.EURNN, 16, {"fft": True}),
    "goru": (rm.GORU, 6, {"capacity": 3}),
    "goru-fft": (rm.GORU, 8, {"fft": True}),
    "goru-fast": (rm.GORU, 4, {"gate": "fast"}),
    "sru": (rm.SRU, 4, {"statistics": 5, "summary": 2, "averages": (0.0, 0.5, 0.9)}),
}
BUILT = [name for name in LAYERS if name != "sru"]
COMPLEX = ("urnn", "eurnn", "eurnn-fft")
every_layer = pytest.mark.parametrize("name", LAYERS)


def drawn(name: str, **keywords: Any) -> Any:
    """A layer with weights nothing in which is special."""
    kind, units, own = LAYERS[name]
    layer = kind(INPUTS, units, **own, **{"dtype": torch.float64, **keywords})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for entry, parameter in layer.named_parameters():
            values = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)
            parameter.copy_((0.3 if "threshold" in entry else 0.8) * values)
    return layer


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights_of(layer: nn.Module) -> dict[str, Any]:
    return {name.removesuffix("_l0"): value.detach().numpy() for name, value in layer.named_parameters()}


# The matrices, by definition.


def exponential(weights: dict[str, Any]) -> Any:
    size = len(weights["weight_ih"])
    skew = np.zeros((size, size))
    entries = iter(weights["skew"])
    for row in range(size):
        for column in range(row + 1, size):
            skew[row, column] = next(entries)
            skew[column, row] = -skew[row, column]
    return scipy.linalg.expm(skew)


def unitary_evolution(weights: dict[str, Any]) -> Any:
    size = len(weights["threshold"])
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(size), np.arange(size)) / size) / math.sqrt(size)
    d1, d2, d3 = (np.diag(np.exp(1j * phases)) for phases in weights["phases"])

    def reflection(halves: Any) -> Any:
        v = halves[:size] + 1j * halves[size:]
        return np.eye(size) - 2 * np.outer(v, v.conj()) / np.vdot(v, v)

    r1, r2 = map(reflection, weights["reflections"])
    permutation = np.eye(size)[list(authors_permutation(size))]
    return d3 @ r2 @ np.linalg.inv(fourier) @ d2 @ permutation @ r1 @ fourier @ d1


def pairs_of(size: int, options: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """The pairs of every layer of rotations."""
    if options.get("fft"):
        strides = [size // 2**k for k in range(1, int(math.log2(size)) + 1)]
        return [[(i, i + stride) for i in range(size) if i // stride % 2 == 0] for stride in strides]
    return [[(i, i + 1) for i in range(layer % 2, size - 1, 2)] for layer in range(options.get("capacity", 2))]


def rotations(size: int, options: dict[str, Any], angles: Any, phases: Any = None) -> Any:
    matrix, place = np.eye(size, dtype=complex), 0
    for pairs in pairs_of(size, options):
        layer = np.eye(size, dtype=complex)
        for p, q in pairs:
            c, s = np.cos(angles[place]), np.sin(angles[place])
            turn = 1 if phases is None else np.exp(1j * phases[place])
            layer[p, p], layer[p, q], layer[q, p], layer[q, q] = c, -s * turn, s, c * turn
            place += 1
        matrix = layer @ matrix
    assert place == len(angles)
    return matrix


def matrix_of(name: str, weights: dict[str, Any]) -> Any:
    options = LAYERS[name][2]
    if name == "exprnn":
        return exponential(weights)
    if name == "urnn":
        return unitary_evolution(weights)
    if name.startswith("eurnn"):
        size = len(weights["diagonal"])
        turned = rotations(size, options, weights["angles"], weights["phases"])
        return np.diag(np.exp(1j * weights["diagonal"])) @ turned
    return rotations(weights["weight_hh"].shape[1], options, weights["angles"]).real


# The steps, one after the other.


def sigma(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def relu(z: Any) -> Any:
    return np.maximum(z, 0)


def modrelu(z: Any, bias: Any) -> Any:
    return z / np.abs(z) * relu(np.abs(z) + bias)


def steps(name: str, layer: nn.Module, x: Any, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    w, outputs = weights_of(layer), []
    if name == "sru":
        _, mu = state
        averages = np.repeat(LAYERS[name][2]["averages"], len(w["weight_ih"]))
        for now in x:
            r = relu(mu @ w["weight_summary"].T + w["bias_summary"])
            phi = relu(r @ w["weight_hh"].T + now @ w["weight_ih"].T + w["bias_ih"])
            mu = averages * mu + (1 - averages) * np.tile(phi, len(averages) // phi.shape[-1])
            outputs.append(relu(mu @ w["weight_output"].T + w["bias_output"]))
        return np.stack(outputs), (outputs[-1], mu)
    matrix, (h,) = matrix_of(name, w), state
    half = h.shape[-1] // 2
    for now in x:
        if name in COMPLEX:
            v = w["weight_ih"][:half] + 1j * w["weight_ih"][half:]
            z = modrelu((h[:, :half] + 1j * h[:, half:]) @ matrix.T + now @ v.T, w["threshold"])
            h = np.concatenate((z.real, z.imag), -1)
        elif name == "exprnn":
            h = modrelu(h @ matrix.T + now @ w["weight_ih"].T, w["threshold"])
        else:
            r_x, f_x, n_x = np.split(now @ w["weight_ih"].T, 3, -1)
            r_h, f_h = np.split(h @ w["weight_hh"].T + w["bias_ih"], 2, -1)
            r, f = sigma(r_x + r_h), sigma(np.sinh(f_x + f_h) if name == "goru-fast" else f_x + f_h)
            h = f * h + (1 - f) * modrelu(n_x + r * (h @ matrix.T), w["threshold"])
        outputs.append(h)
    return np.stack(outputs), (h,)


def as_state(parts: tuple[torch.Tensor, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


@every_layer
@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_layers_are_the_equations(name: str, engine: str) -> None:
    layer, x = drawn(name, engine=engine), numbers(STEPS, BATCH, INPUTS)
    widths = layer.cell.widths(layer.hidden_size, layer.hidden_size)
    state = tuple(numbers(1, BATCH, width, seed=2 + i) for i, width in enumerate(widths.values()))
    output, after = layer(x, as_state(state))
    expected, last = steps(name, layer, x.numpy(), tuple(part[0].numpy() for part in state))
    near = 1e-6 if name in COMPLEX else 1e-11  # of complex numbers: 1e-10 is added to a squared modulus
    np.testing.assert_allclose(output.detach(), expected, rtol=near, atol=near)
    for part, other in zip(after if isinstance(after, tuple) else (after,), last, strict=True):
        np.testing.assert_allclose(part[0].detach(), other, rtol=near, atol=near)


def test_urnn_begins_with_the_state_that_it_learns() -> None:
    layer, x = drawn("urnn"), numbers(STEPS, BATCH, INPUTS)
    start = layer.hidden_start_l0.expand(1, BATCH, -1)
    assert torch.equal(layer(x)[0], layer(x, start)[0])
    layer(x)[0].sum().backward()
    assert layer.hidden_start_l0.grad.abs().min() > 0
    single = layer.float().eval()
    with torch.no_grad():  # by the way that single steps take, which may add in another order
        torch.testing.assert_close(single(x[:1].float())[0], single(x[:1].float(), start.float())[0])


# What the matrices are for.


def dense(layer: Any) -> torch.Tensor:
    """The matrix that engines multiply with, as a real one."""
    with torch.no_grad():
        matrix = layer._weights(layer.places[0], layer.weight_ih_l0.dtype)["weight_hh"]
    return matrix[-layer.hidden_size :] if isinstance(layer, rm.GORU) else matrix[: layer.hidden_size]


def is_orthogonal(matrix: torch.Tensor, near: float) -> bool:
    return float((matrix.T @ matrix - torch.eye(len(matrix), dtype=matrix.dtype)).abs().max()) < near


@settings(max_examples=4, deadline=None)
@given(
    name=st.sampled_from(["exprnn", "urnn", "eurnn", "goru"]),
    size=st.sampled_from([4, 8, 20, 40]),
    capacity=st.integers(1, 9),
    seed=st.integers(0, 2**20),
)
def test_matrices_stay_orthogonal_or_unitary_in_training(name: str, size: int, capacity: int, seed: int) -> None:
    torch.manual_seed(seed)
    options = {"capacity": min(capacity, size // 2)} if name in ("eurnn", "goru") else {}
    layer = rm.make(name, 2, size, engine="cpu", **options)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    before, x = dense(layer), torch.randn(5, 3, 2)
    for _ in range(10):
        optimiser.zero_grad()
        layer(x)[0].square().sum().sub(7).square().backward()
        optimiser.step()
    after = dense(layer)
    assert not torch.allclose(before, after, atol=1e-2)
    assert is_orthogonal(after, 1e-5)


def test_a_large_exponential_is_orthogonal_in_float32() -> None:
    layer = rm.ExpRNN(1, 200, start_angles="henaff")
    with torch.no_grad():
        layer.skew_l0.add_(0.1 * torch.randn(layer.skew_l0.shape, generator=torch.Generator().manual_seed(0)))
    assert is_orthogonal(dense(layer), 1e-5)


@pytest.mark.parametrize("name", ["exprnn", "urnn", "eurnn"])
def test_without_inputs_and_bias_nothing_is_forgotten(name: str) -> None:
    layer = drawn(name)
    with torch.no_grad():
        layer.threshold_l0.zero_()
    first = numbers(1, BATCH, layer.hidden_size)
    output, _ = layer(torch.zeros(200, BATCH, INPUTS, dtype=torch.float64), first)
    assert not torch.allclose(output[-1], first[0], atol=0.1)
    norms = output.norm(dim=-1)
    assert torch.allclose(norms, first[0].norm(dim=-1).expand_as(norms), rtol=1e-8)


def test_rotations_of_full_capacity_are_any_orthogonal_matrix() -> None:
    """As many layers as numbers: the parameters are as many as the group has dimensions, and reach all directions."""
    size, rotations = 6, Rotations(capacity=6)
    assert rotations.angles(size) == size * (size - 1) // 2
    angles = numbers(rotations.angles(size))
    jacobian = torch.func.jacrev(lambda given: rotations.matrix(size, given)[0].flatten())(angles)
    assert int(torch.linalg.matrix_rank(jacobian)) == rotations.angles(size)


@every_layer
def test_derivatives_by_every_weight(name: str) -> None:
    layer, x = drawn(name, engine="loop"), numbers(2, 1, INPUTS)
    names, values = zip(*layer.named_parameters(), strict=True)

    def outputs(x: torch.Tensor, *given: torch.Tensor) -> Any:
        output, state = functional_call(layer, dict(zip(names, given, strict=True)), (x,))
        return output, *(state if isinstance(state, tuple) else (state,))

    leaves = [value.detach().clone().requires_grad_() for value in (x, *values)]
    assert torch.autograd.gradcheck(outputs, leaves, eps=1e-6, atol=1e-5, fast_mode=name not in ("exprnn", "urnn"))


# Sizes and starting values.

COUNTS = {
    # Table 2 of the expRNN paper: 16K, 69K and 137K.
    "exprnn-170": (lambda: rm.ExpRNN(1, 170), 16415),
    "exprnn-360": (lambda: rm.ExpRNN(1, 360), 68950),
    "exprnn-512": (lambda: rm.ExpRNN(1, 512), 136970),
    # The uRNN paper: 16K parameters for 512 complex numbers, 7 n of them in the matrix.
    "urnn-512": (lambda: rm.UnitaryRNN(1, 1024), 16394),
    # The configuration of the NRU paper's SRU, about 165K as the models beside it.
    "sru-150": (lambda: rm.SRU(1, 150, statistics=155, summary=50, averages=(0, 0.5, 0.9, 0.99, 0.999)), 164770),
    # The variables that the authors' code makes: angles, phases and omega, U_re, U_im and a bias.
    "eurnn-256": (lambda: rm.EURNN(1, 512, capacity=4), 2 * (2 * 128 + 2 * 127) + 256 + 2 * 256 + 256 + 5130),
    # U, W_r, W_g, three biases and log2(n) layers of n / 2 angles.
    "goru-512": (lambda: rm.GORU(1, 512, fft=True), 3 * 512 + 2 * 512**2 + 3 * 512 + 9 * 256 + 5130),
}


@pytest.mark.parametrize(("maker", "expected"), COUNTS.values(), ids=COUNTS)
def test_numbers_of_parameters_with_a_head_for_ten_digits(maker: Any, expected: int) -> None:
    layer = maker()
    head = nn.Linear(layer.hidden_size, 10)
    assert sum(p.numel() for module in (layer, head) for p in module.parameters()) == expected


def test_exprnn_starts_with_rotations_of_neighbours() -> None:
    for start, low, high in (("henaff", -math.pi, math.pi), ("cayley", -1, 0)):
        matrix = dense(rm.ExpRNN(1, 101, start_angles=start))
        blocks = [matrix[i : i + 2, i : i + 2] for i in range(0, 100, 2)]
        assert torch.allclose(torch.block_diag(*blocks, torch.ones(1, 1)), matrix, atol=1e-6)
        angles = torch.stack([torch.atan2(block[0, 1], block[0, 0]) for block in blocks])
        assert low <= float(angles.min()) < 0.7 * low
        assert 0.7 * high - 0.3 < float(angles.max()) <= high


def test_exprnn_has_the_matrix_of_torchs_parametrization() -> None:
    layer = drawn("exprnn")
    matrix = torch.from_numpy(exponential(weights_of(layer)))
    theirs = nn.Linear(5, 5, bias=False, dtype=torch.float64)
    nn.utils.parametrizations.orthogonal(theirs, orthogonal_map="matrix_exp", use_trivialization=False)
    with torch.no_grad():
        skew = torch.zeros(5, 5, dtype=torch.float64)
        skew[tuple(torch.triu_indices(5, 5, 1))] = layer.skew_l0
        theirs.parametrizations.weight.original.copy_((skew - skew.T).tril())
    torch.testing.assert_close(theirs.weight.detach(), dense(layer))
    torch.testing.assert_close(dense(layer), matrix)


def test_structure_is_built_in_float32_where_weights_are_halves() -> None:
    for name in BUILT:
        layer = drawn(name, dtype=torch.bfloat16)
        output, _ = layer(numbers(4, 2, INPUTS).bfloat16())
        assert output.dtype == torch.bfloat16
        assert is_orthogonal(dense(drawn(name, dtype=torch.bfloat16)).double(), 0.05)
        assert isinstance(layer.cell, BuiltCell)


# Bad input.

WRONG: dict[str, tuple[Any, str]] = {
    "an odd uRNN": (lambda: rm.UnitaryRNN(3, 5), "expected an even hidden_size .* got 5"),
    "an odd EURNN": (lambda: rm.EURNN(3, 5), "expected an even hidden_size .* got 5"),
    "an odd number of complex numbers": (lambda: rm.EURNN(3, 6), "expected an even number of complex .* got 3"),
    "an odd GORU": (lambda: rm.GORU(3, 7), "expected an even number of units, .* got 7"),
    "too much capacity": (lambda: rm.GORU(3, 4, capacity=5), "expected capacity to be at most .* 4, got 5"),
    "too much complex capacity": (lambda: rm.EURNN(3, 8, capacity=5), "expected capacity to be at most .* 4, got 5"),
    "no capacity": (lambda: rm.GORU(3, 4, capacity=0), "expected capacity to be a positive integer, got 0"),
    "no power of two": (
        lambda: rm.GORU(3, 12, fft=True),
        "expected the number of units to be a power of two .* got 12",
    ),
    "no power of two of pairs": (
        lambda: rm.EURNN(3, 12, fft=True),
        "expected the number of complex .* to be a power of two .* got 6",
    ),
    "an unknown start": (lambda: rm.ExpRNN(3, 4, start_angles="haar"), "expected start_angles to be one of cayley, .*"),
    "no bias": (lambda: rm.ExpRNN(3, 4, bias=False), "expected bias=True, .* got False"),
    "an average of one": (lambda: rm.SRU(3, 4, averages=[0.5, 1.0]), "expected averages to be numbers from 0 .*"),
    "no averages": (lambda: rm.SRU(3, 4, averages=[]), "expected averages to be numbers .*"),
    "no statistics": (lambda: rm.SRU(3, 4, statistics=0), "expected statistics to be .* got 0"),
    "no summary": (lambda: rm.SRU(3, 4, summary=0), "expected summary to be .* got 0"),
    "no units": (lambda: rm.UnitaryRNN(3, 0), "expected hidden_size to be .* got 0"),
}


@pytest.mark.parametrize(("maker", "sentence"), WRONG.values(), ids=WRONG)
def test_bad_arguments_are_answered_in_one_sentence(maker: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        maker()


@pytest.mark.parametrize("name", ["exprnn", "urnn", "eurnn", "sru"])
def test_those_without_a_forget_gate_say_so(name: str) -> None:
    layer = drawn(name)
    assert not hasattr(layer, "gate")
    for ask in (rm.timescales.of, lambda layer: rm.timescales.estimate(layer, [numbers(2, 1, INPUTS)])):
        with pytest.raises(ValueError, match="expected a layer with a forget gate, got"):
            ask(layer)
    with pytest.raises(ValueError, match="expected no dt, got one"):
        layer(numbers(2, 1, INPUTS), dt=torch.ones(2, 1))


def test_goru_has_timescales() -> None:
    layer = rm.GORU(3, 8, timescales=rm.timescales.Fixed([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0], freeze=True))
    assert torch.allclose(rm.timescales.of(layer)[0][3], torch.tensor(7.0, dtype=torch.float64))
    assert float(rm.GORU(3, 8, timescales=rm.timescales.Chrono(20)).bias_ih_l0[:8].detach().abs().max()) == 0


RECORDED = {
    "exprnn": {"hidden": 5, "modulus": 5},
    "urnn": {"hidden": 6, "modulus": 6},
    "eurnn": {"hidden": 12, "modulus": 12},
    "goru": dict.fromkeys(["hidden", "cell", "forget", "input", "output", "candidate", "candidate_reset"], 6),
    "sru": {"hidden": 4, "averages": 15, "statistics": 5, "summary": 2},
}


@pytest.mark.parametrize("name", RECORDED)
def test_record(name: str) -> None:
    layer, x = drawn(name), numbers(STEPS, BATCH, INPUTS)
    found = rm.record(layer, x)
    assert {entry: tuple(value.shape) for entry, value in found.items()} == {
        entry: (STEPS, BATCH, width) for entry, width in RECORDED[name].items()
    }
    assert torch.allclose(found["hidden"], layer(x)[0])


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_matrix_that_is_built_once_gives_the_same(name, bidirectional):
    kind, units, own = LAYERS[name]
    torch.manual_seed(2)
    layer = kind(3, units, 2, bidirectional=bidirectional, batch_first=True, **own).double()
    once = rm.nn.built_once(layer)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    expected, state = layer(x)
    torch.testing.assert_close(once(x), (expected, state), rtol=0, atol=1e-12)
    torch.testing.assert_close(once(x, state), layer(x, state), rtol=0, atol=1e-12)
    assert rm.nn.built_once(once) is once
    assert "weight_hh_l0" in once.state_dict()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@every_layer
@pytest.mark.parametrize("count", [1, 3])
def test_training_is_captured_as_a_graph(name: str, count: int) -> None:
    """One layer, and several side by side."""
    layers = [drawn(name, dtype=torch.float32, device="cuda") for _ in range(count)]
    x = torch.randn(STEPS, BATCH, INPUTS, device="cuda")

    def update() -> list[torch.Tensor]:
        outputs = rm.together(layers, x) if count > 1 else [layers[0](x)]
        loss = sum(output.square().sum() for output, _ in outputs)
        return list(torch.autograd.grad(loss, [weight for layer in layers for weight in layer.parameters()]))

    expected = update()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = update()
    for slope in found:
        slope.zero_()
    graph.replay()
    torch.testing.assert_close(found, expected)
