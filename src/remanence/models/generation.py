"""Sampling words from a language model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..nn.expect import expect_size, is_number
from .modes import evaluating


class Sampling:
    """Samples a word from logits.

    Args:
        temperature: Divides the logits; 0 takes the most likely word.
        top_k: Sample from the k most likely words only; None for all.
        generator: Random number generator; None for torch's global one.
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
        """Sample a token id from logits `(V,)`."""
        if self.temperature == 0:
            return int(logits.argmax())
        # In float64 on the CPU: a low temperature magnifies small differences.
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
    """Sample token ids that continue a prompt `(N,)`. Each sample is the next input, and the state is carried.

    The model takes token ids `(T, 1)` and a state, and returns logits `(T, 1, V)` and the new state.
    """
    tokens, state = prompt, None
    for _ in range(length):
        with evaluating(model):  # per word: the caller may use the model in between
            logits, state = model(tokens.unsqueeze(1), state)
            number = sampling(logits[-1, 0])
            tokens = tokens.new_tensor([number])
        yield number
