"""The records that loaders return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Images:
    """Images and their labels: N for training, M for testing, of height H and width W."""

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
    """Texts and their sentiment, positive (1) or negative (0). Sorted by label: shuffle them."""

    train_texts: list[str]
    """N training texts."""
    train_labels: NDArray[np.uint8]
    """`(N,)`."""
    test_texts: list[str]
    """M test texts."""
    test_labels: NDArray[np.uint8]
    """`(M,)`."""


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A D-dimensional vector for each of N words, most frequent first."""

    words: list[str]
    """The N words."""
    vectors: NDArray[np.float32]
    """`(N, D)`."""


@dataclass(frozen=True, eq=False)
class Texts:
    """A corpus in three splits, as UTF-8 bytes."""

    train: bytes
    """Training text."""
    validation: bytes
    """Validation text."""
    test: bytes
    """Test text."""
