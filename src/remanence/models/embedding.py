"""Word embeddings with word dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, one_hot

from ..nn.expect import expect_probability, expect_size


class Embedding(nn.Module):
    """Learned or one-hot word embedding with word dropout.

    Word dropout draws once per forward call for every word of the vocabulary: a dropped word is zero wherever it occurs
    in the batch, and the others are scaled by 1/(1 - p). (Gal & Ghahramani 2016; Merity et al. 2018.)

    Args:
        words: Size of the vocabulary V.
        width: Length of a vector; None for one-hot vectors of length V, which have no weight.
        p: Probability that a word is dropped.
        device: Device of the weight.
        dtype: Floating-point type of the weight.
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
        """Reinitialise the vectors from U(-bound, bound), or from N(0, 1) as in torch."""
        if self.weight is not None:
            self.weight.normal_() if bound is None else self.weight.uniform_(-bound, bound)

    def forward(self, tokens: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Embed tokens.

        Args:
            tokens: Token ids, integers of any shape.
            dtype: Dtype of one-hot vectors; None for torch's default. Ignored for learned vectors.

        Returns:
            A tensor of shape `(*tokens.shape, width)`.
        """
        if self.weight is None:
            vectors = one_hot(tokens.long(), self.words).to(dtype or torch.get_default_dtype())
        else:
            vectors = embedding(tokens, self.weight)
        if self.training and self.p > 0:
            # Look up one factor per word: scaling the whole matrix would cost V x width twice per step.
            vectors = vectors * embedding(tokens, dropout(vectors.new_ones(self.words, 1), self.p))
        return vectors

    def extra_repr(self) -> str:
        one_hot_vectors = ", one-hot" if self.weight is None else f", {self.width}"
        return f"{self.words}{one_hot_vectors}" + (f", p={self.p}" if self.p else "")
