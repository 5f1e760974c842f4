"""`remanence data`."""

import gzip

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from remanence import data
from remanence.cli.data import command
from remanence.data.sets import mnist

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(command)


def run(*words):
    return CliRunner().invoke(app, words)


def test_all_data_sets_are_listed(own):
    done = run()
    assert done.exit_code == 0
    lines = {line.split()[0]: line for line in done.output.splitlines() if line.strip()}
    for name, known in data.KNOWN.items():
        assert known.description in lines[name]
        assert ("not found" in lines[name]) == (name != "digits")
    assert "60,000 / 10,000 images" in lines["mnist"]
    assert "929,589 / 73,760 / 82,430 words with <eos>" in lines["ptb"]
    assert str(own) in done.output
    assert str(data.cache_folder()) in done.output


def test_a_data_set_that_is_found_is_listed_with_its_folder(own):
    (own / "text8").mkdir()
    (own / "text8" / "text8").write_bytes(b"")
    assert str(own / "text8") in run().output


def test_the_counts_of_a_data_set_are_shown(own):
    done = run("digits")
    assert done.exit_code == 0
    rows = [line.split() for line in done.output.splitlines()]
    assert ["train", "1,200"] in rows
    assert ["test", "597"] in rows


@pytest.fixture
def small_mnist(own, accepting, monkeypatch):
    folder = own / "mnist"
    folder.mkdir()
    for name, shape in zip(mnist.NAMES, ((3, 28, 28), (3,), (1, 28, 28), (1,)), strict=True):
        sizes = b"".join(n.to_bytes(4, "big") for n in shape)
        raw = bytes((0, 0, 8, len(shape))) + sizes + bytes(int(np.prod(shape)))
        (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
    small = accepting(mnist.MNIST, folder, {"train": {"images": 3}, "test": {"images": 1}})
    monkeypatch.setitem(data.KNOWN, "mnist", small)
    return folder


def test_files_are_shown_as_verified(small_mnist):
    done = run("mnist")
    assert done.exit_code == 0
    assert str(small_mnist) in done.output
    assert done.output.count("sha256 as expected") == 4
    assert ["train", "3"] in [line.split() for line in done.output.splitlines()]


def test_a_damaged_file_is_one_sentence(small_mnist):
    run("mnist")
    path = small_mnist / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1])
    done = run("mnist")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"remanence: expected {path} to have checksum")
    assert done.stderr.count("\n") == 1


def test_all_data_sets_that_are_found_are_verified(small_mnist):
    result = run("--verify")
    assert result.exit_code == 0
    assert "sha256 as expected" in result.stdout
    assert "cifar-10:" not in result.stdout


def test_missing_data_are_one_sentence(own):
    done = run("cifar-10")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("remanence: expected data set 'cifar-10' in ")
    assert done.stderr.count("\n") == 1


def test_an_unknown_name_is_one_sentence(own):
    done = run("mnits")
    assert done.exit_code == 2
    assert done.stderr.strip().endswith("got 'mnits'; did you mean 'mnist'?")


def test_an_invalid_data_folder_gives_one_sentence(own, monkeypatch):
    monkeypatch.setenv("REMANENCE_DATA", str(own / "nowhere"))
    for words in ((), ("mnist",)):
        done = run(*words)
        assert done.exit_code == 2
        assert done.stderr.startswith("remanence: expected REMANENCE_DATA to be a folder")
