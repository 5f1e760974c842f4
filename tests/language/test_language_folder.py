"""A user's own corpus."""

import json

import numpy as np
import pytest

from remanence import language
from remanence.data import DataError


def words(corpus, split="train"):
    return corpus.vocabulary.decode(corpus.split(split))


def test_words_in_the_order_of_files_and_of_first_occurrence(texts):
    folder = texts(b_txt="d e\n", a_txt="b a\n\nb c\n", sub__c_txt="f", _hidden="x")
    corpus = language.load(folder, split=(0.5, 0.3, 0.2))
    whole = [*words(corpus), *words(corpus, "validation"), *words(corpus, "test")]
    # 12 tokens, of which 6 are for training: what only comes later is unknown.
    assert whole == ["b", "a", "<eos>", "<eos>", "b", "c", "<eos>", "<unk>", "<unk>", "<eos>", "<unk>", "<eos>"]
    assert corpus.vocabulary.words == ("b", "a", "<eos>", "c", "<unk>")
    assert corpus.vocabulary.unknown == "<unk>"
    assert [len(corpus.split(split)) for split in ("train", "validation", "test")] == [6, 4, 2]
    assert corpus.name == "texts"
    assert corpus.train.dtype == np.int32


def test_characters_are_unchanged(texts):
    folder = texts(train_txt="ab\n  a\n", valid_txt="b\nx", test_txt="\u00e4a")
    corpus = language.load(folder, "character")
    assert words(corpus) == ["a", "b", "<eos>", " ", " ", "a", "<eos>"]
    assert words(corpus, "validation") == ["b", "<eos>", "<unk>", "<eos>"]
    assert words(corpus, "test") == ["<unk>", "a", "<eos>"]
    assert corpus.vocabulary.words == ("a", "b", "<eos>", " ", "<unk>")
    assert corpus.vocabulary.text(corpus.train) == "ab\n  a\n"


@pytest.mark.parametrize(
    "names",
    [
        ("train_txt", "valid_txt", "test_txt"),
        ("train", "dev", "test"),
        ("wiki_train_tokens", "wiki_valid_tokens", "wiki_test_tokens"),
        ("train__a_txt", "validation__a_txt", "test__a_txt"),
    ],
)
def test_parts_by_the_names_of_files(texts, names):
    corpus = language.load(texts(**dict(zip(names, ("a b", "a c", "b"), strict=True))))
    assert words(corpus) == ["a", "b", "<eos>"]
    assert words(corpus, "validation") == ["a", "<unk>", "<eos>"]
    assert words(corpus, "test") == ["b", "<eos>"]


def test_parts_by_patterns(texts):
    folder = texts(x1_txt="a", x2_txt="b", y_txt="c", z_txt="a")
    corpus = language.load(folder, split={"train": "x*.txt", "validation": ["y.txt"], "test": ["z.txt"]})
    assert words(corpus) == ["a", "<eos>", "b", "<eos>"]
    assert words(corpus, "validation") == ["<unk>", "<eos>"]
    assert words(corpus, "test") == ["a", "<eos>"]


def test_by_default_a_tenth_is_for_validation_and_test(texts):
    corpus = language.load(texts(a_txt="w " * 999))
    assert [len(corpus.split(split)) for split in ("train", "validation", "test")] == [900, 50, 50]


def test_rare_words_become_unknown(texts):
    folder = texts(train_txt="a b a c\nb a <unk> d\n", valid_txt="a d", test_txt="b e")
    corpus = language.load(folder, least=2)
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>")
    assert words(corpus) == ["a", "b", "a", "<unk>", "<eos>", "b", "a", "<unk>", "<unk>", "<eos>"]
    assert words(corpus, "test") == ["b", "<unk>", "<eos>"]


def test_the_line_end_is_never_rare(texts):
    corpus = language.load(texts(train_txt="a a a", valid_txt="a", test_txt="b"), least=2)
    assert corpus.vocabulary.words == ("a", "<eos>", "<unk>")


