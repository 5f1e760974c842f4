"""Malicious archives and mislabelled files give one sentence, and nothing is written."""

import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from remanence.data import DataError, archives
from remanence.data.sets import cifar10, corpora, imdb, mnist

NAMES = ["../../evil", "/tmp/remanence-evil", "a/../../evil", "wanted"]


def tar(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def plain(name, content=b"content"):
    return tarfile.TarInfo(name), content


def link(name, to, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, to
    return member, b""


def everything(folder):
    return sorted(folder.parents[1].rglob("*"))


def test_path_traversal_in_a_tar_archive_has_no_effect(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    tar(folder / "x.tar.gz", *map(plain, NAMES))
    before = everything(folder)
    assert archives.tar_members(folder / "x.tar.gz", ["wanted"]) == [b"content"]
    assert set(archives.tar_files(folder / "x.tar.gz", lambda name: True)) == set(NAMES)  # in memory, under any name
    assert everything(folder) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
@pytest.mark.parametrize("to", ["/etc/passwd", "../secret"])
def test_links_and_devices_in_a_tar_archive_are_not_followed(tmp_path, kind, to):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    tar(folder / "x.tar.gz", link("wanted", to, kind))
    with pytest.raises(DataError, match=r"^expected .* to contain wanted, got an archive without it"):
        archives.tar_members(folder / "x.tar.gz", ["wanted"])


def test_path_traversal_in_a_zip_archive_has_no_effect(tmp_path):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        for name in NAMES:
            archive.writestr(name, b"content")
    before = everything(folder)
    assert archives.zip_member(folder / "x.zip", "wanted") == b"content"
    assert everything(folder) == before


BOMBS = {
    "x.gz": lambda path: path.write_bytes(gzip.compress(bytes(10**6))),
    "x.xz": lambda path: path.write_bytes(lzma.compress(bytes(10**6))),
    "x.tar.gz": lambda path: tar(path, plain("wanted", bytes(10**6))),
    "x.zip": lambda path: zipped(path, "wanted", bytes(10**6)),
}


def zipped(path, name, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(archives, "LARGEST", 10**5)
    path = tmp_path / name
    BOMBS[name](path)
    read = {
        "x.tar.gz": lambda: archives.tar_members(path, ["wanted"]),
        "x.zip": lambda: archives.zip_member(path, "wanted"),
    }.get(name, lambda: archives.contents(path))
    with pytest.raises(DataError, match=r"^expected files of at most 100,000 bytes in .*, got a larger one"):
        read()


def idx(shape):
    head = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    return gzip.compress(head + bytes(int(np.prod(shape))))


def put_mnist(folder):
    for name in mnist.NAMES:
        (folder / f"{name}.gz").write_bytes(idx((3, 4, 4) if "images" in name else (3,)))
    return mnist.MNIST, folder / f"{mnist.NAMES[0]}.gz"


def put_ptb(folder):
    for name in corpora.PTB_SQUEEZED:
        (folder / name).write_bytes(lzma.compress(b"a word\n" * 200))
    return corpora.PTB, folder / "ptb.train.txt.xz"


def put_cifar(folder):
    for name in cifar10.BATCHES:
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(folder / f"{name}.webp", lossless=True)
    np.savez(folder / "labels.npz", train=np.zeros(20, np.uint8), test=np.zeros(4, np.uint8))
    return cifar10.CIFAR10, folder / "data_batch_1.webp"


def put_labels(folder):
    known, _ = put_cifar(folder)
    return known, folder / "labels.npz"


def put_archive(folder):
    tar(folder / imdb.ARCHIVE.name, plain("aclImdb/train/pos/0_9.txt", b"fine"))
    return imdb.IMDB, folder / imdb.ARCHIVE.name


def put_zip(folder):
    zipped(folder / "enwik8.zip", "enwik8", b"text" * 1000)
    return corpora.ENWIK8, folder / "enwik8.zip"


def cut(content):
    return content[: len(content) // 2]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def nothing(content):
    return b""


def other(content):
    return b"\xff\xfe something else \xff"


@pytest.mark.parametrize("damage", [cut, nothing, other])
@pytest.mark.parametrize("put", [put_mnist, put_ptb, put_cifar, put_labels, put_archive, put_zip])
def test_damaged_files_are_one_sentence_even_with_the_right_checksum(own, accepting, put, damage):
    """As if the damaged file had been published: its checksum matches, so only the reader can refuse it."""
    known, path = put(next_folder(own, put))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"^expected ") as said:
        accepting(known, path.parent, {}).load()
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("damage", [cut, flipped, nothing, other])
@pytest.mark.parametrize("put", [put_mnist, put_ptb, put_cifar, put_labels, put_archive, put_zip])
def test_damaged_files_are_refused_by_their_checksum(own, accepting, put, damage):
    known, path = put(next_folder(own, put))
    known = accepting(known, path.parent, {})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"^expected .*{path.name} to have checksum .* is damaged or a different one"):
        known.load()


def test_a_text_that_is_not_utf_8_is_one_sentence(own, accepting, monkeypatch):
    from remanence.language import named

    folder = next_folder(own, put_ptb)
    known, path = put_ptb(folder)
    path.write_bytes(lzma.compress(b"a word \xff\n" * 200))
    counted = {"words with <eos>": 600, "lines": 200, "characters with <eos>": 1400}
    counts = {"train": counted | {"words with <eos>": 800, "characters with <eos>": 1800}}
    counts |= {"validation": counted, "test": counted}
    monkeypatch.setitem(named.data.KNOWN, "ptb", accepting(known, folder, counts))
    with pytest.raises(DataError, match=r"^expected UTF-8 text in .*ptb, got byte 0xff; copy it again$"):
        named.KNOWN["ptb"].load()


def next_folder(own, put):
    names = {put_mnist: "mnist", put_ptb: "ptb", put_archive: "imdb", put_zip: "enwik8"}
    folder = own / names.get(put, "cifar-10")
    folder.mkdir()
    return folder
