"""Small handwritten digits from scikit-learn: the data set that needs no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..dataset import DataSet, Form
from ..records import Images
from .mnist import count

TRAIN = 1200


def read(folder: Path) -> Images:
    """Read the digits, shuffle them with a fixed seed and split them in two."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    bunch = load_digits()
    # The legacy generator, because NumPy guarantees that its stream never changes.
    order = np.random.RandomState(0).permutation(len(bunch.target))
    images, labels = bunch.images.astype(np.float32)[order], bunch.target.astype(np.uint8)[order]
    return Images(images[:TRAIN], labels[:TRAIN], images[TRAIN:], labels[TRAIN:])


DIGITS = DataSet(
    name="digits",
    description="handwritten digits, 8 x 8 grey, from scikit-learn",
    forms=(Form((), read, package="scikit-learn"),),
    counts={"train": {"images": 1_200}, "test": {"images": 597}},
    count=count,
)


def digits() -> Images:
    """The digits of scikit-learn: float32 images `(1200, 8, 8)` and `(597, 8, 8)` from 0 to 16, labels 0 to 9."""
    return DIGITS.load()
