"""What tests of several rooms share."""

import importlib.util
import os
import shutil
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from remanence import data

DOCS = Path(__file__).parents[1] / "docs"
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


@pytest.fixture(scope="session")
def real_data(tmp_path_factory):
    """A context in which a real data set is found, with one cache for all; skips where it is not there."""
    cache = tmp_path_factory.mktemp("cache")

    @contextmanager
    def present(name):
        if not REAL:
            pytest.skip("REMANENCE_DATA is not set: no real data")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REMANENCE_DATA", REAL)
            patch.setenv("REMANENCE_CACHE", str(cache))
            patch.setenv("REMANENCE_OFFLINE", "1")
            if data.KNOWN[name].find() is None:
                pytest.skip(f"{name} is not in REMANENCE_DATA")
            yield

    yield present
    shutil.rmtree(cache)  # half a gigabyte with enwik8


@pytest.fixture(scope="session")
def docs_script():
    """A function: the script of docs/ with this name, as a module."""

    def script(name):
        spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
            spec.loader.exec_module(module)
        return module

    return script


@pytest.fixture
def never_waits():
    """A context in which it is an error if the host waits for the GPU."""

    @contextmanager
    def watched():
        torch.cuda.synchronize()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Synchronization debug mode")
                torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return watched
