"""Load a corpus by name or from a folder."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

from ..data.folders import looking_in
from ..names import lookup
from .corpus import Corpus
from .folder import Folder, Split
from .named import KNOWN, text8
from .vocabulary import Level


def load(
    name: str | os.PathLike[str],
    level: Level | None = None,
    data: str | os.PathLike[str] | None = None,
    *,
    split: Split | None = None,
    lower: bool = False,
    least: int = 1,
    encoding: str = "utf-8",
) -> Corpus:
    """Load a corpus. It is tokenised once and then read from the cache folder.

    Args:
        name: one of `language.KNOWN`, or the path of a folder of plain text files (`./ptb` for a folder named ptb).
        level: "word" or "character"; None for the level of the named corpus, or words for a folder.
        data: folder with one subfolder per data set, instead of REMANENCE_DATA.
        split: for a folder, how to split it, see `Folder`.
        lower: for a folder, whether to convert to lower case.
        least: for a folder, how often a word must occur in the training text; rarer words become `<unk>`.
        encoding: for a folder, the encoding of its files.
    """
    if isinstance(name, str) and name in KNOWN:
        if (split, lower, least, encoding) != (None, False, 1, "utf-8"):
            raise ValueError(
                f"expected split, lower, least and encoding only with a folder, got them with the corpus {name!r}"
            )
        with looking_in(Path(data).expanduser()) if data is not None else nullcontext():
            return named(name, level)
    path = Path(name).expanduser()
    if isinstance(name, str) and not path.exists() and path.name == name:
        lookup("corpus", name, KNOWN, ["a folder of text files"])
    if data is not None:
        raise ValueError(f"expected data= only with a named corpus, got it with the folder {path}")
    return Folder(path, level or "word", split, lower, least, encoding).load()


def named(name: str, level: Level | None) -> Corpus:
    """A corpus of `KNOWN`, or the one from the same source with another level."""
    known = KNOWN[name]
    same = {"character", "byte"} if known.level == "byte" else {known.level}
    if level is not None and level not in same:
        siblings = [other for other in KNOWN.values() if other.source == known.source and other.level == level]
        if not siblings or known.level == "byte":
            raise ValueError(f"expected level of {name!r} to be {known.level!r}, got {level!r}")
        known = siblings[0]
    return text8() if known.name == "text8" else known.load()
