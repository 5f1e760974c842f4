"""Images as sequences of pixels, row by row or in a fixed random order; the class is read after the last pixel.

Le et al. 2015. MNIST and CIFAR-10 as in the papers, and scikit-learn's 8x8 digits as a small set without download.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Readout, Split
from .classification import Classification
from .expect import expect_flag, expect_one_of, expect_size_or_none, expect_whole
from .sources import FixedSet, Parts

if TYPE_CHECKING:
    from ..data import Images

Data = Literal["mnist", "cifar-10", "digits"]
CLASSES = 10


class ImageSet(NamedTuple):
    """Properties of an image data set that are known before it is read."""

    pixels: int
    channels: int
    white: int
    """The largest pixel value, which is scaled to 1."""
    train: int
    """Images of the original training set; the last of them are used for validation."""
    validation: int
    test: int


KNOWN: dict[str, ImageSet] = {
    "mnist": ImageSet(784, 1, 255, 60_000, 10_000, 10_000),  # 50K / 10K / 10K: pLSTM paper
    "cifar-10": ImageSet(1024, 3, 255, 50_000, 5_000, 10_000),  # 45K / 5K / 10K: ours
    "digits": ImageSet(64, 1, 16, 1_200, 200, 597),  # 1000 / 200 / 597: ours
}


@dataclass(frozen=True, kw_only=True)
class Pixels(Classification):
    """One pixel per step, all its channels at once (fast-gate paper: 3 x 1024), scaled to 0 to 1 (our choice).

    The split is the same for every seed, and our choice: validation images are the last ones of the original training
    set, whose order is random in all three data sets.
    """

    name: ClassVar[str] = "pixels"
    readout: ClassVar[Readout] = "last"
    goal: ClassVar[str] = "accuracy"

    data: Data = "mnist"
    """"mnist" (784 steps), "cifar-10" (1024 steps of 3 channels) or "digits" (64 steps)."""
    permuted: bool = False
    """Whether pixels come in a fixed random order instead of row by row."""
    permutation_seed: int = 50
    """The order is `numpy.random.RandomState(permutation_seed).permutation(pixels)`: step j shows pixel order[j]. That
    generator is frozen, so the order never changes. The papers do not give theirs."""
    train_size: int | None = None
    """Use only this many training images, from the start; None for all."""
    validation_size: int | None = None
    """Images taken from the end of the training set; None for 10,000 of MNIST, 5000 of CIFAR-10, 200 of digits."""
    test_size: int | None = None
    """Use only this many test images, from the start; None for all."""

    def __post_init__(self) -> None:
        expect_one_of("data", self.data, KNOWN)
        expect_flag("permuted", self.permuted)
        expect_whole("permutation_seed", self.permutation_seed)
        if self.permutation_seed >= 2**32:
            raise ValueError(f"expected permutation_seed to be below 2**32, got {self.permutation_seed}")
        for name in ("train_size", "validation_size", "test_size"):
            expect_size_or_none(name, getattr(self, name))
        known, held = KNOWN[self.data], self._held
        if held >= known.train:
            raise ValueError(f"expected validation_size to be below {known.train} for {self.data}, got {held}")
        for name, most in (("train_size", known.train - held), ("test_size", known.test)):
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"expected {name} to be at most {most}, got {getattr(self, name)}")

    @property
    def input_size(self) -> int:
        return KNOWN[self.data].channels

    @property
    def output_size(self) -> int:
        return CLASSES

    @property
    def _held(self) -> int:
        return KNOWN[self.data].validation if self.validation_size is None else self.validation_size

    def order(self) -> Tensor:
        """The pixel shown at every step, `(T,)`."""
        pixels = KNOWN[self.data].pixels
        if not self.permuted:
            return torch.arange(pixels)
        return torch.from_numpy(np.random.RandomState(self.permutation_seed).permutation(pixels))

    def source(self, split: Split, seed: int, device: torch.device) -> FixedSet:
        images = self._images(device)
        known = KNOWN[self.data]
        cut = known.train - self._held
        if split == "test":
            return images.some("test", 0, self.test_size or known.test)
        if split == "validation":
            return images.some("train", cut, self._held)
        return images.some("train", 0, self.train_size or cut)

    def _images(self, device: torch.device) -> LoadedImages:
        key = (self.data, self.permuted and self.permutation_seed, str(device))
        images = _LOADED.get(key)
        if images is None:
            images = LoadedImages(read(self.data), self.order(), KNOWN[self.data], device)
            _LOADED[key] = images
        return images

    @property
    def references(self) -> dict[str, float]:
        """Scores of a uniform guess among the ten classes."""
        return {"loss": float(np.log(CLASSES)), "accuracy": 1 / CLASSES}


class LoadedImages:
    """An image data set on a device, shared by all its splits and by all seeds that are trained in parallel.

    Pixels are bytes with time as the first dimension, so that picking a batch is one gather. For one replica the result
    has the layout that a recurrent layer reads; for several it is transposed in the conversion to float32.
    """

    def __init__(self, images: Images, order: Tensor, known: ImageSet, device: torch.device) -> None:
        self.white = known.white
        self.pixels = {  # (T, N, C)
            "train": as_sequences(images.train_images, order, known).to(device),
            "test": as_sequences(images.test_images, order, known).to(device),
        }
        self.labels = {
            "train": torch.from_numpy(np.asarray(images.train_labels)).to(device),
            "test": torch.from_numpy(np.asarray(images.test_labels)).to(device),
        }

    def some(self, which: str, start: int, size: int) -> FixedSet:
        """Consecutive images. Only their indices are stored: pixels are looked up for a whole batch."""
        numbers = torch.arange(start, start + size, device=self.labels[which].device)
        return FixedSet(partial(self.show, which), (numbers,))

    def show(self, which: str, parts: Parts) -> Batch:
        """The training or test images with these indices, `(B,)` or `(R, B)`."""
        (numbers,) = parts
        found = self.pixels[which].index_select(1, numbers.flatten())
        pixels = found.view(len(found), *numbers.shape, found.shape[-1]).movedim(0, -3)
        inputs = pixels.to(torch.float32, memory_format=torch.contiguous_format).div_(self.white)
        return Batch(inputs, self.labels[which].index_select(0, numbers.flatten()).view(numbers.shape).long())


_LOADED: WeakValueDictionary[tuple[str, int, str], LoadedImages] = WeakValueDictionary()
"""Image data sets that are in use by a source."""


def read(data: Data) -> Images:
    """Read the files of a data set."""
    from .. import data as files

    readers: dict[str, Callable[[], Images]] = {
        "mnist": files.mnist,
        "cifar-10": files.cifar10,
        "digits": files.digits,
    }
    return readers[data]()


def as_sequences(images: np.ndarray, order: Tensor, known: ImageSet) -> Tensor:
    """Images `(N, height, width)` or `(N, height, width, C)` as bytes `(T, N, C)`, with pixels in that order."""
    pixels = torch.from_numpy(np.asarray(images).astype(np.uint8, copy=False))
    return pixels.reshape(len(images), known.pixels, known.channels).transpose(0, 1)[order].contiguous()
