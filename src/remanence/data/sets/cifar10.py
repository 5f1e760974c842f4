"""CIFAR-10: small colour images of ten classes (Krizhevsky 2009).

Read from its binary version, packed or unpacked, and from lossless WebP mosaics; never from the pickled version.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..archives import tar_members
from ..dataset import DataSet, File, Form
from ..errors import DataError
from ..records import Images
from .mnist import count

ARCHIVE = File(
    "cifar-10-binary.tar.gz",
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
)
BATCHES = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
"""The training images in five batches, then the test images: md5 of each file of the binary version."""
UNPACKED = "cifar-10-batches-bin"
MOSAICS = {
    "data_batch_1.webp": ("7862ba6f532eb26481636723b49a74914d0a8186dde88a2afa9047668b1214b8", 17_107_164),
    "data_batch_2.webp": ("223eb5388d46cd9050b630ada011bb521e9e66e56f8922c4e3c90068bfb4de74", 17_149_322),
    "data_batch_3.webp": ("72340f10fb016c6a6f645cbf5e19c99d4d83b500574b3838a6850d00fc20b354", 17_159_702),
    "data_batch_4.webp": ("b5646e97fe600f24a0e4662426280aa23704f9e04033e7beab0808a51212f814", 17_131_960),
    "data_batch_5.webp": ("20fd741c090103a8703cd393ed42c0b9bb55c84a099564b3a290171531a473f9", 17_112_624),
    "test_batch.webp": ("5fb7e1221ce9526ce00d6f53ad5e520f96044b42580400979c573f910e687a8e", 17_141_804),
    "labels.npz": ("100457827cb30b2869dbdce3761c5279714820de9a8c6fa4d0dcc7cbc3037527", 30_265),
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def batches(raw: list[bytes]) -> Images:
    """Parse the files of the binary version: each image is a label, then its red, green and blue channels."""
    records = np.frombuffer(b"".join(raw), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    labels = records[:, 0].copy()
    test = len(raw[-1]) // records.shape[1]
    return Images(images[:-test], labels[:-test], images[-test:], labels[-test:])


def read_archive(folder: Path) -> Images:
    """Read the archive of the binary version."""
    return batches(tar_members(folder / ARCHIVE.name, [f"{UNPACKED}/{name}.bin" for name in BATCHES]))


def read_unpacked(folder: Path, under: str) -> Images:
    """Read the extracted files of the binary version."""
    return batches([(folder / under / f"{name}.bin").read_bytes() for name in BATCHES])


def mosaic(path: Path) -> NDArray[np.uint8]:
    """The images `(N, 32, 32, 3)` of a mosaic, row by row."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise DataError(f"expected pillow to read {path.name}, got none; pip install 'remanence-rnn[train]'") from None
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    rows, columns = pixels.shape[0] // 32, pixels.shape[1] // 32
    return pixels.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)


def read_mosaics(folder: Path) -> Images:
    """Read the mosaics."""
    images = [mosaic(folder / f"{name}.webp") for name in BATCHES]
    # Opened here because np.load leaves a damaged file open.
    with (folder / "labels.npz").open("rb") as file, np.load(file, allow_pickle=False) as labels:
        return Images(np.concatenate(images[:-1]), labels["train"], images[-1], labels["test"])


def unpacked(under: str) -> Form[Images]:
    """The form with extracted files of the binary version in a folder of that name."""
    files = (File(str(Path(under) / f"{name}.bin"), f"md5:{md5}", 30_730_000) for name, md5 in BATCHES.items())
    return Form(tuple(files), partial(read_unpacked, under=under))


CIFAR10 = DataSet(
    name="cifar-10",
    description="colour images of ten classes, 32 x 32",
    forms=(
        unpacked(UNPACKED),
        unpacked(""),
        Form((ARCHIVE,), read_archive),
        Form(
            tuple(File(name, f"sha256:{digest}", size) for name, (digest, size) in MOSAICS.items()),
            read_mosaics,
        ),
    ),
    counts={"train": {"images": 50_000}, "test": {"images": 10_000}},
    count=count,
)


def cifar10() -> Images:
    """CIFAR-10: uint8 images `(50000, 32, 32, 3)` and `(10000, 32, 32, 3)`, labels 0 to 9 in the order of CLASSES."""
    return CIFAR10.load()
