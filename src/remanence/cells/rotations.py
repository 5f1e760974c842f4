"""Orthogonal and unitary matrices as products of layers of 2x2 rotations (EUNN)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotations:
    """W = D F_L ... F_1, a product of layers F, each of which rotates disjoint pairs of n numbers.

        (p, q) -> (cos(a) p - sin(a) e^{i phi} q,  sin(a) p + cos(a) e^{i phi} q),    D = diag(e^{i omega})

    without phi and D for real matrices. Tunable form: L layers; the first, third, ... rotate the pairs (1, 2), (3, 4),
    ..., the others (2, 3), (4, 5), ...; L = n reaches every unitary matrix. FFT form: log2(n) layers of the pairs of a
    fast Fourier transform, at distances n/2, n/4, ..., 1.

    Jing et al., "Tunable efficient unitary neural networks (EUNN) and their application to RNNs" (2017), in the form of
    the authors' code; the paper has the phase with the other number of a pair.

    Args:
        capacity: Number of layers L of the tunable form.
        fft: Whether to use the FFT form; `capacity` is then ignored.
    """

    capacity: int = 2
    fft: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.capacity, bool) or not isinstance(self.capacity, int) or self.capacity < 1:
            raise ValueError(f"expected capacity to be a positive integer, got {self.capacity!r}")

    def expect(self, size: int, what: str) -> None:
        """Raise a ValueError if the matrix cannot have this size.

        Args:
            size: n.
            what: What n counts, for the error message.
        """
        if self.fft:
            if size < 2 or size & (size - 1):
                raise ValueError(f"expected the number of {what} to be a power of two with fft=True, got {size}")
        elif size % 2:
            raise ValueError(f"expected an even number of {what}, which are rotated in pairs, got {size}")
        elif self.capacity > size:
            raise ValueError(f"expected capacity to be at most the number of {what}, {size}, got {self.capacity}")

    def angles(self, size: int) -> int:
        """Number of angles, and also of phases, for n = size."""
        return sum(between for _, between in self._layers(size))

    def _layers(self, size: int) -> list[tuple[int, int]]:
        """Distance within a pair and number of pairs, for every layer."""
        if self.fft:
            return [(size >> k, size // 2) for k in range(1, size.bit_length())]
        return [(1, size // 2 - number % 2) for number in range(self.capacity)]

    def matrix(self, size: int, angles: Tensor, phases: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The real and the imaginary part of F_L ... F_1, `(n, n)`; without phases it is real.

        Args:
            size: n.
            angles: Angles of all layers, concatenated.
            phases: Phases phi of all layers, concatenated; None for a real matrix.
        """
        layers = self._layers(size)
        real = torch.eye(size, dtype=angles.dtype, device=angles.device)
        imaginary = None if phases is None else torch.zeros_like(real)
        counts = [pairs for _, pairs in layers]
        turns = torch.split(angles, counts)
        shifts = [None] * len(layers) if phases is None else torch.split(phases, counts)
        for (apart, pairs), turn, shift in zip(layers, turns, shifts, strict=True):
            edge = (size - 2 * pairs) // 2  # rows at the top and bottom that have no partner
            real, imaginary = _rotated(real, imaginary, turn, shift, apart, edge)
        return real, imaginary


def _rotated(
    real: Tensor, imaginary: Tensor | None, angles: Tensor, phases: Tensor | None, apart: int, edge: int
) -> tuple[Tensor, Tensor | None]:
    """Apply a layer to the rows of a matrix. Pairs are `apart` rows apart; `edge` rows at both ends have no partner."""
    size = len(real)

    def pairs(rows: Tensor) -> tuple[Tensor, ...]:
        return rows[edge : size - edge].view(-1, 2, apart, size).unbind(1)

    def joined(first: Tensor, second: Tensor, rows: Tensor) -> Tensor:
        inner = torch.stack((first, second), 1).flatten(0, 2)
        return torch.cat((rows[:edge], inner, rows[size - edge :])) if edge else inner

    cos, sin = (value.view(-1, apart, 1) for value in (torch.cos(angles), torch.sin(angles)))
    first, second = pairs(real)
    if imaginary is None or phases is None:
        return joined(cos * first - sin * second, sin * first + cos * second, real), None
    other, partner = pairs(imaginary)
    by_cos, by_sin = (value.view(-1, apart, 1) for value in (torch.cos(phases), torch.sin(phases)))
    second, partner = by_cos * second - by_sin * partner, by_sin * second + by_cos * partner
    return (
        joined(cos * first - sin * second, sin * first + cos * second, real),
        joined(cos * other - sin * partner, sin * other + cos * partner, imaginary),
    )


def turned(real: Tensor, imaginary: Tensor, phases: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of D W for D = diag(e^{i phases}); W is `(n, n)`, phases `(n,)`."""
    cos, sin = torch.cos(phases).unsqueeze(-1), torch.sin(phases).unsqueeze(-1)
    return cos * real - sin * imaginary, sin * real + cos * imaginary


def full_circle(angles: Tensor) -> None:
    """Draw angles from U(-pi, pi), in place."""
    angles.uniform_(-math.pi, math.pi)
