"""A data set: files with known names and checksums, a reader, and expected counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os.path import exists  # Path.exists raises for folders without permission
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
"""Counts by split and unit: {"train": {"images": 60000}, ...}."""


@dataclass(frozen=True)
class File:
    """A file of a data set."""

    name: str
    """Its path inside the folder of the data set."""
    checksum: str | None
    """Algorithm and digest, "sha256:..."; None for a folder, whose reader verifies its content."""
    size: int | None = None
    """Bytes."""
    places: tuple[str, ...] = ()
    """Download URLs."""
    needed: bool = True
    """Whether the data set is incomplete without it. Optional files are verified if they exist."""


@dataclass(frozen=True)
class Form(Generic[Data]):
    """One form of a data set: files that contain all of it."""

    files: tuple[File, ...]
    """The files of this form."""
    read: Callable[[Path], Data]
    """Reads the folder of the data set, whose files were verified."""
    counts: Counts | None = None
    """Expected counts, if they differ from those of the data set."""
    package: str = ""
    """Name of the Python package that contains the data, if there are no files."""

    @property
    def needed(self) -> tuple[File, ...]:
        """The required files."""
        return tuple(file for file in self.files if file.needed)

    @property
    def downloadable(self) -> bool:
        """Whether every required file has a download URL."""
        return bool(self.needed) and all(file.places for file in self.needed)

    def missing(self, folder: Path) -> list[str]:
        """Names of the required files that are missing."""
        if self.package:
            return [] if installed(self.package) else [self.package]
        return [file.name for file in self.needed if not exists(folder / file.name)]


class Located(NamedTuple, Generic[Data]):
    """A form of a data set and the folder that contains it."""

    form: Form[Data]
    folder: Path

    @property
    def where(self) -> str:
        """The location as text for people."""
        return f"package {self.form.package}" if self.form.package else str(self.folder)

    @property
    def files(self) -> list[tuple[File, Path]]:
        """The files that exist."""
        paths = [(file, self.folder / file.name) for file in self.form.files]
        return [(file, path) for file, path in paths if exists(path)]


@dataclass(frozen=True)
class DataSet(Generic[Data]):
    """A data set in all its forms."""

    name: str
    """Name of the data set and of its folder."""
    description: str
    """One line for `remanence data`."""
    forms: tuple[Form[Data], ...]
    """In order of preference."""
    counts: Counts
    """The expected counts."""
    count: Callable[[Data], Counts]
    """Counts the data that was read."""

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
            again: whether to verify large files again that were verified before.
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
                        assert file.checksum is not None  # every downloadable file has one
                        download(folder / file.name, file.checksum, file.places)
            except DataError as error:
                failures.append(str(error))
            else:
                return Located(form, folder)
        raise DataError(self.missing("; ".join(dict.fromkeys(failures))))

    def missing(self, reason: str) -> str:
        """The error message for a data set that was not found."""
        form = next((form for form in self.forms if form.downloadable), self.forms[0])
        if form.package:
            return f"expected package {form.package} for {self.name!r}, got none; pip install 'remanence-rnn[train]'"
        looked = folders(self.name)
        # A folder with only some of the files is probably the intended one.
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
            f"that contains {self.name}/"
        )

    def load(self, *, again: bool = False) -> Data:
        """Find or download the files, verify them and read them.

        Args:
            again: whether to verify large files again that were verified before.
        """
        found = self.get(again=again)
        try:
            data = found.form.read(found.folder)
        except DataError:
            raise
        except (OSError, ValueError, *DAMAGED) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DataError(f"expected readable files in {found.folder}, got: {reason}; copy them again") from None
        expected, counted = found.form.counts or self.counts, self.count(data)
        if counted != expected:
            raise DataError(
                f"expected data set {self.name!r} to have {dict(expected)}, got {dict(counted)} in {found.where}; "
                "replace its files"
            )
        return data


def installed(package: str) -> bool:
    """Whether a Python package is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
