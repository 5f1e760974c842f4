"""What a data set is: files under known names with known checksums, a reader, and known counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os.path import exists  # Path.exists raises where a folder may not be looked into
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from ..files import cache_folder
from .archives import DAMAGED
from .checksums import verify
from .download import download
from .errors import DataError
from .folders import folders, offline

Data = TypeVar("Data")
Counts = Mapping[str, Mapping[str, int]]
"""Numbers by split and by what is counted: {"train": {"images": 60000}, ...}."""


@dataclass(frozen=True)
class File:
    """A file of a data set."""

    name: str
    """Its path inside the folder of the data set."""
    checksum: str | None
    """Algorithm and digest, "sha256:..."; None for a folder, whose reader looks after the content."""
    size: int | None = None
    """Bytes."""
    places: tuple[str, ...] = ()
    """Where it can be downloaded."""
    needed: bool = True
    """Whether the data set is incomplete without it. Other files are verified where they are found."""


@dataclass(frozen=True)
class Form(Generic[Data]):
    """One of the forms in which a data set comes: files that hold all of it."""

    files: tuple[File, ...]
    read: Callable[[Path], Data]
    """From the folder of the data set, whose files were verified."""
    counts: Counts | None = None
    """Where they differ from those of the data set."""
    package: str = ""
    """Name of the Python package that brings the data, where no files do."""

    @property
    def needed(self) -> tuple[File, ...]:
        """The files without which the form is incomplete."""
        return tuple(file for file in self.files if file.needed)

    @property
    def downloadable(self) -> bool:
        """Whether there is a place for every needed file."""
        return bool(self.needed) and all(file.places for file in self.needed)

    def missing(self, folder: Path) -> list[str]:
        """Names of what is needed and not there."""
        if self.package:
            return [] if installed(self.package) else [self.package]
        return [file.name for file in self.needed if not exists(folder / file.name)]


class Located(NamedTuple, Generic[Data]):
    """A form of a data set and the folder that has it."""

    form: Form[Data]
    folder: Path

    @property
    def where(self) -> str:
        """For people."""
        return f"package {self.form.package}" if self.form.package else str(self.folder)

    @property
    def files(self) -> list[tuple[File, Path]]:
        """The files that are there."""
        paths = [(file, self.folder / file.name) for file in self.form.files]
        return [(file, path) for file, path in paths if exists(path)]


@dataclass(frozen=True)
class DataSet(Generic[Data]):
    """A data set in all its forms."""

    name: str
    description: str
    forms: tuple[Form[Data], ...]
    """In the order in which they are preferred."""
    counts: Counts
    """The known figures."""
    count: Callable[[Data], Counts]
    """Counts what was read."""

    def find(self) -> Located[Data] | None:
        """The first complete form in the first folder that has one."""
        for folder in folders(self.name):
            for form in self.forms:
                if not form.missing(folder):
                    return Located(form, folder)
        return None

    def get(self, *, again: bool = False) -> Located[Data]:
        """Find or download the files, and verify them.

        Args:
            again: whether to read files again that were verified before.
        """
        found = self.find() or self.fetch()
        for file, path in found.files:
            if file.checksum is not None:
                verify(path, file.checksum, file.size, again=again)
        return found

    def fetch(self) -> Located[Data]:
        """Download a form into the cache folder."""
        forms = [form for form in self.forms if form.downloadable]
        if not forms or offline():
            raise DataError(self.missing("downloads are off (REMANENCE_OFFLINE)" if forms else ""))
        folder = cache_folder() / self.name
        failures = []
        for form in forms:
            try:
                for file in form.needed:
                    if not exists(folder / file.name):
                        assert file.checksum is not None  # what can be downloaded has one
                        download(folder / file.name, file.checksum, file.places)
            except DataError as error:
                failures.append(str(error))
            else:
                return Located(form, folder)
        raise DataError(self.missing("; ".join(dict.fromkeys(failures))))

    def missing(self, reason: str) -> str:
        """The sentence for a data set that was not found."""
        form = next((form for form in self.forms if form.downloadable), self.forms[0])
        if form.package:
            return f"expected package {form.package} for {self.name!r}, got none; pip install 'remanence-rnn[train]'"
        looked = folders(self.name)
        # A folder with a part of the files is where somebody meant them all to be.
        parts = [
            f"{folder} lacks {', '.join(lacks)}"
            for folder in looked
            for lacks, needs in ((form.missing(folder), form.needed) for form in self.forms)
            if len(lacks) < len(needs)
        ]
        return (
            f"expected data set {self.name!r} in {' or '.join(map(str, looked))}, found none"
            + "".join(f"; {words}" for words in [*parts[:1], reason] if words)
            + f"; put {', '.join(file.name for file in form.needed)} there, or set REMANENCE_DATA to the folder "
            f"that holds {self.name}/"
        )

    def load(self, *, again: bool = False) -> Data:
        """Find or download, verify and read.

        Args:
            again: whether to read files again that were verified before.
        """
        found = self.get(again=again)
        try:
            data = found.form.read(found.folder)
        except DataError:
            raise
        except (OSError, ValueError, *DAMAGED) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(
                f"expected files that can be read in {found.folder}, got: {reason}; copy them again"
            ) from None
        expected, counted = found.form.counts or self.counts, self.count(data)
        if counted != expected:
            raise DataError(
                f"expected data set {self.name!r} to have {dict(expected)}, got {dict(counted)} in {found.where}; "
                "replace its files"
            )
        return data


def installed(package: str) -> bool:
    """Whether a Python package is there."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
