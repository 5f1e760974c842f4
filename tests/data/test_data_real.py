"""Counts and first records of the real data sets against the known numbers."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from remanence import data
from remanence.data.archives import contents
from remanence.data.sets import cifar10, imdb


def test_mnist(real):
    images = real("mnist")
    assert images.train_images.shape == (60000, 28, 28)
    assert images.test_images.shape == (10000, 28, 28)
    assert images.train_images.dtype == images.train_labels.dtype == np.uint8
    assert images.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert images.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    train, test = np.bincount(images.train_labels), np.bincount(images.test_labels)
    assert train.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert test.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.train_images.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert images.train_images.std() / 255 == pytest.approx(0.3081, abs=1e-4)
    assert images.train_images[0, 5, 12:16].tolist() == [3, 18, 18, 18]


@pytest.mark.long
def test_cifar10(real):
    images = real("cifar-10")
    assert images.train_images.shape == (50000, 32, 32, 3)
    assert images.test_images.shape == (10000, 32, 32, 3)
    assert images.train_images.dtype == images.train_labels.dtype == np.uint8
    assert np.bincount(images.train_labels).tolist() == [5000] * 10
    assert np.bincount(images.test_labels).tolist() == [1000] * 10
    assert [cifar10.CLASSES[label] for label in images.train_labels[:3]] == ["frog", "truck", "truck"]
    assert images.test_labels[:5].tolist() == [3, 8, 8, 0, 6]
    assert images.train_images[0, 0, 0].tolist() == [59, 62, 63]
    levels = np.arange(256) / 255
    for colour, (mean, deviation) in enumerate([(0.49140, 0.24703), (0.48216, 0.24349), (0.44653, 0.26159)]):
        share = np.bincount(images.train_images[..., colour].reshape(-1), minlength=256) / (50000 * 32 * 32)
        assert share @ levels == pytest.approx(mean, abs=1e-5)
        assert np.sqrt(share @ (levels - share @ levels) ** 2) == pytest.approx(deviation, abs=1e-5)


@pytest.mark.long
def test_cifar10_is_the_published_one_byte_for_byte(real):
    images = real("cifar-10")
    pictures = np.concatenate((images.train_images, images.test_images)).transpose(0, 3, 1, 2).reshape(6, 10000, -1)
    labels = np.concatenate((images.train_labels, images.test_labels)).reshape(6, 10000, 1)
    for part, (name, md5) in enumerate(cifar10.BATCHES.items()):
        binary = np.concatenate((labels[part], pictures[part]), axis=1).tobytes()
        assert hashlib.md5(binary).hexdigest() == md5, name


@pytest.mark.long
def test_imdb(real):
    reviews = real("imdb")
    for texts, labels, size, distinct, words in (
        (reviews.train_texts, reviews.train_labels, 33_132_823, 24_904, 233.8),
        (reviews.test_texts, reviews.test_labels, 32_350_685, 24_801, 228.5),
    ):
        assert len(texts) == len(labels) == 25000
        assert labels.dtype == np.uint8
        assert labels.tolist() == [0] * 12500 + [1] * 12500
        assert sum(len(text.encode()) for text in texts) == size
        assert len(set(texts)) == distinct
        assert np.mean([len(text.split()) for text in texts]) == pytest.approx(words, abs=0.05)
    assert reviews.train_texts[0].startswith("Story of a man who has unnatural feelings for a pig.")
    assert reviews.test_texts[0].startswith("Once again Mr. Costner has dragged out a movie")


@pytest.mark.long
def test_imdb_content_has_the_known_checksum(real):
    real("imdb")
    path = Path(os.environ["REMANENCE_DATA"]) / "imdb" / "test.jsonl.xz"
    if not path.exists():
        pytest.skip("imdb is there in another form")
    assert imdb.content(imdb.lines(path)) == imdb.CONTENT["test"]


def test_glove(real):
    vectors = real("glove")
    assert vectors.vectors.shape in {(38354, 100), (400000, 100)}
    assert vectors.vectors.dtype == np.float32
    assert len(set(vectors.words)) == len(vectors.words) == len(vectors.vectors)
    assert vectors.words[:5] == ["the", ",", ".", "of", "to"]
    np.testing.assert_array_equal(
        vectors.vectors[0, :5], np.array([-0.038194, -0.24487, 0.72812, -0.39961, 0.083172], np.float32)
    )
    assert np.isfinite(vectors.vectors).all()


def test_penn_treebank(real):
    texts = real("ptb")
    assert data.KNOWN["ptb"].count(texts)["train"]["words with <eos>"] == 929_589
    assert data.KNOWN["ptb"].count(texts)["validation"]["words with <eos>"] == 73_760
    assert data.KNOWN["ptb"].count(texts)["test"]["words with <eos>"] == 82_430
    vocabulary = {*texts.train.split(), b"<eos>"}
    assert len(vocabulary) == 10_000
    assert {*texts.validation.split(), *texts.test.split()} <= vocabulary
    assert texts.train.split()[:4] == [b"aer", b"banknote", b"berlitz", b"calloway"]
    assert texts.validation.split()[:4] == [b"consumers", b"may", b"want", b"to"]


def test_penn_treebank_characters_are_those_of_its_words(real):
    texts = real("ptb")
    path = Path(os.environ["REMANENCE_DATA"]) / "ptb" / "ptb.char.valid.txt.xz"
    if not path.exists():
        pytest.skip("ptb is there without its character files")
    lines = contents(path).split(b"\n")
    assert lines.pop() == b" "
    assert [line.replace(b" ", b"").replace(b"_", b" ") for line in lines] == [
        line.strip() for line in texts.validation.split(b"\n")[:-1]
    ]


def test_wikitext2(real):
    texts = real("wikitext-2")
    counts = data.KNOWN["wikitext-2"].count(texts)
    assert [count["words with <eos>"] for count in counts.values()] == [2_088_628, 217_646, 245_569]
    vocabulary = {*texts.train.split(), b"<eos>"}
    assert len(vocabulary) == 33_278
    assert {*texts.validation.split(), *texts.test.split()} <= vocabulary
    assert texts.train.split()[:4] == [b"=", b"Valkyria", b"Chronicles", b"III"]


@pytest.mark.long
def test_enwik8(real):
    texts = real("enwik8")
    assert [len(texts.train), len(texts.validation), len(texts.test)] == [90_000_000, 5_000_000, 5_000_000]
    assert texts.train.startswith(b"<mediawiki xmlns=")
    digest = hashlib.md5(texts.train)
    digest.update(texts.validation)
    digest.update(texts.test)
    assert digest.hexdigest() == "a1fa5ffddb56f4953e226637dabbb36a"


def test_text8(real):
    texts = real("text8")
    assert texts.train.startswith(b" anarchism originated as a term of abuse")


def test_digits_need_no_download(own):
    images = data.digits()
    assert images.train_images.shape == (1200, 8, 8)
    assert images.test_images.shape == (597, 8, 8)
    assert images.train_images.dtype == np.float32
    assert images.train_labels.dtype == np.uint8
    assert (images.train_images.min(), images.train_images.max()) == (0, 16)
    total = np.bincount(images.train_labels) + np.bincount(images.test_labels)
    assert total.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_always_split_in_the_same_way(own):
    images = data.digits()
    assert images.train_labels[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]
    assert images.test_labels[:10].tolist() == [6, 1, 6, 0, 6, 4, 0, 1, 8, 2]
    np.testing.assert_array_equal(images.train_images, data.load("digits").train_images)