def test_case_is_kept_by_default(texts):
    folder = texts(train_txt="The the", valid_txt="THE", test_txt="the")
    assert language.load(folder).vocabulary.words == ("The", "the", "<eos>", "<unk>")
    assert language.load(folder, lower=True).vocabulary.words == ("the", "<eos>", "<unk>")


def test_other_line_ends_and_byte_order_marks(texts):
    folder = texts(train_txt="\ufeffa\r\nb\rc", valid_txt="a", test_txt="b")
    assert words(language.load(folder)) == ["a", "<eos>", "b", "<eos>", "c", "<eos>"]


def test_other_encodings(texts):
    folder = texts(train_txt="caf\u00e9".encode("latin-1"), valid_txt="a", test_txt="b")
    assert language.load(folder, encoding="latin-1").vocabulary.words[0] == "caf\u00e9"
    wide = {"train_txt": "caf\u00e9", "valid_txt": "a", "test_txt": "b"}
    folder = texts(**{name: text.encode("utf-16") for name, text in wide.items()})
    assert language.load(folder, encoding="utf-16").vocabulary.words[0] == "caf\u00e9"


def test_long_texts_are_read_in_pieces(texts, monkeypatch):
    from remanence.language import numbering

    text = "".join(f"w{n % 13} w{n % 7}\n" * (n % 3) + "\n" for n in range(200))
    folder = texts(train_txt=text, valid_txt="w1", test_txt="w2")
    whole = language.load(folder)
    monkeypatch.setattr(numbering, "PIECE", 20)
    pieces = language.load(folder, least=1, encoding="latin-1")  # another key, so that it is read again
    assert pieces.vocabulary == whole.vocabulary
    assert np.array_equal(pieces.train, whole.train)


def test_counts(texts):
    corpus = language.load(texts(train_txt="a b a\n", valid_txt="a", test_txt="c b"))
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>")
    assert corpus.counts("train").tolist() == [2, 1, 1, 0]
    assert corpus.counts("all").tolist() == [3, 2, 3, 1]
    assert corpus.counts("test").tolist() == [0, 1, 1, 1]
    assert corpus.counts().dtype == np.int64
    assert "4 words, 4 / 2 / 3 tokens" in repr(corpus)
    with pytest.raises(ValueError, match="expected split to be one of train, validation, test"):
        corpus.split("training")


@pytest.mark.parametrize("level", ["word", "character"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"caf\xe9 noir", r"bad\.txt to be text in utf-8, got byte 0xe9 at position 3; save it"),
        ("text".encode("utf-16"), r"bad\.txt to be text in utf-8, got byte 0xff at position 0"),
        ("text".encode("utf-16-le"), r"bad\.txt to be plain text in utf-8, got zero bytes"),
        (b"", r"expected text in .*bad\.txt, got an empty file"),
        (b" \n\n", r"expected text in .*bad\.txt, got an empty file"),
    ],
)
def test_a_bad_file_is_named(texts, level, content, message):
    with pytest.raises(DataError, match=message):
        language.load(texts(a_txt="good", bad_txt=content), level)


def test_invalid_folders(texts, tmp_path):
    (tmp_path / "empty").mkdir()
    file = tmp_path / "a.txt"
    file.write_text("x")
    with pytest.raises(DataError, match=r"expected text files in .*empty, got an empty folder"):
        language.load(tmp_path / "empty")
    with pytest.raises(DataError, match=r"to be a folder of text files, got a file"):
        language.load(file)
    with pytest.raises(DataError, match=r"nowhere to be a folder of text files, got nothing there"):
        language.load(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"expected text for validation in .*, got none"):
        language.load(texts(a_txt="one"))


