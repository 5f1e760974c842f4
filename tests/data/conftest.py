import dataclasses

import pytest

from remanence import data
from remanence.data.checksums import checksum_of


@pytest.fixture
def accepting():
    """Makes a data set accept the small files of a test, with their checksums and counts."""

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
def real(real_data):
    """Loads a real data set once, or skips."""
    loaded = {}

    def load(name):
        with real_data(name):
            if name not in loaded:
                loaded[name] = data.load(name)
        return loaded[name]

    return load
