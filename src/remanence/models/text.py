"""Between what a person writes and the numbers of a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@runtime_checkable
class Words(Protocol):
    """What a model asks of a vocabulary; `remanence.language.Vocabulary` has it."""

    def __len__(self) -> int: ...

    def encode(self, words: Any, /) -> Any:
        """Numbers of words, in an array."""

    def decode(self, tokens: Any, /) -> Any:
        """Words of numbers, in a list."""


Text = str | Sequence[str] | Sequence[int] | Tensor | Any
"""A text, its words, or their numbers in a list, an array or a tensor."""


def tokens_of(text: Text, size: int, vocabulary: Words | None) -> Tensor:
    """The numbers of a text's words, int64 `(N,)` on the CPU.

    Args:
        text: see `Text`. A string is split as the vocabulary does it, or at blanks.
        size: of the vocabulary.
        vocabulary: None where numbers are all there is.
    """
    if isinstance(text, str) or (isinstance(text, Sequence) and len(text) > 0 and isinstance(text[0], str)):
        if vocabulary is None:
            raise ValueError("expected numbers of words, got text, and the model has no vocabulary to number it with")
        text = vocabulary.encode(split(text, vocabulary) if isinstance(text, str) else text)
    # An array is copied: torch does not take one that cannot be written to, as a memory-mapped corpus.
    tokens = text if isinstance(text, Tensor) else torch.from_numpy(_numbers(text))
    if tokens.numel() == 0:
        return torch.zeros(0, dtype=torch.int64, device="cpu")
    if tokens.dim() != 1 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"expected whole numbers of shape (N,), got {tokens.dtype} of shape {tuple(tokens.shape)}")
    tokens = tokens.to("cpu", torch.int64)
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < 0 or highest >= size:
        raise ValueError(
            f"expected words numbered 0 to {size - 1}, got {lowest if lowest < 0 else highest}; "
            "was the text numbered by another vocabulary?"
        )
    return tokens


def words_of(tokens: Sequence[int], vocabulary: Words) -> list[str]:
    """The words of some numbers."""
    return [str(word) for word in vocabulary.decode(list(tokens))]


def split(text: str, vocabulary: Words) -> list[str]:
    """The words of a text, or its characters where the vocabulary is one of characters."""
    own = getattr(vocabulary, "split", None)
    return list(own(text)) if callable(own) else text.split()


def _numbers(given: Any) -> NDArray[Any]:
    try:
        numbers = np.array(given)
    except (TypeError, ValueError):
        numbers = np.array(None)
    if numbers.dtype.kind not in "iufb":
        raise TypeError(f"expected a text or the numbers of its words, got {type(given).__name__}")
    return numbers
