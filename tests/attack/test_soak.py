"""A short soak; `python tests/attack/soak.py` is the long one."""

import random

import pytest
from soak import EVERY, SWEEP, differences, killed, life, soak


@pytest.mark.long
def test_kills_leave_the_files_of_runs_that_nothing_stopped(tmp_path):
    said = []
    counts = soak(2, (SWEEP,), 1, tmp_path, said.append)
    assert counts.total() >= 2
    assert said[-1].startswith(f"{counts.total()} kills, ")


def test_it_would_tell():
    assert differences({"a": b"1", "b": b"2"}, {"a": b"1", "b": b"3", "c": b""}) == ["b", "c"]
    assert differences({"a": b"1"}, {"a": b"1"}) == []
    assert SWEEP in EVERY
    assert "words with averages" in EVERY


@pytest.mark.long
def test_lives_end_inside_of_writes(tmp_path):
    assert life("one", tmp_path, die_at=7).end() == -9
    assert list(tmp_path.rglob("config.yaml"))
    assert not list(tmp_path.rglob("result.json"))
    list(killed("one", tmp_path, 0.5, random.Random(0)))
    assert list(tmp_path.rglob("result.json"))
