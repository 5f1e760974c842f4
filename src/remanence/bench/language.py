"""A training step of a word-level language model against the same model on torch's own LSTM.

The model is the published AWD-LSTM: three layers of 1150, 1150 and 400 units with weight drop on the recurrent
matrices. With engine "torch" its layers run what `torch.nn.LSTM` runs, cuDNN on a GPU. A step is the loss with its
penalties, backward, gradient clipping and SGD, on one batch that is already on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch

from ..models import language_model
from .measure import Call, one
from .timings import Say

STEPS = 70
UNITS, VECTOR = 1150, 400
"""Sizes of the layers and of the embedding; the last layer is as wide as the embedding."""
ROUNDS = 11
"""Measurements of every model, interleaved."""


@dataclass(frozen=True)
class TextShape:
    """The sizes of a corpus that matter to a model."""

    name: str
    words: int
    tokens: int
    """Length of the training text."""
    batch: int

    @property
    def updates(self) -> float:
        """Updates per epoch, in chunks of the usual length."""
        return self.tokens / self.batch / STEPS


CORPORA = (TextShape("ptb", 10_000, 929_589, 20), TextShape("wikitext-2", 33_278, 2_088_628, 80))
MODELS = (
    ("baseline", "torch"),
    ("baseline", "auto"),
    ("mts", "auto"),
    ("fast", "auto"),
    ("refine", "auto"),
)
"""Names of `remanence.models.KNOWN` and engines. The first one is the reference for the others."""


@dataclass(frozen=True)
class LanguageStep:
    """Timing of one model on one text."""

    corpus: str
    words: int
    batch: int
    model: str
    engine: str
    training_ms: float
    torch_ms: float
    """Time of the baseline on torch's own LSTM."""
    softmax_ms: float
    """Time of the softmax over all words and its backward pass, measured separately."""
    epoch_seconds: float
    """Time of an epoch at the usual chunk length, without evaluation."""

    @property
    def ratio(self) -> float:
        """torch's time over this: above 1, this is faster."""
        return self.torch_ms / self.training_ms


def language_steps(device: torch.device, say: Say) -> Iterator[LanguageStep]:
    """Measure every model on every text."""
    for corpus in CORPORA:
        calls: dict[tuple[str, str], Call] = {}
        for name, engine in MODELS:
            say(f"a language model: {corpus.name} {name}, engine {engine}")
            calls[name, engine] = training_step(corpus, name, engine, device)
            for _ in range(3):
                calls[name, engine]()
        softmax = softmax_step(corpus, device)
        softmax()
        times: dict[object, list[float]] = {key: [] for key in (*calls, "softmax")}
        for _ in range(ROUNDS):
            for key, call in (*calls.items(), ("softmax", softmax)):
                times[key].append(one(call, device))
        for name, engine in MODELS:
            yield LanguageStep(
                corpus=corpus.name,
                words=corpus.words,
                batch=corpus.batch,
                model=name,
                engine=engine,
                training_ms=median(times[name, engine]),
                torch_ms=median(times[MODELS[0]]),
                softmax_ms=median(times["softmax"]),
                epoch_seconds=median(times[name, engine]) / 1e3 * corpus.updates,
            )


def training_step(corpus: TextShape, name: str, engine: str, device: torch.device) -> Call:
    """An update of one model."""
    model = language_model(
        name, corpus.words, embedding_size=VECTOR, hidden_size=UNITS, engine=engine, device=device
    ).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.2e-6, fused=True)
    tokens = torch.randint(corpus.words, (STEPS + 1, corpus.batch), device=device)
    state = model.loss(tokens[:-1], tokens[1:]).state

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        model.loss(tokens[:-1], tokens[1:], state).total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimiser.step()

    return step


def softmax_step(corpus: TextShape, device: torch.device) -> Call:
    """Logits of all words and their cross-entropy, forward and backward."""
    hidden = torch.randn(STEPS * corpus.batch, VECTOR, device=device, requires_grad=True)
    weight = torch.randn(corpus.words, VECTOR, device=device, requires_grad=True)
    bias = torch.zeros(corpus.words, device=device, requires_grad=True)
    targets = torch.randint(corpus.words, (STEPS * corpus.batch,), device=device)

    def step() -> None:
        logits = torch.nn.functional.linear(hidden, weight, bias)
        torch.autograd.grad(torch.nn.functional.cross_entropy(logits, targets), (hidden, weight, bias))

    return step
