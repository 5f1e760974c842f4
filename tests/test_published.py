"""What looks at source distribution and wheel before they are published: it sees what is missing."""

import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "package.py"
FILES = ["CHANGELOG.md", "docs/index.md", "src/remanence/__init__.py", "src/remanence/py.typed"]
WHEEL = ["remanence/__init__.py", "remanence/py.typed", "remanence_rnn-0.1.0.dist-info/METADATA"]


@pytest.fixture
def look(tmp_path, monkeypatch):
    """A function: the answer to a source distribution and a wheel with these files."""
    spec = importlib.util.spec_from_file_location("package", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / "dist").mkdir()

    def called(*words, cwd=None):
        if words[0] == "git":
            return "\n".join(FILES)
        return f"{cwd}/remanence/__init__.py\n" if "-c" in words else ""

    monkeypatch.setattr(script, "called", called)

    def answer(source, wheel):
        with tarfile.open(tmp_path / "dist" / "remanence_rnn-0.1.0.tar.gz", "w:gz") as archive:
            for name in source:
                archive.addfile(tarfile.TarInfo(f"remanence_rnn-0.1.0/{name}"), io.BytesIO())
        with zipfile.ZipFile(tmp_path / "dist" / "remanence_rnn-0.1.0-py3-none-any.whl", "w") as archive:
            for name in wheel:
                archive.writestr(name, "")
        try:
            script.main()
        except SystemExit as refused:
            return str(refused)
        return "complete"

    return answer


def test_without_git_the_repository_is_what_is_not_ignored(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("package", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name in ("src/own.py", "src/__pycache__/own.pyc", "src/own.egg-info/PKG-INFO", ".venv/bin/python", ".ci/run"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text((SCRIPT.parents[1] / ".gitignore").read_text())
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert script.repository() == {".gitignore", ".ci/run", "src/own.py"}


def test_what_is_complete_passes(look):
    assert look([*FILES, "PKG-INFO", "setup.cfg", "src/remanence_rnn.egg-info/SOURCES.txt"], WHEEL) == "complete"


@pytest.mark.parametrize("number", range(len(FILES)))
def test_every_file_of_the_repository_is_in_the_source(look, number):
    answer = look(FILES[:number] + FILES[number + 1 :], WHEEL)
    assert answer.endswith(f"to hold every file of the repository, got 1 that differ: {FILES[number]}")


def test_nothing_else_is_in_either(look):
    assert look([*FILES, "notes.txt"], WHEEL).endswith("to hold nothing else, got 1 that differ: notes.txt")
    assert look(FILES, [*WHEEL, "tests/conftest.py"]).endswith("got 1 that differ: tests/conftest.py")


def test_every_file_of_the_package_is_in_the_wheel(look):
    assert look(FILES, WHEEL[:1]).endswith("to hold every file of the package, got 1 that differ: remanence/py.typed")