def test_test_text_never_slips_into_the_training_part(texts):
    folder = texts(train_txt="a", test_txt="b")
    with pytest.raises(DataError, match="got none for validation; change that or set split="):
        language.load(folder)
    texts(valid_txt="c", readme_md="d")
    with pytest.raises(DataError, match=r"only, got .*readme\.md too"):
        language.load(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": (0.5, 0.5)}, "three fractions above 0 that sum to 1"),
        ({"split": (0.9, 0.1, 0.0)}, "three fractions above 0 that sum to 1"),
        ({"split": (0.9, 0.2, 0.1)}, "three fractions above 0 that sum to 1"),
        ({"split": 0.9}, "three fractions above 0 that sum to 1, got 0.9"),
        ({"split": {"train": "*"}}, "files for train, validation, test, got train"),
        ({"split": {"train": "*", "validation": "a*", "test": "b*"}}, "every file in one split only, got .*a.txt"),
        ({"split": {"train": "a*", "validation": "b*", "test": "c*"}}, r"files like 'c\*' for test in .*, found none"),
        ({"level": "byte"}, "level to be word or character, got 'byte'"),
        ({"least": 0}, "least to be at least 1, got 0"),
        ({"encoding": "utf-99"}, "a Python codec, such as utf-8, got 'utf-99'"),
        ({"data": "."}, "data= only with a named corpus"),
    ],
)
def test_wrong_options(texts, options, message):
    with pytest.raises(ValueError, match=message):
        language.load(texts(a_txt="one", b_txt="two"), **options)


# What is kept


def kept(tmp_path):
    return sorted((tmp_path / "cache" / "language").iterdir())


@pytest.fixture
def never_numbers(monkeypatch):
    def fail(*arguments):
        raise AssertionError("read again")

    def forbid():
        monkeypatch.setattr("remanence.language.folder.Folder.number", fail)

    return forbid


def test_it_is_encoded_once_and_memory_mapped(texts, tmp_path, never_numbers):
    folder = texts(train_txt="a b \u00e4", valid_txt="a", test_txt="b")
    first = language.load(folder)
    never_numbers()
    again = language.load(str(folder))
    assert isinstance(again.train, np.memmap)
    assert not again.train.flags.writeable
    assert again.vocabulary == first.vocabulary
    assert np.array_equal(again.train, first.train)
    (place,) = kept(tmp_path)
    assert sorted(path.name for path in place.iterdir()) == ["corpus.json", "test.npy", "train.npy", "validation.npy"]
    description = json.loads((place / "corpus.json").read_text(encoding="utf-8"))
    assert description["vocabulary"]["words"] == ["a", "b", "\u00e4", "<eos>", "<unk>"]


def test_other_texts_and_options_are_cached_separately(texts, tmp_path):
    folder = texts(train_txt="a B", valid_txt="a", test_txt="B")
    language.load(folder)
    for options in ({"level": "character"}, {"lower": True}, {"least": 2}, {"split": (0.4, 0.3, 0.3)}):
        language.load(folder, **options)
    assert len(kept(tmp_path)) == 5
    texts(train_txt="a B c")
    assert "c" in language.load(folder).vocabulary
    assert len(kept(tmp_path)) == 6


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train.npy", lambda content: content[:-4]),
        ("train.npy", lambda content: content[:-1] + b"\x01"),
        ("test.npy", lambda content: b""),
        ("validation.npy", None),
        ("corpus.json", None),
        ("corpus.json", lambda content: content[:20]),
        ("corpus.json", lambda content: content.replace(b'"b"', b'"x"')),
        ("corpus.json", lambda content: b"[]"),
        ("corpus.json", lambda content: b'{"checksums": {}}'),
    ],
)
def test_damaged_cache_files_are_rebuilt(texts, tmp_path, name, damage):
    folder = texts(train_txt="a b", valid_txt="a", test_txt="b")
    first = language.load(folder)
    expected = [words(first, split) for split in ("train", "validation", "test")]
    path = kept(tmp_path)[0] / name
    before = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(before))
    again = language.load(folder)
    assert [words(again, split) for split in ("train", "validation", "test")] == expected
    assert path.read_bytes() == before


def test_an_unwritable_cache_folder_is_one_sentence(texts, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set REMANENCE_CACHE to another folder"):
        language.load(texts(train_txt="a b", valid_txt="a", test_txt="b"))


def test_a_failure_leaves_nothing_behind(texts, tmp_path):
    with pytest.raises(DataError):
        language.load(texts(train_txt="a", valid_txt=b"\xff", test_txt="b"))
    assert not (tmp_path / "cache" / "language").exists()
