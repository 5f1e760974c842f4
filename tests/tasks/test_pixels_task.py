"""Images as sequences of pixels."""

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from remanence.tasks import Batch, Pixels, pixels, side_by_side
from remanence.tasks.pixels import KNOWN, ImageSet

CPU = torch.device("cpu")
SPLITS = ("train", "validation", "test")

with_data = pytest.mark.skipif("REMANENCE_DATA" not in os.environ, reason="needs data sets: set REMANENCE_DATA")


@pytest.fixture
def small(monkeypatch):
    """Made-up images of 2 x 3 pixels with 2 channels: 7 for training, 4 for testing."""
    rng = np.random.default_rng(1)
    images = SimpleNamespace(
        train_images=rng.integers(0, 256, (7, 2, 3, 2), dtype=np.uint8),
        train_labels=np.arange(7, dtype=np.uint8),
        test_images=rng.integers(0, 256, (4, 2, 3, 2), dtype=np.uint8),
        test_labels=np.arange(4, dtype=np.uint8),
    )
    loads = []
    monkeypatch.setitem(KNOWN, "small", ImageSet(6, 2, 255, 7, 2, 4))
    monkeypatch.setattr(pixels, "read", lambda data: loads.append(data) or images)
    images.loads = loads
    return images


def test_row_by_row_all_colours_at_once(small):
    batch = Pixels(data="small").source("train", 1, CPU).pick(torch.tensor([4, 0]))
    assert batch.inputs.shape == (6, 2, 2)
    assert batch.inputs.dtype == torch.float32
    assert batch.inputs.is_contiguous()
    for b, number in enumerate((4, 0)):
        expected = [small.train_images[number, row, column] / 255 for row in range(2) for column in range(3)]
        np.testing.assert_allclose(batch.inputs[:, b], expected, rtol=1e-6)
    assert batch.targets.tolist() == [4, 0]
    assert batch.targets.dtype == torch.int64


def test_splits_are_those_at_the_end_of_training_and_the_test_part(small):
    sources = [Pixels(data="small").source(split, 1, CPU) for split in SPLITS]
    assert [source.size for source in sources] == [5, 2, 4]
    labels = [source.pick(torch.arange(source.size)).targets.tolist() for source in sources]
    assert labels == [[0, 1, 2, 3, 4], [5, 6], [0, 1, 2, 3]]
    last = sources[2].pick(torch.tensor([3])).inputs[5, 0]
    np.testing.assert_allclose(last, small.test_images[3, 1, 2] / 255, rtol=1e-6)


def test_sizes_can_be_smaller(small):
    task = Pixels(data="small", train_size=2, validation_size=3, test_size=1)
    sources = [task.source(split, 1, CPU) for split in SPLITS]
    labels = [source.pick(torch.arange(source.size)).targets.tolist() for source in sources]
    assert labels == [[0, 1], [4, 5, 6], [0]]


def test_permuted_shows_the_same_pixels_in_one_order_in_all_splits(small):
    plain, mixed = Pixels(data="small"), Pixels(data="small", permuted=True)
    order = np.random.RandomState(50).permutation(6)
    assert not np.array_equal(order, np.arange(6))
    for split in SPLITS:
        numbers = torch.arange(2)
        rows, shuffled = (task.source(split, 1, CPU).pick(numbers) for task in (plain, mixed))
        assert torch.equal(shuffled.inputs, rows.inputs[order])
        assert torch.equal(shuffled.targets, rows.targets)


def pictures(source):
    """The images that a source uses."""
    return source.show.func.__self__


def test_files_are_read_once_for_all_splits_and_seeds_in_use(small):
    task = Pixels(data="small")
    sources = [task.source(split, seed, CPU) for split in SPLITS for seed in (1, 2, 3)]
    assert small.loads == ["small"]
    assert len({pictures(source) for source in sources}) == 1
    mixed = Pixels(data="small", permuted=True).source("train", 1, CPU)
    assert small.loads == ["small"] * 2
    assert pictures(mixed) is not pictures(sources[0])
    del sources, mixed
    task.source("train", 1, CPU)
    assert small.loads == ["small"] * 3


