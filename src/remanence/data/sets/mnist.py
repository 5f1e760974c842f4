"""MNIST: handwritten digits (LeCun, Bottou, Bengio and Haffner 1998), from the four canonical idx files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..archives import contents
from ..dataset import Counts, DataSet, File, Form
from ..errors import DataError
from ..records import Images

PLACES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
ZIPPED = {
    "train-images-idx3-ubyte": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
    "train-labels-idx1-ubyte": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
    "t10k-images-idx3-ubyte": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
    "t10k-labels-idx1-ubyte": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
}
PLAIN = {
    "train-images-idx3-ubyte": ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", 47_040_016),
    "train-labels-idx1-ubyte": ("65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", 60_008),
    "t10k-images-idx3-ubyte": ("0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", 7_840_016),
    "t10k-labels-idx1-ubyte": ("ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", 10_008),
}


def idx(path: Path) -> NDArray[np.uint8]:
    """Parse an idx file of bytes: two zeros, 8 for uint8, the number of dimensions, the dimensions, the data."""
    raw = contents(path)
    dimensions = raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * dimensions
    shape = [int.from_bytes(raw[at : at + 4], "big") for at in range(4, start, 4)]
    if raw[:3] != b"\0\0\x08" or len(raw) != start + int(np.prod(shape)):
        raise DataError(f"expected {path} to be an idx file of bytes, got something else; download it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def read(folder: Path, ending: str) -> Images:
    """Read the four files of a folder."""
    return Images(*(idx(folder / (name + ending)) for name in NAMES))


def count(images: Images) -> Counts:
    """Number of images per split."""
    return {"train": {"images": len(images.train_images)}, "test": {"images": len(images.test_images)}}


MNIST = DataSet(
    name="mnist",
    description="handwritten digits, 28 x 28 grey",
    forms=(
        Form(
            tuple(
                File(f"{name}.gz", f"sha256:{digest}", size, tuple(f"{place}{name}.gz" for place in PLACES))
                for name, (digest, size) in ZIPPED.items()
            ),
            partial(read, ending=".gz"),
        ),
        Form(
            tuple(File(name, f"sha256:{digest}", size) for name, (digest, size) in PLAIN.items()),
            partial(read, ending=""),
        ),
    ),
    counts={"train": {"images": 60_000}, "test": {"images": 10_000}},
    count=count,
)


def mnist() -> Images:
    """MNIST: uint8 images `(60000, 28, 28)` and `(10000, 28, 28)`, labels 0 to 9."""
    return MNIST.load()
