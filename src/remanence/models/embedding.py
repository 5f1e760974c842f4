"""Words as vectors, with whole words dropped."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, one_hot

from ..nn.expect import expect_probability, expect_size


class Embedding(nn.Module):
    """A vector per word, learned or one-hot; in training, every occurrence of some words is replaced by zeros.

    Word dropout draws once per call for every word of the vocabulary: a dropped word is dropped wherever it occurs
    in the batch, the others are scaled by 1/(1 - p). (Gal & Ghahramani 2016; Merity et al. 2018.)

    Args:
        words: size of the vocabulary V.
        width: length of a vector; None for one-hot vectors of length V, which have no weight.
        p: probability that a word is dropped.
    """

    weight: nn.Parameter | None

    def __init__(
        self,
        words: int,
        width: int | None,
        p: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.words = expect_size("words", words)
        self.width = words if width is None else expect_size("width", width)
        self.p = expect_probability("p", p)
        self.register_parameter("weight", None)
        if width is not None:
            self.weight = nn.Parameter(torch.empty(words, width, device=device, dtype=dtype))
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw the vectors anew: U(-bound, bound), or N(0, 1) as torch does."""
        if self.weight is not None:
            self.weight.normal_() if bound is None else self.weight.uniform_(-bound, bound)

    def forward(self, tokens: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Vectors of words.

        Args:
            tokens: whole numbers of any shape.
            dtype: of the result; None for that of the weight, or torch's default where there is none.

        Returns:
            A tensor of that shape with the width added.
        """
        if self.weight is None:
            vectors = one_hot(tokens.long(), self.words).to(dtype or torch.get_default_dtype())
        else:
            vectors = embedding(tokens, self.weight)
        if self.training and self.p > 0:
            # One number per word, looked up: scaling the whole matrix instead would cost V x width twice a step.
            vectors = vectors * embedding(tokens, dropout(vectors.new_ones(self.words, 1), self.p))
        return vectors

    def extra_repr(self) -> str:
        one_hot_vectors = ", one-hot" if self.weight is None else f", {self.width}"
        return f"{self.words}{one_hot_vectors}" + (f", p={self.p}" if self.p else "")