def test_the_permutation_never_changes():
    # First steps of numpy's legacy generator, which is frozen.
    assert Pixels(permuted=True).order()[:8].tolist() == [768, 769, 656, 363, 29, 10, 286, 421]
    assert sorted(Pixels(permuted=True).order().tolist()) == list(range(784))
    assert Pixels(data="cifar-10", permuted=True).order()[:8].tolist() == [225, 733, 10, 840, 963, 713, 127, 11]
    assert len(Pixels(data="cifar-10", permuted=True).order()) == 1024
    assert Pixels().order().tolist() == list(range(784))
    assert not torch.equal(Pixels(permuted=True).order(), Pixels(permuted=True, permutation_seed=51).order())


def test_reference_is_guessing():
    task = Pixels()
    batch = side_by_side([Batch(torch.zeros(3, 10, 1), torch.arange(10))])
    assert task.loss(torch.zeros(1, 10, 10), batch).item() == pytest.approx(math.log(10))
    assert task.references == pytest.approx({"loss": math.log(10), "accuracy": 0.1})


class TestDigits:
    def test_counts_values_and_classes(self):
        task = Pixels(data="digits")
        sources = [task.source(split, 1, CPU) for split in SPLITS]
        assert [source.size for source in sources] == [1000, 200, 597]
        for source in sources:
            batch = source.pick(torch.arange(source.size))
            assert batch.inputs.shape == (64, source.size, 1)
            assert set((batch.inputs * 16).unique().tolist()) == set(range(17))
            assert set(batch.targets.tolist()) == set(range(10))

    def test_no_image_is_lost(self):
        from sklearn.datasets import load_digits

        task = Pixels(data="digits")
        seen = []
        for split in SPLITS:
            source = task.source(split, 1, CPU)
            batch = source.pick(torch.arange(source.size))
            rows = (batch.inputs.squeeze(-1).t() * 16).long().tolist()
            seen.extend((*row, label) for row, label in zip(rows, batch.targets.tolist(), strict=True))
        digits = load_digits()
        wanted = [(*map(int, row), int(label)) for row, label in zip(digits.data, digits.target, strict=True)]
        assert sorted(seen) == sorted(wanted)


@with_data
class TestRealData:
    def test_mnist(self):
        task = Pixels(data="mnist")
        train, validation, test = (task.source(split, 1, CPU) for split in SPLITS)
        assert (train.size, validation.size, test.size) == (50_000, 10_000, 10_000)
        assert train.pick(torch.arange(10)).targets.tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        assert test.pick(torch.arange(10)).targets.tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
        first = train.pick(torch.arange(1)).inputs
        assert first.shape == (784, 1, 1)
        # Row 5 of the first picture, a five, begins at column 12 with 3, 18, 18, 18, 126.
        assert (first[5 * 28 + 12 : 5 * 28 + 17, 0, 0] * 255).round().tolist() == [3, 18, 18, 18, 126]
        mixed = Pixels(data="mnist", permuted=True)
        assert torch.equal(mixed.source("train", 1, CPU).pick(torch.arange(1)).inputs, first[mixed.order()])

    @pytest.mark.long
    def test_cifar_10(self):
        task = Pixels(data="cifar-10")
        train, validation, test = (task.source(split, 1, CPU) for split in SPLITS)
        assert (train.size, validation.size, test.size) == (45_000, 5_000, 10_000)
        assert train.pick(torch.arange(10)).targets.tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
        assert test.pick(torch.arange(10)).targets.tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
        first = train.pick(torch.arange(1)).inputs
        assert first.shape == (1024, 1, 3)
        assert (first[0, 0] * 255).round().tolist() == [59, 62, 63]
        assert (first[1, 0] * 255).round().tolist() == [43, 46, 45]
