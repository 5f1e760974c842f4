"""Data sets: find, download, verify and read them. Nothing is ever unpickled.

A data set is looked up in $REMANENCE_DATA/<name>/, then in <name>/ of the cache folder. If it is missing, it is
downloaded to the cache folder and verified by checksum, unless REMANENCE_OFFLINE=1. Missing or damaged files raise a
`DataError` of one sentence.
"""

from __future__ import annotations

from typing import Any

from ..files import cache_folder
from ..names import lookup
from .dataset import Counts, DataSet, File, Form
from .errors import DataError
from .folders import data_folder
from .records import Images, Reviews, Texts, WordVectors
from .sets.cifar10 import CIFAR10, cifar10
from .sets.corpora import ENWIK8, PTB, TEXT8, WIKITEXT2
from .sets.digits import DIGITS, digits
from .sets.glove import GLOVE, glove
from .sets.imdb import IMDB, imdb
from .sets.mnist import MNIST, mnist
from .writing import cached

KNOWN: dict[str, DataSet[Any]] = {
    known.name: known for known in (DIGITS, MNIST, CIFAR10, IMDB, GLOVE, PTB, WIKITEXT2, ENWIK8, TEXT8)
}


def load(name: str) -> Any:
    """Load a data set by name: `Images`, `Reviews`, `WordVectors` or `Texts`.

    Args:
        name: A name in `KNOWN`.
    """
    return lookup("data set", name, KNOWN).load()


__all__ = [
    "KNOWN",
    "Counts",
    "DataError",
    "DataSet",
    "File",
    "Form",
    "Images",
    "Reviews",
    "Texts",
    "WordVectors",
    "cache_folder",
    "cached",
    "cifar10",
    "data_folder",
    "digits",
    "glove",
    "imdb",
    "load",
    "mnist",
]
