"""Drawing words from a language model, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..nn.expect import expect_size, is_number
from .modes import evaluating


class Sampling:
    """How a word is drawn from its scores.

    Args:
        temperature: logits are divided by it; 0 takes the likeliest word.
        top_k: draw from the k likeliest words only; None for all.
        generator: source of random numbers; None for torch's global one.
    """

    def __init__(
        self, temperature: float = 1.0, top_k: int | None = None, generator: torch.Generator | None = None
    ) -> None:
        if not is_number(temperature) or temperature < 0:
            raise ValueError(f"expected temperature to be a number of at least 0, got {temperature!r}")
        self.temperature = temperature
        self.top_k = None if top_k is None else expect_size("top_k", top_k)
        self.generator = generator

    def __call__(self, logits: Tensor) -> int:
        """A word's number, drawn from logits `(V,)`."""
        if self.temperature == 0:
            return int(logits.argmax())
        # Float64 where there is one: a cold temperature makes large numbers of small differences.
        scores = logits.to("cpu", torch.float64) / self.temperature
        words = None
        if self.top_k is not None and self.top_k < len(scores):
            scores, words = scores.topk(self.top_k)
        chances = scores.softmax(0)
        if self.generator is not None:
            chances = chances.to(self.generator.device)
        drawn = int(torch.multinomial(chances, 1, generator=self.generator))
        return drawn if words is None else int(words[drawn])


def continued(model: nn.Module, prompt: Tensor, length: int, sampling: Sampling) -> Iterator[int]:
    """Numbers of words that go on from a prompt `(N,)`; what was drawn is the next input, and the state is carried.

    The model takes whole numbers `(T, 1)` and a state, and returns logits `(T, 1, V)` and the state after them.
    """
    tokens, state = prompt, None
    for _ in range(length):
        with evaluating(model):  # for each word anew: between two of them the model is the caller's
            logits, state = model(tokens.unsqueeze(1), state)
            number = sampling(logits[-1, 0])
            tokens = tokens.new_tensor([number])
        yield number
