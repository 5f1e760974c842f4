"""Corpora by name: small ones in the form of the real ones, and the real ones against the known numbers."""

import dataclasses
import itertools
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from remanence import data, language
from remanence.data import DataError
from remanence.data.archives import contents
from remanence.data.checksums import checksum_of
from remanence.tasks.text import Text


@pytest.fixture
def accepted(own, monkeypatch):
    """Writes a small data set and makes it the known one, with its own checksums."""

    def accept(name, **files):
        folder = own / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file.replace("_", ".")).write_bytes(content)
        known = data.KNOWN[name]
        form = next(form for form in known.forms if not form.missing(folder))
        wanted = tuple(
            dataclasses.replace(file, checksum=checksum_of(folder / file.name, "sha256")) for file in form.needed
        )
        form = dataclasses.replace(form, files=wanted)
        counts = known.count(form.read(folder))
        monkeypatch.setitem(data.KNOWN, name, dataclasses.replace(known, forms=(form,), counts=counts))
        return folder

    return accept


TREEBANK = {
    "ptb_train_txt": b" the cat <unk> \n the N \n",
    "ptb_valid_txt": b" cat the \n",
    "ptb_test_txt": b" N <unk> \n",
}


def test_words_with_end_of_line_symbols(accepted):
    accepted("ptb", **TREEBANK)
    corpus = language.load("ptb")
    assert corpus.name == "ptb"
    assert corpus.vocabulary.words == ("the", "cat", "<unk>", "<eos>", "N")
    assert (corpus.vocabulary.unknown, corpus.vocabulary.end, corpus.vocabulary.level) == ("<unk>", 3, "word")
    assert corpus.train.tolist() == [0, 1, 2, 3, 0, 4, 3]
    assert corpus.validation.tolist() == [1, 0, 3]
    assert corpus.test.tolist() == [4, 2, 3]


def test_characters_of_the_words(accepted):
    accepted("ptb", **TREEBANK)
    corpus = language.load("ptb-char")
    assert corpus.vocabulary.text(corpus.train) == "the cat <unk>\nthe N\n"
    assert corpus.vocabulary.words[:4] == ("t", "h", "e", " ")
    assert (corpus.vocabulary.unknown, corpus.vocabulary.level) == (None, "character")
    same = language.load("ptb", level="character")
    assert same.name == "ptb-char"
    assert np.array_equal(same.train, corpus.train)
    assert language.load("ptb-char", level="word").name == "ptb"


def test_blank_lines_end_too(accepted):
    accepted("wikitext-2", train_txt=b" \n = Head = \n \n Text . \n", valid_txt=b" \n", test_txt=b" Text \n \n")
    corpus = language.load("wikitext-2")
    assert corpus.vocabulary.decode(corpus.train) == ["<eos>", "=", "Head", "=", "<eos>", "<eos>", "Text", ".", "<eos>"]
    assert corpus.validation.tolist() == [0]
    assert len(corpus.test) == 3


def test_bytes_that_occur(accepted):
    text = bytes(range(200, 210)) * 9 + b"zyxab" * 2
    accepted("enwik8", enwik8=text)
    corpus = language.load("enwik8")
    assert corpus.vocabulary.level == "byte"
    assert corpus.vocabulary.words == tuple(map(chr, [*range(200, 210), *b"zyxab"]))
    assert corpus.train.tolist() == list(range(10)) * 9
    assert corpus.validation.tolist() == corpus.test.tolist() == [10, 11, 12, 13, 14]
    assert language.load("enwik8", level="character").vocabulary == corpus.vocabulary


def dump(articles):
    return b"".join(b'<text xml:space="preserve">' + text + b"</text>\n" for text in articles)


def test_text8_is_the_full_file_if_it_is_found(accepted):
    accepted("enwik8", enwik8=dump([b"abc"] * 10))
    accepted("text8", text8=b" ab c" * 20)
    corpus = language.load("text8")
    assert (corpus.name, corpus.note) == ("text8", "")
    assert corpus.vocabulary.words == (" ", "a", "b", "c")
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [90, 5, 5]
    assert corpus.vocabulary.end is None


