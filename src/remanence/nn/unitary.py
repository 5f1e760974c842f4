"""Layers whose recurrent matrix stays orthogonal or unitary: ExpRNN, UnitaryRNN and EURNN."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Unpack

from ..cells import EURNNCell, ExpRNNCell, Rotations, UnitaryRNNCell
from ..cells.base import BuiltCell
from ..cells.exprnn import Start
from .expect import expect_size
from .keywords import Keywords, completed
from .ungated import Ungated


class Unitary(Ungated):
    """What the three have in common: the bias of modReLU, which they cannot be without."""

    cell: BuiltCell

    def __init__(
        self,
        cell: BuiltCell,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        *others: Any,
        **shared: Any,
    ) -> None:
        cell.expect(expect_size("hidden_size", hidden_size))
        if not bias:
            raise ValueError(f"expected bias=True, without which {type(self).__name__} would be linear, got {bias}")
        super().__init__(cell, input_size, hidden_size, num_layers, bias, *others, **shared)


class ExpRNN(Unitary):
    """An RNN with an orthogonal matrix, the exponential of a skew-symmetric one, see `remanence.cells.ExpRNNCell`.

    Args:
        start_angles: "cayley" or "henaff": what rotations the matrix starts with.

    All other arguments are those of `torch.nn.GRU`; the bias is that of modReLU. The state is `h_n`. It has no gate, no
    timescale and no use for dt. `skew_l{k}`, of which the matrix is made, wants a smaller learning rate than the rest.
    `weight_drop` drops entries of the matrix, which is then not orthogonal in training.
    """

    cell: ExpRNNCell

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        start_angles: Start = "cayley",
        **shared: Unpack[Keywords],
    ) -> None:
        cell = ExpRNNCell(start_angles)
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        shown = "" if self.cell.start_angles == "cayley" else f", start_angles={self.cell.start_angles!r}"
        return super().extra_repr() + shown


class UnitaryRNN(Unitary):
    """The unitary evolution RNN, see `remanence.cells.UnitaryRNNCell`, of complex numbers.

    hidden_size is even: a complex number takes two units, its real part in the first half of the hidden state and its
    imaginary part in the second. All other arguments are those of `torch.nn.GRU`; the bias is that of modReLU. The
    state is `h_n`; without one it begins with `hidden_start_l{k}`, which is learned. It has no gate, no timescale and
    no use for dt. `weight_drop` drops entries of the matrix, which is then not unitary in training.
    """

    cell: UnitaryRNNCell

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **shared: Unpack[Keywords],
    ) -> None:
        cell = UnitaryRNNCell(authors_permutation(expect_size("hidden_size", hidden_size) // 2))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)


class EURNN(Unitary):
    """An RNN with a unitary matrix of rotations, see `remanence.cells.EURNNCell`, of complex numbers.

    Args:
        capacity: how many layers of rotations the matrix is a product of; with as many as complex numbers it can be any
            unitary matrix.
        fft: whether they are arranged as in a fast Fourier transform, log2 of the complex numbers in number; capacity
            is not used then.

    hidden_size is twice an even number, twice a power of two with fft: a complex number takes two units, its real part
    in the first half of the hidden state and its imaginary part in the second. All other arguments are those of
    `torch.nn.GRU`; the bias is that of modReLU. The state is `h_n`. It has no gate, no timescale and no use for dt.
    `weight_drop` drops entries of the matrix, which is then not unitary in training.
    """

    cell: EURNNCell

    @completed
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        capacity: int = 2,
        fft: bool = False,
        **shared: Unpack[Keywords],
    ) -> None:
        cell = EURNNCell(Rotations(capacity, bool(fft)))
        super().__init__(cell, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)

    def extra_repr(self) -> str:
        return super().extra_repr() + shown_rotations(self.cell.rotations)


def shown_rotations(rotations: Rotations) -> str:
    """What a layer's repr says of its rotations."""
    if rotations.fft:
        return ", fft=True"
    return "" if rotations.capacity == 2 else f", capacity={rotations.capacity}"


@lru_cache
def authors_permutation(numbers: int) -> tuple[int, ...]:
    """The one that the authors' code draws."""
    import numpy

    return tuple(numpy.random.RandomState(1234).permutation(numbers).tolist())
