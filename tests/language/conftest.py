import os
import shutil

import pytest

from remanence import data, language

REAL = os.environ.get("REMANENCE_DATA")  # before any test sets it


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A data folder and a cache folder of the test's own, and no network."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("REMANENCE_DATA", str(folder))
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    return folder


@pytest.fixture
def texts(own, tmp_path):
    """Writes a folder of texts: names and contents, strings in UTF-8."""
    folder = tmp_path / "texts"

    def write(**files):
        for name, content in files.items():
            path = folder / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """Loads a real corpus once, or skips."""
    loaded = {}

    def load(name):
        if not REAL:
            pytest.skip("REMANENCE_DATA is not set: no real data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REMANENCE_DATA", REAL)
            patch.setenv("REMANENCE_CACHE", str(cache))
            patch.setenv("REMANENCE_OFFLINE", "1")
            if data.KNOWN[language.KNOWN[name].source].find() is None:
                pytest.skip(f"{language.KNOWN[name].source} is not in REMANENCE_DATA")
            if name not in loaded:
                loaded[name] = language.load(name)
        return loaded[name]

    cache = tmp_path_factory.mktemp("cache")
    yield load
    loaded.clear()
    shutil.rmtree(cache)  # half a gigabyte with enwik8
