"""What loaders return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures and their classes: N for training, M for testing, of height H and width W."""

    train_images: NDArray[np.uint8] | NDArray[np.float32]
    """`(N, H, W)`, or `(N, H, W, 3)` in colour."""
    train_labels: NDArray[np.uint8]
    """`(N,)`."""
    test_images: NDArray[np.uint8] | NDArray[np.float32]
    """`(M, H, W)` or `(M, H, W, 3)`."""
    test_labels: NDArray[np.uint8]
    """`(M,)`."""


@dataclass(frozen=True, eq=False)
class Reviews:
    """Texts and whether they praise (1) or not (0). All negative ones come first: shuffle."""

    train_texts: list[str]
    train_labels: NDArray[np.uint8]
    """`(N,)`."""
    test_texts: list[str]
    test_labels: NDArray[np.uint8]
    """`(M,)`."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector of D numbers for each of N words, the most frequent first."""

    words: list[str]
    vectors: NDArray[np.float32]
    """`(N, D)`."""


@dataclass(frozen=True, eq=False)
class Texts:
    """A corpus in its three parts, as bytes of UTF-8."""

    train: bytes
    validation: bytes
    test: bytes
