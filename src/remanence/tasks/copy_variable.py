"""The copy task with a delay that varies between sequences, so that counting steps does not help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..nn.expect import expect_size
from .base import Batch
from .copy import Copying, Form
from .sources import Parts


@dataclass(frozen=True, kw_only=True)
class CopyVariable(Copying):
    """The copy task with a delay T uniform on the integers from `shortest` to `longest` inclusive (pLSTM paper, A.3).

    Batching is our choice: every sequence is padded with dummies to the longest possible length, and padding does not
    count in loss or scores. The result equals padding to the longest sequence of a batch, and shapes never change.
    """

    name: ClassVar[str] = "copy-variable"

    shortest: int = 200
    """The smallest delay (T1 of the paper)."""
    longest: int = 500
    """The largest delay (T2 of the paper: 500 or 1000)."""
    symbols: int = 8
    """Number of different symbols S."""
    length: int = 10
    """Number of symbols to remember n."""
    form: Form = "arjovsky"
    """As in `Copy`."""
    train_size: int | None = 100_000
    """Training sequences; None to generate new ones without end."""
    validation_size: int = 10_000
    """Validation sequences."""
    test_size: int = 0
    """0 for no test split."""

    def __post_init__(self) -> None:
        expect_size("shortest", self.shortest)
        expect_size("longest", self.longest)
        if self.longest < self.shortest:
            raise ValueError(f"expected longest to be at least shortest ({self.shortest}), got {self.longest}")
        self.expect_arguments()

    @property
    def mean_delay(self) -> float:
        return (self.shortest + self.longest) / 2

    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        symbols = self.draw_symbols(count, generator)
        delays = torch.randint(
            self.shortest,
            self.longest + 1,
            (count,),
            generator=generator,
            device=generator.device,
            dtype=torch.int32,
        )
        return symbols, delays

    def show(self, parts: Parts) -> Batch:
        symbols, delays = parts[0].long(), parts[1].long()  # (..., n, B), (..., B)
        steps = self.longest + 2 * self.length
        since_signal = torch.arange(steps, device=delays.device).unsqueeze(1) - (self.length + delays).unsqueeze(-2)
        signalled = (since_signal >= 0) & (since_signal < self.signals)
        tokens = torch.where(signalled, self.signal, self.dummy)
        tokens[..., : self.length, :] = symbols
        recalling = (since_signal >= 0) & (since_signal < self.length)
        said = symbols.gather(-2, since_signal.clamp(0, self.length - 1))
        return Batch(
            self.one_hot(tokens),
            torch.where(recalling, said, self.dummy),
            lengths=delays + 2 * self.length,
            counts=since_signal < self.length,
        )

    def recalled(self, values: Tensor, batch: Batch) -> Tensor:
        assert batch.lengths is not None
        replicas, sequences = batch.lengths.shape
        device = values.device
        last = torch.arange(-self.length, 0, device=device).view(1, -1, 1)
        return values[
            torch.arange(replicas, device=device).view(-1, 1, 1),
            batch.lengths.unsqueeze(1) + last,
            torch.arange(sequences, device=device),
        ]
