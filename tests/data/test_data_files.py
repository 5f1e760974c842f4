"""Where files are looked up, and the errors for missing or damaged ones."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from remanence import data
from remanence.data import DataError, checksums
from remanence.data.dataset import DataSet, File, Form
from remanence.data.folders import folders

HELLO = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
OTHER = "md5:c5c47c91ba17d41b33b9e9d8d4c8d0a9"


def read(folder):
    return folder.joinpath("hello.txt").read_text()


GREETING = DataSet(
    name="greeting",
    description="a word",
    forms=(
        Form((File("hello.txt", HELLO, 5), File("note.txt", HELLO, 5, needed=False)), read),
        Form((File("hello.one", HELLO), File("hello.two", HELLO)), lambda folder: "two files"),
    ),
    counts={"all": {"letters": 5}},
    count=lambda text: {"all": {"letters": 5}},
)


def put(folder, name="hello.txt", text="hello"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def cache(own):
    return own.parent / "cache"


def test_the_data_folder_comes_before_the_cache_folder(own, cache):
    assert folders("greeting") == [own / "greeting", cache / "greeting"]
    put(cache / "greeting")
    assert GREETING.find().folder == cache / "greeting"
    put(own / "greeting")
    assert GREETING.find().folder == own / "greeting"
    assert GREETING.load() == "hello"


def test_without_a_data_folder_only_the_cache_is_searched(own, cache, monkeypatch):
    put(own / "greeting")
    monkeypatch.delenv("REMANENCE_DATA")
    assert folders("greeting") == [cache / "greeting"]
    assert GREETING.find() is None


def test_a_complete_form_in_the_cache_is_better_than_a_part_in_the_data_folder(own, cache):
    put(own / "greeting", "hello.one")
    put(cache / "greeting")
    assert GREETING.load() == "hello"


def test_an_invalid_data_folder_is_named(own, monkeypatch):
    monkeypatch.setenv("REMANENCE_DATA", str(own / "nowhere"))
    with pytest.raises(DataError, match=r"expected REMANENCE_DATA to be a folder, got .*nowhere"):
        data.mnist()


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_platforms_own_cache_folder_is_the_default(platform, monkeypatch, tmp_path):
    for name in ("REMANENCE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", platform)
    assert data.cache_folder().name == "remanence"
    assert data.cache_folder().is_relative_to(Path.home())
    monkeypatch.setenv("XDG_CACHE_HOME" if platform == "linux" else "LOCALAPPDATA", str(tmp_path))
    assert (data.cache_folder() == tmp_path / "remanence") == (platform != "darwin")
    monkeypatch.setenv("REMANENCE_CACHE", "~/elsewhere")
    assert data.cache_folder() == Path.home() / "elsewhere"


def test_what_is_missing_says_where_it_was_looked_for_and_what_to_put_there(own, cache):
    with pytest.raises(DataError) as caught:
        data.mnist()
    said = str(caught.value)
    assert "'mnist'" in said
    assert f"{own / 'mnist'} or {cache / 'mnist'}" in said
    assert "REMANENCE_OFFLINE" in said
    assert "train-images-idx3-ubyte.gz" in said
    assert "\n" not in said
    assert not cache.exists()


@pytest.mark.parametrize("name", [name for name in data.KNOWN if name != "digits"])
def test_every_data_set_can_be_missing(own, name):
    with pytest.raises(DataError, match=f"expected data set '{name}' in .*downloads are off"):
        data.load(name)


def test_a_part_of_the_files_is_noticed(own):
    put(own / "greeting", "hello.two")
    with pytest.raises(DataError, match=r"greeting lacks hello\.one"):
        GREETING.load()


def test_a_missing_package_is_named(own, monkeypatch):
    monkeypatch.setattr("remanence.data.dataset.installed", lambda package: False)
    with pytest.raises(DataError, match=r"expected package scikit-learn .*pip install 'remanence-rnn\[train\]'"):
        data.digits()


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"expected data set to be one of .*got 'cifar10'; did you mean 'cifar-10'\?"):
        data.load("cifar10")


def test_a_damaged_file_is_named(own):
    path = put(own / "greeting", text="hallo")
    with pytest.raises(DataError) as caught:
        GREETING.load()
    said = str(caught.value)
    assert str(path) in said
    assert HELLO in said
    assert "damaged" in said
    assert "delete it" in said
    assert "\n" not in said


def test_a_truncated_file_says_how_much_of_it_there_is(own):
    put(own / "greeting", text="hell")
    with pytest.raises(DataError, match="only 4 of 5 bytes"):
        GREETING.load()


def test_a_file_that_is_not_needed_is_verified_where_it_is(own):
    put(own / "greeting")
    put(own / "greeting", "note.txt", "hallo")
    with pytest.raises(DataError, match=r"note\.txt"):
        GREETING.load()


def test_a_folder_in_place_of_a_file_is_answered(own):
    (own / "greeting" / "hello.txt").mkdir(parents=True)
    with pytest.raises(DataError, match=r"expected a readable file, got .*hello\.txt"):
        GREETING.load()


def test_a_small_file_is_read_for_its_checksum_each_time(own):
    path = put(own / "greeting")
    about = path.stat()
    GREETING.load()
    path.write_text("hallo")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size
    with pytest.raises(DataError, match="damaged"):
        GREETING.load()


@pytest.fixture
def large(monkeypatch):
    """As if all files were large."""
    monkeypatch.setattr(checksums, "LARGE", 0)


def test_a_change_of_equal_size_and_time_of_a_large_file_is_found(own, large, monkeypatch):
    path = put(own / "greeting")
    about = path.stat()
    GREETING.load()
    assert checksums.remembered(path, HELLO)
    path.write_text("hallo")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert not checksums.remembered(path, HELLO)
    with pytest.raises(DataError, match="damaged"):
        GREETING.load()


def test_samples_of_a_large_file_reach_from_its_beginning_to_its_end(tmp_path):
    path = tmp_path / "large"
    content = bytearray(3 * checksums.SAMPLES * checksums.SAMPLE)
    path.write_bytes(content)
    before = checksums.sampled(path, len(content))
    for at in (0, len(content) - 1, checksums.SAMPLE // 2):
        content[at] ^= 1
        path.write_bytes(content)
        assert checksums.sampled(path, len(content)) != before
        content[at] ^= 1


def test_a_large_file_is_read_for_its_checksum_once(own, large, monkeypatch):
    put(own / "greeting")
    asked = []
    original = checksums.checksum_of
    monkeypatch.setattr(checksums, "checksum_of", lambda *words: asked.append(words) or original(*words))
    GREETING.load()
    GREETING.load()
    assert len(asked) == 1
    GREETING.load(again=True)
    assert len(asked) == 2


def test_a_file_that_changes_is_verified_again(own):
    path = put(own / "greeting")
    GREETING.load()
    path.write_text("hallo")
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="damaged"):
        GREETING.load()


def test_a_file_is_verified_again_when_another_checksum_is_expected(own):
    path = put(own / "greeting")
    checksums.verify(path, HELLO)
    with pytest.raises(DataError, match="damaged"):
        checksums.verify(path, OTHER)


def test_a_damaged_stamp_is_ignored(own, large):
    path = put(own / "greeting")
    checksums.verify(path, HELLO)
    checksums.stamp(path).write_text("{")
    assert not checksums.remembered(path, HELLO)
    checksums.verify(path, HELLO)
    assert checksums.remembered(path, HELLO)


def test_without_a_cache_folder_files_are_verified_all_the_same(own, cache):
    cache.write_text("a file where the folder should be")
    path = put(own / "greeting")
    assert GREETING.load() == "hello"
    assert not checksums.remembered(path, HELLO)


def test_every_known_file_has_a_checksum_of_a_known_length():
    for known in data.KNOWN.values():
        for form in known.forms:
            for file in form.files:
                if file.checksum is None:
                    assert file.name == "aclImdb"
                    continue
                algorithm, digest = file.checksum.split(":")
                assert len(bytes.fromhex(digest)) == {"md5": 16, "sha256": 32}[algorithm]


def test_whatever_can_be_missing_can_be_downloaded():
    for known in data.KNOWN.values():
        assert known.name == "digits" or any(form.downloadable for form in known.forms)
        for form in known.forms:
            assert all(place.startswith("http") for file in form.files for place in file.places)


def test_importing_the_package_imports_nothing_slow():
    script = "import json, sys, remanence.data; print(json.dumps([name.split('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"pooch", "requests", "sklearn", "PIL", "rich", "typer"} & set(json.loads(done.stdout)) == set()


# Files made once


def leftovers(folder):
    return [path.name for path in folder.rglob(".writing*")]


def test_a_cached_file_is_made_once(own, cache):
    made = []

    def make(path):
        made.append(path)
        np.savez(path, numbers=np.arange(3))

    path = data.cached("tokens/small.npz", make)
    assert path == cache / "tokens" / "small.npz"
    assert data.cached("tokens/small.npz", make) == path
    assert len(made) == 1
    with np.load(path) as arrays:
        assert arrays["numbers"].tolist() == [0, 1, 2]
    assert leftovers(cache) == []


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_file_that_could_not_be_made_does_not_exist(own, cache, failure):
    def make(path):
        path.write_text("half")
        raise failure

    with pytest.raises(failure):
        data.cached("half.txt", make)
    assert list(cache.iterdir()) == []


def test_what_a_killed_process_left_is_removed_in_time(own, cache):
    old = put(cache, ".writing-0123abcd-tokens.txt")
    young = put(cache, ".writing-4567abcd-tokens.txt")
    other = put(cache, ".writing-0123abcd-other.txt")
    long_ago = time.time() - 100_000
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    data.cached("tokens.txt", lambda path: path.write_text("x") and None)
    assert not old.exists()
    assert not other.exists()
    assert young.exists()


@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "", "a/../../out.txt"])
def test_a_cached_file_stays_inside_the_cache_folder(own, name):
    with pytest.raises(ValueError, match="stay inside the cache folder"):
        data.cached(name, lambda path: None)


def test_a_cache_folder_that_cannot_be_written_is_named(own, cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"expected .*cache to be a writable folder.*REMANENCE_CACHE"):
        data.cached("x.txt", lambda path: path.write_text("x") and None)


def test_a_full_disk_is_answered_and_nothing_stays(own, cache):
    def make(path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="No space left on device"):
        data.cached("x.txt", make)
    assert list(cache.iterdir()) == []
