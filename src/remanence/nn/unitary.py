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
    """Base of the three layers: checks hidden_size, and that there is a bias, which modReLU needs."""

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
    """An RNN with an orthogonal recurrent matrix, the matrix exponential of a skew-symmetric one.

    See `remanence.cells.ExpRNNCell` for the equations.

    Args:
        start_angles: Initialisation of the rotations: "cayley" or "henaff".

    All other arguments are those of `torch.nn.GRU`; the bias is that of modReLU and cannot be turned off. The state is
    `h_n`. The layer has no forget gate and no timescale, and does not take dt. Train `skew_l{k}`, the parameter of the
    matrix, with a smaller learning rate than the rest. `weight_drop` drops entries of the matrix, which is then not
    orthogonal in training.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.ExpRNN(8, 32)
        >>> slow = [weight for name, weight in layer.named_parameters() if name.startswith("skew")]
        >>> fast = [weight for name, weight in layer.named_parameters() if not name.startswith("skew")]
        >>> optimizer = torch.optim.Adam([{"params": fast, "lr": 1e-3}, {"params": slow, "lr": 1e-4}])
        >>> output, h_n = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
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
    """The unitary evolution RNN with a complex hidden state, see `remanence.cells.UnitaryRNNCell`.

    `hidden_size` must be even: a complex number takes two units, its real part in the first half of the hidden state
    and its imaginary part in the second. All other arguments are those of `torch.nn.GRU`; the bias is that of modReLU
    and cannot be turned off. The state is `h_n`; the default initial state is `hidden_start_l{k}`, which is learned.
    The layer has no forget gate and no timescale, and does not take dt. `weight_drop` drops entries of the matrix,
    which is then not unitary in training.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.UnitaryRNN(8, 32)  # 16 complex units
        >>> output, h_n = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
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
    """An RNN with a complex hidden state and a unitary matrix of rotations, see `remanence.cells.EURNNCell`.

    Args:
        capacity: Number of layers of rotations whose product is the matrix; with `hidden_size / 2` layers it can be
            any unitary matrix.
        fft: Whether to arrange the rotations as in a fast Fourier transform, in log2(hidden_size / 2) layers;
            `capacity` is then ignored.

    `hidden_size` must be twice an even number, or twice a power of two with `fft`: a complex number takes two units,
    its real part in the first half of the hidden state and its imaginary part in the second. All other arguments are
    those of `torch.nn.GRU`; the bias is that of modReLU and cannot be turned off. The state is `h_n`. The layer has no
    forget gate and no timescale, and does not take dt. `weight_drop` drops entries of the matrix, which is then not
    unitary in training.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.EURNN(8, 32, capacity=4)
        >>> output, h_n = layer(torch.randn(100, 4, 8))
        >>> output.shape
        torch.Size([100, 4, 32])
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
    """The part of a layer's repr that describes its rotations."""
    if rotations.fft:
        return ", fft=True"
    return "" if rotations.capacity == 2 else f", capacity={rotations.capacity}"


@lru_cache
def authors_permutation(numbers: int) -> tuple[int, ...]:
    """The permutation that the authors' code draws."""
    import numpy

    return tuple(numpy.random.RandomState(1234).permutation(numbers).tolist())
