"""Every form of every data set, from small files that the tests write."""

import gzip
import io
import json
import lzma
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays
from PIL import Image

from remanence import data
from remanence.data import DataError
from remanence.data.sets import cifar10, glove, imdb, mnist

random = np.random.default_rng(0)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def tarred(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, raw in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(raw)
            archive.addfile(about, io.BytesIO(raw))


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in files.items():
            archive.writestr(name, raw)


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, max_side=5)))
def test_idx_files_are_read_as_written(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("idx") / "a.gz"
    path.write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(mnist.idx(path), array)


@pytest.mark.parametrize(
    "raw", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\1a", b"\0\0\x08\x01\0\0\0\2a", b"<html></html>"]
)
def test_what_is_no_idx_file_is_refused(tmp_path, raw):
    (tmp_path / "labels").write_bytes(raw)
    with pytest.raises(DataError, match=r"expected .*labels to be an idx file"):
        mnist.idx(tmp_path / "labels")


@pytest.mark.parametrize("ending", [".gz", ""])
def test_mnist_files(own, accepting, ending):
    expected = [random.integers(256, size=size, dtype=np.uint8) for size in ((6, 28, 28), 6, (2, 28, 28), 2)]
    (own / "mnist").mkdir()
    for name, array in zip(mnist.NAMES, expected, strict=True):
        raw = idx(array)
        (own / "mnist" / (name + ending)).write_bytes(gzip.compress(raw) if ending else raw)
    known = accepting(mnist.MNIST, own / "mnist", {"train": {"images": 6}, "test": {"images": 2}})
    images = known.load()
    found = (images.train_images, images.train_labels, images.test_images, images.test_labels)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def small_cifar():
    pictures = random.integers(256, size=(6, 4, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(10, size=(6, 4), dtype=np.uint8)
    raw = {
        f"{name}.bin": np.concatenate(
            (labels[part, :, None], pictures[part].transpose(0, 3, 1, 2).reshape(4, -1)), 1
        ).tobytes()
        for part, name in enumerate(cifar10.BATCHES)
    }
    return pictures, labels, raw


@pytest.mark.parametrize("form", ["archive", "unpacked", "loose", "mosaics"])
def test_cifar10_files(own, accepting, form):
    pictures, labels, raw = small_cifar()
    folder = own / "cifar-10"
    (folder / cifar10.UNPACKED).mkdir(parents=True)
    if form == "archive":
        members = {f"{cifar10.UNPACKED}/{name}": content for name, content in raw.items()}
        tarred(folder / cifar10.ARCHIVE.name, {f"{cifar10.UNPACKED}/readme.html": b"hello", **members})
    elif form == "mosaics":
        for part, name in enumerate(cifar10.BATCHES):
            tiles = pictures[part].reshape(2, 2, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(64, 64, 3)
            Image.fromarray(tiles).save(folder / f"{name}.webp", lossless=True)
        np.savez(folder / "labels.npz", train=labels[:5].reshape(-1), test=labels[5])
    else:
        for name, content in raw.items():
            (folder / (cifar10.UNPACKED if form == "unpacked" else "") / name).write_bytes(content)
    images = accepting(cifar10.CIFAR10, folder, {"train": {"images": 20}, "test": {"images": 4}}).load()
    np.testing.assert_array_equal(images.train_images, pictures[:5].reshape(20, 32, 32, 3))
    np.testing.assert_array_equal(images.train_labels, labels[:5].reshape(20))
    np.testing.assert_array_equal(images.test_images, pictures[5])
    np.testing.assert_array_equal(images.test_labels, labels[5])


def test_an_archive_without_a_member_is_named(own, accepting):
    folder = own / "cifar-10"
    folder.mkdir()
    tarred(folder / cifar10.ARCHIVE.name, {"readme.html": b"hello"})
    known = accepting(cifar10.CIFAR10, folder, {})
    with pytest.raises(DataError, match=r"expected .*binary\.tar\.gz to contain .*data_batch_1\.bin"):
        known.load()


def test_pickled_arrays_are_refused(own, accepting):
    folder = own / "cifar-10"
    folder.mkdir()
    for name in cifar10.BATCHES:
        Image.new("RGB", (32, 32)).save(folder / f"{name}.webp", lossless=True)
    np.savez(folder / "labels.npz", train=np.array([{}], object), test=np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="allow_pickle"):
        accepting(cifar10.CIFAR10, folder, {}).load()


REVIEWS = {
    "train": [
        imdb.Review(0, 0, 3, "A bore.<br />Écrasant."),
        imdb.Review(0, 2, 1, "No\u2028line end"),
        imdb.Review(1, 0, 9, "“Joy”"),
    ],
    "test": [imdb.Review(0, 10, 4, "Hm"), imdb.Review(1, 9, 10, "Ah")],
}


def archived():
    """As in the archive: unsorted, with unlabelled reviews and lists among them."""
    files = {"aclImdb/README": b"", "aclImdb/train/unsup/0_0.txt": b"?", "aclImdb/train/neg.txt": b"", "x/1_1.txt": b""}
    for split, reviews in REVIEWS.items():
        for label, number, rating, text in reversed(reviews):
            files[f"aclImdb/{split}/{'pos' if label else 'neg'}/{number}_{rating}.txt"] = text.encode()
    return files


def small_imdb(accepting, folder):
    return accepting(imdb.IMDB, folder, {"train": {"reviews": 3}, "test": {"reviews": 2}})


def same_reviews(found):
    assert found.train_texts == [review.text for review in REVIEWS["train"]]
    assert found.train_labels.tolist() == [0, 0, 1]
    assert found.test_texts == ["Hm", "Ah"]
    assert found.test_labels.tolist() == [0, 1]
    assert found.test_labels.dtype == np.uint8


def test_imdb_archive(own, accepting):
    (own / "imdb").mkdir()
    tarred(own / "imdb" / imdb.ARCHIVE.name, archived())
    same_reviews(small_imdb(accepting, own / "imdb").load())


def test_imdb_lines(own, accepting):
    (own / "imdb").mkdir()
    for split, reviews in REVIEWS.items():
        rows = (json.dumps(review._asdict(), ensure_ascii=False) + "\n" for review in reviews)
        (own / "imdb" / f"{split}.jsonl.xz").write_bytes(lzma.compress("".join(rows).encode()))
    same_reviews(small_imdb(accepting, own / "imdb").load())


@pytest.fixture
def unpacked_imdb(own, monkeypatch):
    for name, raw in archived().items():
        (own / "imdb" / name).parent.mkdir(parents=True, exist_ok=True)
        (own / "imdb" / name).write_bytes(raw)
    monkeypatch.setattr(imdb, "CONTENT", {split: imdb.content(reviews) for split, reviews in REVIEWS.items()})
    return own / "imdb"


def test_imdb_folder(unpacked_imdb, accepting):
    same_reviews(small_imdb(accepting, unpacked_imdb).load())


def test_imdb_folder_with_another_text_is_refused(unpacked_imdb, accepting):
    (unpacked_imdb / "aclImdb/test/pos/9_10.txt").write_text("Oh")
    with pytest.raises(DataError, match=r"the published test reviews.*; extract aclImdb_v1.tar.gz again"):
        small_imdb(accepting, unpacked_imdb).load()


def test_imdb_folder_without_a_review_is_refused(unpacked_imdb, accepting):
    (unpacked_imdb / "aclImdb/train/pos/0_9.txt").unlink()
    with pytest.raises(DataError, match=r"got 2 reviews with different content"):
        small_imdb(accepting, unpacked_imdb).load()


@pytest.fixture
def vectors():
    words = ["the", ",", "né", "a" * 50]
    return words, random.normal(size=(4, 100)).astype(np.float32)


def written(words, vectors):
    rows = (
        " ".join([word, *(format(number, ".9g") for number in row)]) for word, row in zip(words, vectors, strict=True)
    )
    return ("\n".join(rows) + "\n").encode()


@pytest.mark.parametrize("form", ["text", "archive", "subset"])
def test_glove_files(own, accepting, vectors, form, monkeypatch):
    monkeypatch.setattr(glove, "AT_ONCE", 3)
    folder = own / "glove"
    folder.mkdir()
    if form == "text":
        (folder / "glove.6B.100d.txt").write_bytes(written(*vectors))
    elif form == "archive":
        zipped(folder / "glove.6B.zip", {"glove.6B.50d.txt": b"", "glove.6B.100d.txt": written(*vectors)})
    else:
        np.savez(folder / glove.SUBSET.name, words=np.array(vectors[0]), vectors=vectors[1], rank=np.arange(4))
    found = accepting(glove.GLOVE, folder, {"all": {"words": 4, "dimensions": 100}}).load()
    assert found.words == vectors[0]
    assert all(type(word) is str for word in found.words)
    np.testing.assert_array_equal(found.vectors, vectors[1])
    assert found.vectors.dtype == np.float32


def test_glove_of_another_length(own, accepting, vectors):
    (own / "glove").mkdir()
    zipped(own / "glove" / "glove.6B.zip", {"glove.6B.50d.txt": written(vectors[0], vectors[1][:, :50])})
    found = accepting(glove.vectors_of(50), own / "glove", {"all": {"words": 4, "dimensions": 50}}).load()
    np.testing.assert_array_equal(found.vectors, vectors[1][:, :50])


def test_glove_of_an_unknown_length_is_refused():
    with pytest.raises(ValueError, match="expected dimensions to be one of 50, 100, 200, 300, got 64"):
        data.glove(64)


def test_lines_of_unequal_length_are_refused():
    with pytest.raises(DataError, match="expected 3 numbers after each word"):
        glove.from_lines([b"a 1 2 3\n", b"b 1 2\n"], 3)


TEXTS = {"train": b" a b \n c <unk> \n", "valid": b" b \n\n", "test": b" c \n"}
COUNTS = {
    "train": {"words with <eos>": 6, "lines": 2},
    "validation": {"words with <eos>": 3, "lines": 2},
    "test": {"words with <eos>": 2, "lines": 1},
}


def same_texts(texts):
    assert (texts.train, texts.validation, texts.test) == tuple(TEXTS.values())


@pytest.mark.parametrize("form", ["plain", "squeezed", "archive"])
def test_penn_treebank_files(own, accepting, form):
    folder = own / "ptb"
    folder.mkdir()
    if form == "archive":
        members = {f"./simple-examples/data/ptb.{split}.txt": text for split, text in TEXTS.items()}
        tarred(folder / "simple-examples.tgz", members)
    for split, text in TEXTS.items() if form != "archive" else ():
        if form == "plain":
            (folder / f"ptb.{split}.txt").write_bytes(text)
        else:
            (folder / f"ptb.{split}.txt.xz").write_bytes(lzma.compress(text))
    characters = {"train": len("a b.c <unk>."), "validation": len("b.."), "test": len("c.")}
    counts = {split: {**count, "characters with <eos>": characters[split]} for split, count in COUNTS.items()}
    same_texts(accepting(data.KNOWN["ptb"], folder, counts).load())


@pytest.mark.parametrize("form", ["plain", "squeezed", "archive"])
def test_wikitext_files(own, accepting, form):
    folder = own / "wikitext-2"
    folder.mkdir()
    if form == "archive":
        members = {f"wikitext-2/wiki.{split}.tokens": text for split, text in TEXTS.items()}
        zipped(folder / "wikitext-2-v1.zip", members)
    for split, text in TEXTS.items() if form != "archive" else ():
        if form == "plain":
            (folder / f"{split}.txt").write_bytes(text)
        else:
            (folder / f"{split}.txt.xz").write_bytes(lzma.compress(text))
    same_texts(accepting(data.KNOWN["wikitext-2"], folder, COUNTS).load())


@pytest.mark.parametrize(("name", "form"), [("enwik8", "plain"), ("enwik8", "xz"), ("enwik8", "zip"), ("text8", "zip")])
def test_single_texts_are_cut_as_usual(own, accepting, name, form):
    text = bytes(range(100))
    folder = own / name
    folder.mkdir()
    if form == "plain":
        (folder / name).write_bytes(text)
    elif form == "xz":
        (folder / f"{name}.xz").write_bytes(lzma.compress(text))
    else:
        zipped(folder / f"{name}.zip", {name: text})
    counts = {"train": {"bytes": 90}, "validation": {"bytes": 5}, "test": {"bytes": 5}}
    texts = accepting(data.KNOWN[name], folder, counts).load()
    assert (texts.train, texts.validation, texts.test) == (text[:90], text[90:95], text[95:])


def test_a_zip_without_its_text_is_named(own, accepting):
    (own / "text8").mkdir()
    zipped(own / "text8" / "text8.zip", {"other": b""})
    with pytest.raises(DataError, match=r"expected .*text8\.zip to contain text8"):
        accepting(data.KNOWN["text8"], own / "text8", {}).load()


def test_other_counts_than_the_known_ones_are_refused(own, accepting):
    (own / "text8").mkdir()
    (own / "text8" / "text8").write_bytes(b"abc")
    with pytest.raises(DataError, match=r"expected data set 'text8' to have .*90000000.*, got .*replace its files"):
        accepting(data.KNOWN["text8"], own / "text8", data.KNOWN["text8"].counts).load()
