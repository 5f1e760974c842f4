"""What takes long is made once, also where several processes share the tests."""

import os

import pytest
from filelock import FileLock


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
