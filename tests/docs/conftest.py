"""Slow results are made once, also if several processes share the tests."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function: the folder of a name, which the first process to ask for it fills by `make(folder)`."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers of this run

    def folder_of(name, make):
        folder = base / f"docs-{name}"
        with FileLock(base / f"docs-{name}.lock"):
            if not (folder / ".done").exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                (folder / ".done").touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def site(made_once):
    """The folder of the site."""
    for package in ("mkdocs", "material", "mkdocstrings", "griffe"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'remanence-rnn[docs]'")
    return made_once("site", build)


def build(folder):
    # In a subprocess, because importing the theme raises a warning.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