def test_otherwise_text8_is_made_from_enwik8_and_the_note_says_so(accepted):
    accepted("enwik8", enwik8=dump([b"A b, 1!"] * 25))
    corpus = language.load("text8")
    assert corpus.name == "text8-from-enwik8"
    assert "200 characters made from enwik8, split 90/5/5" in corpus.note
    assert corpus.vocabulary.text(corpus.train) == " a b one" * 22 + " a b"
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [180, 10, 10]
    assert language.load("text8-from-enwik8").note == corpus.note  # also when it comes from the cache folder
    task = Text(corpus="text8", chunk=2)
    assert task.note == ""  # it does not read the corpus
    used = task.source("test", 1, torch.device("cpu"))
    assert used.size == 5
    assert task.note == corpus.note


def test_without_either_text8_is_missing(own):
    with pytest.raises(DataError, match="expected data set 'text8' in"):
        language.load("text8")


def test_a_damaged_text8_is_not_replaced(accepted):
    accepted("enwik8", enwik8=dump([b"abc"] * 10))
    folder = accepted("text8", text8=b" ab c" * 20)
    (folder / "text8").write_bytes(b"x")
    with pytest.raises(DataError, match="the file is damaged or a different one"):
        language.load("text8")


def test_a_data_folder_can_be_given(accepted, own, monkeypatch):
    accepted("ptb", **TREEBANK)
    monkeypatch.delenv("REMANENCE_DATA")
    with pytest.raises(DataError, match="expected data set 'ptb'"):
        language.load("ptb")
    assert len(language.load("ptb", data=own).train) == 7
    with pytest.raises(DataError, match="expected data set 'ptb'"):
        language.load("ptb")
    with pytest.raises(DataError, match=r"expected a folder with one subfolder per data set, got .*nowhere"):
        language.load("ptb", data=own / "nowhere")


def test_it_is_encoded_once(accepted, monkeypatch):
    accepted("ptb", **TREEBANK)
    language.load("ptb")

    def fail(*arguments, **options):
        raise AssertionError("read again")

    monkeypatch.setattr(data.dataset.DataSet, "load", fail)
    assert len(language.load("ptb").train) == 7
    with pytest.raises(AssertionError, match="read again"):
        language.load("ptb-char")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ptp", {}, "expected corpus to be one of ptb, .*, got 'ptp'; did you mean 'ptb'"),
        ("ptb", {"level": "byte"}, "level of 'ptb' to be 'word', got 'byte'"),
        ("wikitext-2", {"level": "character"}, "level of 'wikitext-2' to be 'word', got 'character'"),
        ("enwik8", {"level": "word"}, "level of 'enwik8' to be 'byte', got 'word'"),
        ("ptb", {"lower": True}, "only with a folder, got them with the corpus 'ptb'"),
    ],
)
def test_wrong_names_and_options(own, name, options, message):
    with pytest.raises(ValueError, match=message):
        language.load(name, **options)


# The real ones


def sizes(corpus):
    return [len(corpus.vocabulary), len(corpus.train), len(corpus.validation), len(corpus.test)]


def test_penn_treebank_words(real):
    corpus = real("ptb")
    assert sizes(corpus) == [10_000, 929_589, 73_760, 82_430]
    assert corpus.vocabulary.words[:3] == ("aer", "banknote", "berlitz")
    assert corpus.vocabulary.words[24:29] == ("<eos>", "pierre", "<unk>", "N", "years")
    assert corpus.train[:30].tolist() == list(range(30))
    assert corpus.vocabulary.text(corpus.train[25:40]) == (
        "pierre <unk> N years old will join the board as a nonexecutive director nov. N"
    )
    assert corpus.vocabulary.text(corpus.test[:6]) == "no it was n't black monday"
    assert corpus.counts("train")[corpus.vocabulary.end] == 42_068
    assert corpus.counts("train").min() > 0
    assert corpus.counts("all").sum() == 929_589 + 73_760 + 82_430


def test_penn_treebank_words_by_frequency(real):
    corpus = real("ptb")
    counts = corpus.counts("train")
    top = np.argsort(-counts, kind="stable")[:6]
    assert corpus.vocabulary.decode(top) == ["the", "<unk>", "<eos>", "N", "of", "to"]
    assert counts[top].tolist() == [50_770, 45_020, 42_068, 32_481, 24_400, 23_638]
    edges = [0, 100, 1000, 10_000, counts.max() + 1]
    bins = [int(((counts >= low) & (counts < high)).sum()) for low, high in itertools.pairwise(edges)]
    assert bins == [8919, 992, 80, 9]


