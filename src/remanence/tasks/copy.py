"""The copy task: remember a few symbols over a delay, then output them in order.

Hochreiter & Schmidhuber 1997; as a test of long memory Arjovsky et al. 2016. S different symbols (pLSTM paper: m = 8),
n symbols to remember (10), delay T. With `.` for the dummy and `!` for the signal:

    inputs   a b c . . . . . ! . .      n symbols, T dummies, the signal, n - 1 dummies
    targets  . . . . . . . . a b c      n + T dummies, then the symbols

The length is T + 2 n. Symbols are 0 to S - 1, the dummy is S, the signal is S + 1. Inputs are one-hot; the read-out has
the same number of logits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ..nn.expect import expect_size
from . import metrics
from .base import Batch, Readout, Score
from .expect import expect_one_of
from .sources import Parts, Synthetic

Form = Literal["arjovsky", "cues"]


class Copying(Synthetic):
    """Base class of the copy tasks with fixed and with variable delay: symbols, loss and scores."""

    readout: ClassVar[Readout] = "every"
    goal: ClassVar[str] = "accuracy"

    symbols: int
    length: int
    form: Form

    @property
    def input_size(self) -> int:
        return self.symbols + 2

    @property
    def output_size(self) -> int:
        return self.symbols + 2

    @property
    def dummy(self) -> int:
        """The blank symbol."""
        return self.symbols

    @property
    def signal(self) -> int:
        """The symbol that signals the start of recall."""
        return self.symbols + 1

    @property
    def signals(self) -> int:
        """Number of consecutive steps that show the signal."""
        return 1 if self.form == "arjovsky" else self.length

    @property
    @abstractmethod
    def mean_delay(self) -> float:
        """Mean delay over sequences."""

    @abstractmethod
    def recalled(self, values: Tensor, batch: Batch) -> Tensor:
        """The last n steps of every sequence: `(R, T, B, ...)` to `(R, n, B, ...)`."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        # Averaged over all positions including dummies, as in the author's code; the paper leaves it open.
        return metrics.mean(metrics.cross_entropy(outputs, batch.targets), batch.counts)

    def scores(self, outputs: Tensor, batch: Batch) -> dict[str, Score]:
        right = metrics.right(self.recalled(outputs, batch), self.recalled(batch.targets, batch))
        return {
            "loss": metrics.score(metrics.cross_entropy(outputs, batch.targets), batch.counts),
            "accuracy": metrics.score(right),
            "sequence_accuracy": metrics.score(right.all(1)),
        }

    @property
    def references(self) -> dict[str, float]:
        """Scores of a model without memory, which outputs the dummy until the signal and then guesses a symbol.

        (The pLSTM paper gives 1/9 as chance level; a model that has learned when to recall guesses among 8.)
        """
        return {
            "loss": self.length * math.log(self.symbols) / (self.mean_delay + 2 * self.length),
            "accuracy": 1 / self.symbols,
            "sequence_accuracy": self.symbols**-self.length,
        }

    def draw_symbols(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform and independent symbols, `(n, B)`; one byte each, because a set of 100,000 stays on the device."""
        shape = (self.length, count)
        return torch.randint(
            self.symbols, shape, generator=generator, device=generator.device, dtype=self._symbol_dtype
        )

    def one_hot(self, tokens: Tensor) -> Tensor:
        """`(..., T, B)` to `(..., T, B, S + 2)`. `functional.one_hot` synchronises with the host to check its input."""
        return functional.embedding(tokens, torch.eye(self.input_size, device=tokens.device))

    @property
    def _symbol_dtype(self) -> torch.dtype:
        return torch.uint8 if self.symbols <= 256 else torch.int32

    def expect_arguments(self) -> None:
        """Check the arguments that both copy tasks share."""
        expect_size("symbols", self.symbols)
        expect_size("length", self.length)
        expect_one_of("form", self.form, ("arjovsky", "cues"))
        self.expect_sizes()


@dataclass(frozen=True, kw_only=True)
class Copy(Copying):
    """The copy task with the same delay in every sequence.

    Sizes are from the pLSTM paper: fixed sets of 100,000 training and 10,000 validation sequences.
    """

    name: ClassVar[str] = "copy"

    delay: int = 200
    """Number of dummies T between the last symbol and the signal. (The author's code has T - 1, unlike the paper.)"""
    symbols: int = 8
    """Number of different symbols S."""
    length: int = 10
    """Number of symbols to remember n."""
    form: Form = "arjovsky"
    """"arjovsky" signals once (pLSTM paper), "cues" at each of the last n steps (Gu et al. 2020). The fast-gate paper
    says only "sequence length 500": we use "arjovsky" with a delay of 500. A delay of 480 with "cues" has 500 steps."""
    train_size: int | None = 100_000
    """Training sequences; None to generate new ones without end from the same distribution."""
    validation_size: int = 10_000
    """Validation sequences."""
    test_size: int = 0
    """0 for no test split, as in the papers; the analyses use 1000."""

    def __post_init__(self) -> None:
        expect_size("delay", self.delay)
        self.expect_arguments()

    @property
    def mean_delay(self) -> float:
        return self.delay

    def numbers(self, count: int, generator: torch.Generator) -> Parts:
        return (self.draw_symbols(count, generator),)

    def show(self, parts: Parts) -> Batch:
        (symbols,) = parts  # (..., n, B)
        *replicas, _, count = symbols.shape
        start = self.length + self.delay
        shape = (*replicas, start + self.length, count)
        tokens = torch.full(shape, self.dummy, device=symbols.device)
        targets = tokens.clone()
        tokens[..., : self.length, :] = symbols
        tokens[..., start : start + self.signals, :] = self.signal
        targets[..., start:, :] = symbols
        return Batch(self.one_hot(tokens), targets)

    def recalled(self, values: Tensor, batch: Batch) -> Tensor:
        return values[:, -self.length :]
