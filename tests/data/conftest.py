import dataclasses
import os

import pytest

from remanence import data
from remanence.data.checksums import checksum_of

REAL = os.environ.get("REMANENCE_DATA")  # before any test sets it


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Folders of the test's own and no network: the data folder, whose neighbour is the cache folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("REMANENCE_DATA", str(folder))
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    return folder


@pytest.fixture
def accepting():
    """Makes a data set take the test's own small files: with their checksums and counts."""

    def accept(known, folder, counts, places=()):
        def take(file):
            path = folder / file.name
            checksum = checksum_of(path, "sha256") if path.is_file() else file.checksum
            return dataclasses.replace(file, checksum=checksum, places=places and tuple(p + file.name for p in places))

        forms = tuple(
            dataclasses.replace(form, files=tuple(map(take, form.files)), counts=None) for form in known.forms
        )
        return dataclasses.replace(known, forms=forms, counts=counts)

    return accept


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """Loads a real data set once, or skips."""
    loaded = {}

    def load(name):
        if not REAL:
            pytest.skip("REMANENCE_DATA is not set: no real data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REMANENCE_DATA", REAL)
            patch.setenv("REMANENCE_CACHE", str(cache))
            patch.setenv("REMANENCE_OFFLINE", "1")
            if data.KNOWN[name].find() is None:
                pytest.skip(f"{name} is not in REMANENCE_DATA")
            if name not in loaded:
                loaded[name] = data.load(name)
        return loaded[name]

    cache = tmp_path_factory.mktemp("cache")
    return load