def test_penn_treebank_batches(real):
    corpus = real("ptb")
    stream = language.batches(corpus.train, 20)
    assert stream.shape == (46_479, 20)
    assert len(stream) // 70 == 663  # as the public code counts an epoch
    parts = list(language.chunks(stream, 70))
    assert [len(part.inputs) for part in parts] == [70] * 663 + [68]
    first = parts[0]
    assert first.inputs[:, 0].tolist() == corpus.train[:70].tolist()
    assert first.targets[:, 0].tolist() == corpus.train[1:71].tolist()
    assert first.inputs[:, 1].tolist() == corpus.train[46_479 : 46_479 + 70].tolist()
    assert corpus.vocabulary.decode(first.inputs[:4, 0]) == ["aer", "banknote", "berlitz", "calloway"]
    assert len(corpus.test) // 100 == 824  # blocks of the bootstrap


def test_penn_treebank_characters(real):
    corpus = real("ptb-char")
    assert sizes(corpus) == [50, 5_017_482, 393_042, 442_423]
    assert corpus.vocabulary.words[:8] == ("a", "e", "r", " ", "b", "n", "k", "o")
    assert corpus.vocabulary.text(corpus.train[:25]) == "aer banknote berlitz call"
    assert corpus.counts("train")[corpus.vocabulary.end] == 42_068
    assert corpus.counts("train").min() > 0


def test_penn_treebank_characters_are_those_of_the_character_files(real):
    corpus = real("ptb-char")
    path = Path(os.environ["REMANENCE_DATA"]) / "ptb" / "ptb.char.test.txt.xz"
    if not path.exists():
        pytest.skip("ptb is there without its character files")
    lines = contents(path).decode().split("\n")
    assert lines.pop() == " "
    symbols = [symbol for line in lines for symbol in [*line.split(), "<eos>"]]
    expected = corpus.vocabulary.encode([" " if symbol == "_" else symbol for symbol in symbols])
    assert np.array_equal(corpus.test, expected)


def test_wikitext2(real):
    corpus = real("wikitext-2")
    assert sizes(corpus) == [33_278, 2_088_628, 217_646, 245_569]
    assert corpus.vocabulary.words[:6] == ("<eos>", "=", "Valkyria", "Chronicles", "III", "Senjō")
    assert corpus.vocabulary.text(corpus.train[:9]) == "\n= Valkyria Chronicles III =\n\nSenjō"
    assert corpus.counts("train")[corpus.vocabulary.end] == 36_718


@pytest.mark.long
def test_enwik8(real):
    corpus = real("enwik8")
    assert sizes(corpus) == [205, 90_000_000, 5_000_000, 5_000_000]
    assert corpus.vocabulary.text(corpus.train[:11]) == "<mediawiki "


def test_the_start_of_text8_can_be_made_from_enwik8():
    folder = os.environ.get("REMANENCE_DATA")
    path = Path(folder or ".") / "enwik8" / "enwik8.xz"
    if not folder or not path.exists():
        pytest.skip("no enwik8.xz in REMANENCE_DATA")
    with lzma.open(path) as file:
        text = language.clean(file.read(4_000_000))
    assert text.startswith(
        b" anarchism originated as a term of abuse first used against early working class radicals including"
    )
    assert set(text) == set(b" abcdefghijklmnopqrstuvwxyz")
    assert b"  " not in text
    assert 0.6 < len(text) / 4_000_000 < 0.8


@pytest.mark.long
def test_markov_text_of_penn_treebank(real):
    corpus = real("ptb")
    text = language.markov(corpus, 1)
    assert sizes(text) == sizes(corpus)
    size = len(corpus.vocabulary)
    known = np.unique(corpus.train[:-1].astype(np.int64) * size + corpus.train[1:])
    for part in (text.train, text.validation, text.test):
        assert np.isin(part[:-1].astype(np.int64) * size + part[1:], known).all()
    # Words are as frequent as before: within 5 standard deviations for the hundred most frequent.
    top = np.argsort(-corpus.counts("train"))[:100]
    expected, found = corpus.counts("train")[top], text.counts("train")[top]
    assert np.abs(found - expected).max() < 0.03 * expected.max()
    assert (np.abs(found - expected) < 5 * np.sqrt(3 * expected)).all()
