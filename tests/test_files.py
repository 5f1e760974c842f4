"""Files are there whole or not at all."""

import os
import threading
import time

import pytest

from remanence import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.json"
    files.write(path, b"first, which is longer")
    files.write(path, b"second")
    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_what_was_there_stays_if_writing_fails(tmp_path, failure):
    path = tmp_path / "a.json"
    files.write(path, b"before")

    def half():
        with files.whole(path) as temporary:
            assert temporary.suffix == ".json"
            temporary.write_bytes(b"ha")
            raise failure

    with pytest.raises(failure):
        half()
    assert path.read_bytes() == b"before"
    assert names(tmp_path) == ["a.json"]


def test_two_who_write_the_same_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "summary.json"
    contents = [bytes([65 + number]) * 5000 for number in range(4)]
    problems = []

    def write(content):
        try:
            for _ in range(25):
                files.write(path, content)
                assert path.read_bytes() in contents
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert names(tmp_path) == ["summary.json"]


def test_left_overs_are_removed_by_age(tmp_path):
    old, young, other = (
        tmp_path / f".writing-{name}" for name in ("0123abcd-[a].txt", "4567abcd-[a].txt", "0123abcd-b.txt")
    )
    for path in (old, young, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (time.time() - 2 * files.LEFT_OVER,) * 2)
    files.write(tmp_path / "[a].txt", b"whole")
    assert names(tmp_path) == [young.name, "[a].txt"]
    files.remove_left_overs(tmp_path)
    assert names(tmp_path) == ["[a].txt"]


def test_appending_adds(tmp_path):
    for settled in (True, False):
        files.append(tmp_path / "lines", b"line\n", settled)
    assert (tmp_path / "lines").read_bytes() == b"line\nline\n"
