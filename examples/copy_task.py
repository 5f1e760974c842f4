"""The copy task: see a few symbols, wait, then repeat them in order.

Trains a power-law LSTM and an LSTM of about the same number of parameters, each on the same batches, and shows how many
updates they need. The task is that of "Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower
Information Decay", made small enough for a CPU: three symbols instead of ten, and a delay of ten steps instead of
hundreds.

    python examples/copy_task.py [--steps 3000] [--delay 10] [--seed 0]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import remanence as rm

UNITS = {"plstm": 48, "lstm": 41}
"""Models and their sizes, chosen so that both have about 9,000 parameters."""

TARGETS, DUMMY, SIGNAL, SYMBOLS = 8, 8, 9, 10
"""Symbols 0 to 7 are to be copied, 8 means nothing, 9 asks for the answer."""

COPIED = 3
BATCH = 32
SOLVED = 0.99


def copy_batch(sequences: int, delay: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One-hot inputs `(T, B, 10)` and the right answers `(T, B)`, with T = delay + 2 * COPIED.

    input:   a b c - - - ... - ? - -
    answer:  - - - - - - ... - a b c
    """
    copied = torch.randint(TARGETS, (COPIED, sequences), generator=generator)
    inputs = torch.full((delay + 2 * COPIED, sequences), DUMMY)
    answers = inputs.clone()
    inputs[:COPIED] = copied
    inputs[-COPIED] = SIGNAL
    answers[-COPIED:] = copied
    return one_hot(inputs, SYMBOLS).float(), answers


class Copier(nn.Module):
    """A recurrent layer and a linear map to the symbols."""

    def __init__(self, layer: rm.nn.Recurrent) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(layer.hidden_size, SYMBOLS)

    def forward(self, inputs: Tensor) -> Tensor:
        output, _ = self.layer(inputs)
        return self.head(output)

    @torch.no_grad()
    def accuracy(self, inputs: Tensor, answers: Tensor) -> float:
        """Share of the copied symbols that are right; 1/8 is chance."""
        right = self(inputs).argmax(-1) == answers
        return right[-COPIED:].float().mean().item()


@dataclass(frozen=True)
class Outcome:
    """How a training run ended."""

    name: str
    parameters: int
    updates: int
    accuracy: float
    seconds: float

    @property
    def solved(self) -> bool:
        """Whether it answers nearly everything right."""
        return self.accuracy >= SOLVED

    def __str__(self) -> str:
        if self.solved:
            return f"{self.name} answered {SOLVED:.0%} of the symbols after {self.updates} updates"
        return f"{self.name} had not solved it after {self.updates} updates ({self.accuracy:.0%} right)"


def train(name: str, steps: int, delay: int, seed: int, progress: Progress) -> Outcome:
    """Train a model until it has solved the task, for at most `steps` updates."""
    torch.manual_seed(seed)
    model = Copier(rm.make(name, SYMBOLS, UNITS[name]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batches = torch.Generator().manual_seed(seed)
    held_out = copy_batch(512, delay, torch.Generator().manual_seed(seed + 1))
    bar = progress.add_task(name, total=steps, loss=float("nan"), accuracy=0.0)
    started = time.perf_counter()

    for step in range(1, steps + 1):
        inputs, answers = copy_batch(BATCH, delay, batches)
        loss = cross_entropy(model(inputs).flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # a reset of the power-law gate has a steep gradient
        optimizer.step()
        if step % 50 == 0 or step == steps:
            accuracy = model.accuracy(*held_out)
            progress.update(bar, completed=step, loss=loss.item(), accuracy=accuracy)
            if accuracy >= SOLVED:
                break

    progress.update(bar, total=step)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Outcome(name, parameters, step, accuracy, time.perf_counter() - started)


def table_of(outcomes: list[Outcome]) -> Table:
    """The outcomes side by side."""
    table = Table("model", title="Copy task")
    for heading in ("parameters", "updates", "right on new sequences", "seconds"):
        table.add_column(heading, justify="right")
    for end in outcomes:
        table.add_row(end.name, f"{end.parameters:,}", f"{end.updates:,}", f"{end.accuracy:.1%}", f"{end.seconds:.0f}")
    return table


class Parser(argparse.ArgumentParser):
    """Answers a wrong argument with one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message}\n")


def whole(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
        return int(text)

    return read


def main() -> None:
    """Train both models and compare."""
    parser = Parser(description="Train a power-law LSTM and an LSTM on the copy task.")
    parser.add_argument("--steps", type=whole(1, 10**6), default=3000, help="updates at most, per model")
    parser.add_argument("--delay", type=whole(1, 10**4), default=10, help="steps between the symbols and the signal")
    parser.add_argument("--seed", type=whole(0, 2**31), default=0, help="of weights and sequences")
    asked = parser.parse_args()

    torch.set_num_threads(1)  # the tensors are small: more threads only wait for each other
    console = Console()
    console.print(f"Remember {COPIED} symbols over {asked.delay} steps, then repeat them. Chance is {1 / TARGETS:.1%}.")
    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  right {task.fields[accuracy]:6.1%}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        outcomes = [train(name, asked.steps, asked.delay, asked.seed, progress) for name in UNITS]
    console.print(table_of(outcomes))
    console.print(
        f"With seed {asked.seed}, {' and '.join(map(str, outcomes))}; one seed, one learning rate and one small task "
        "show what the gate can do, not which model is better."
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("\nStopped.") from None
