"""Conversion between text and token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@runtime_checkable
class Words(Protocol):
    """The interface of a vocabulary; `remanence.language.Vocabulary` has it."""

    def __len__(self) -> int: ...

    def encode(self, words: Any, /) -> Any:
        """Token ids of words, as an array."""

    def decode(self, tokens: Any, /) -> Any:
        """Words of token ids, as a list."""


Text = str | Sequence[str] | Sequence[int] | Tensor | Any
"""A text, its words, or their token ids as a list, array or tensor."""


def tokens_of(text: Text, size: int, vocabulary: Words | None) -> Tensor:
    """The token ids of a text, int64 `(N,)` on the CPU.

    Args:
        text: See `Text`. A string is split by the vocabulary, or at white space.
        size: Size of the vocabulary.
        vocabulary: The vocabulary; None if only token ids are allowed.
    """
    if isinstance(text, str) or (isinstance(text, Sequence) and len(text) > 0 and isinstance(text[0], str)):
        if vocabulary is None:
            raise ValueError("expected token ids, got text, and the model has no vocabulary to encode it")
        text = vocabulary.encode(split(text, vocabulary) if isinstance(text, str) else text)
    # An array is copied, because torch does not take read-only arrays such as a memory-mapped corpus.
    tokens = text if isinstance(text, Tensor) else torch.from_numpy(_numbers(text))
    if tokens.numel() == 0:
        return torch.zeros(0, dtype=torch.int64, device="cpu")
    if tokens.dim() != 1 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(f"expected integers of shape (N,), got {tokens.dtype} of shape {tuple(tokens.shape)}")
    tokens = tokens.to("cpu", torch.int64)
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < 0 or highest >= size:
        raise ValueError(
            f"expected token ids from 0 to {size - 1}, got {lowest if lowest < 0 else highest}; "
            "was the text encoded with another vocabulary?"
        )
    return tokens


def words_of(tokens: Sequence[int], vocabulary: Words) -> list[str]:
    """The words of token ids."""
    return [str(word) for word in vocabulary.decode(list(tokens))]


def split(text: str, vocabulary: Words) -> list[str]:
    """The words of a text, or its characters if it is a character vocabulary."""
    own = getattr(vocabulary, "split", None)
    return list(own(text)) if callable(own) else text.split()


def _numbers(given: Any) -> NDArray[Any]:
    try:
        numbers = np.array(given)
    except (TypeError, ValueError):
        numbers = np.array(None)
    if numbers.dtype.kind not in "iufb":
        raise TypeError(f"expected a text or its token ids, got {type(given).__name__}")
    return numbers
