"""Leases: exactly one process holds each, for as long as it lives."""

import json
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_sweeps import until

from remanence.sweeps import lease
from remanence.sweeps.lease import take

MANY = 12


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases" / "unit"


def age(path, seconds):
    """As if nobody had touched it for so long."""
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def at_once(work):
    """What many threads get that do the same at the same time."""
    barrier = threading.Barrier(MANY)

    def one(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(one, range(MANY)))


def test_a_lease_belongs_to_one_owner_until_it_is_given_back(path):
    first = take(path, "a")
    assert (first.owner, lease.look(path)) == ("a", ("a", first.nonce))
    assert lease.is_held(path)
    assert take(path, "b") is None
    first.give_back()
    assert lease.look(path) is None
    assert not lease.is_held(path)
    assert take(path, "b").owner == "b"


def test_only_one_of_many_threads_gets_a_new_lease(path):
    for round_ in range(10):
        fresh = path.with_name(f"unit-{round_}")
        (one,) = [found for found in at_once(lambda number, at=fresh: take(at, str(number))) if found]
        assert lease.look(fresh) == (one.owner, one.nonce)


def test_only_one_of_many_threads_takes_over_an_expired_lease(path):
    for round_ in range(10):
        old = path.with_name(f"unit-{round_}")
        take(old, "gone")
        age(old, 100)
        (one,) = [found for found in at_once(lambda number, at=old: take(at, str(number), 30.0)) if found]
        assert lease.look(old) == (one.owner, one.nonce)


def test_only_one_of_many_threads_takes_over_after_a_killed_takeover(path):
    for round_ in range(10):
        old = path.with_name(f"unit-{round_}")
        right = old.with_name(f"{old.name}.after-{take(old, 'gone').nonce}-0")
        take(right, "gone, too")
        age(old, 100)
        age(right, 100)
        found = [one for one in at_once(lambda number, at=old: take(at, str(number), 30.0)) if one]
        while not found:  # all but one may have seen the right of another: then somebody asks again
            found = [one for one in [take(old, "later", 30.0)] if one]
        (one,) = found
        assert lease.look(old) == (one.owner, one.nonce)


def take_in_process(path, ready, gate, answers):
    ready.release()
    gate.wait()
    found = take(path, str(os.getpid()), 30.0)
    answers.put(None if found is None else found.nonce)


@pytest.mark.long
@pytest.mark.parametrize("expired", [False, True])
def test_only_one_of_many_processes_gets_it(path, expired):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["remanence.sweeps.lease"])
    if expired:
        take(path, "gone")
        age(path, 100)
    ready, gate, answers = context.Semaphore(0), context.Event(), context.Queue()
    workers = [context.Process(target=take_in_process, args=(path, ready, gate, answers)) for _ in range(6)]
    for worker in workers:
        worker.start()
    assert all(ready.acquire(timeout=120) for _ in workers)
    gate.set()
    found = [answers.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(120)
    (nonce,) = [one for one in found if one]
    assert lease.look(path)[1] == nonce


def test_a_lease_expires(path):
    take(path, "a")
    age(path, 10)
    assert lease.is_held(path, 20.0)
    assert take(path, "b", 20.0) is None
    age(path, 30)
    assert not lease.is_held(path, 20.0)
    assert take(path, "b", 20.0).owner == "b"


def test_an_owner_with_the_same_name_takes_over_at_once(path):
    first = take(path, "a")
    second = take(path, "a")
    assert first.nonce != second.nonce
    assert lease.look(path) == ("a", second.nonce)
    first.give_back()
    assert lease.look(path) == ("a", second.nonce)


def test_no_temporary_files_are_left_beside_a_lease(path):
    take(path, "a")
    age(path, 100)
    take(path, "b", 30.0)
    assert take(path, "c", 30.0) is None
    assert [file.name for file in path.parent.iterdir()] == ["unit"]


def test_a_live_owner_keeps_its_lease(path):
    lost = threading.Event()
    first = take(path, "a", 1.0)
    first.keep(lost.set)
    for _ in range(3):
        age(path, 1000)
        until(lambda: lease.age(path) < 500, 30)  # touched
        assert lease.look(path) == ("a", first.nonce)
        assert take(path, "b", 100.0) is None
    first.give_back()
    assert not path.exists()
    assert not lost.is_set()
    assert not first.lost


def test_an_owner_that_gave_it_back_stops_touching_it(path):
    before = threading.active_count()
    first = take(path, "a", 0.2)
    first.keep(lambda: None)
    assert threading.active_count() == before + 1
    first.give_back()
    assert threading.active_count() == before


@pytest.mark.parametrize("how", ["taken", "removed"])
def test_an_owner_that_lost_it_is_notified_once_and_leaves_it_alone(path, how):
    told = []
    first = take(path, "a", 0.2)
    first.keep(lambda: told.append(first.lost))
    if how == "removed":
        path.unlink()
        until(lambda: told, 30)
    second = take(path, "a")
    until(lambda: told, 30)
    first.give_back()
    assert told == [True]
    assert lease.look(path) == ("a", second.nonce)


def test_an_owner_that_returns_too_late_leaves_it_to_the_new_one(path):
    first = take(path, "a")
    age(path, 100)
    second = take(path, "b", 30.0)
    first.give_back()
    assert lease.look(path) == ("b", second.nonce)


@pytest.mark.parametrize("content", [b"", b'{"owner": "a"', b'{"owner": "a"}', b"[]", b"\xff\xfe", b"null"])
def test_a_half_written_lease_is_held_until_it_expires(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    assert lease.look(path) == ("", "")
    assert take(path, "b", 30.0) is None
    age(path, 100)
    second = take(path, "b", 30.0)
    assert lease.look(path) == ("b", second.nonce)


def test_a_lease_works_on_file_systems_without_hard_links(path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    first = take(path, "a")
    assert json.loads(path.read_text()) == {"owner": "a", "nonce": first.nonce}
    assert take(path, "b") is None
    (one,) = [found for found in at_once(lambda number: take(path.with_name("other"), str(number))) if found]
    assert lease.look(path.with_name("other")) == (one.owner, one.nonce)


def test_on_a_read_only_file_system_the_local_clock_is_used(path, monkeypatch):
    take(path, "a")
    age(path, 100)

    def refuse(*_, **__):
        raise PermissionError("read-only")

    monkeypatch.setattr("pathlib.Path.touch", refuse)
    assert 95 < lease.age(path) < 200
    assert not lease.is_held(path, 30.0)


def test_a_takeover_by_another_process_is_waited_for(path):
    gone = take(path, "gone")
    age(path, 100)
    right = path.with_name(f"unit.after-{gone.nonce}-0")
    take(right, "another")
    assert take(path, "b", 30.0) is None
    age(right, 100)
    assert take(path, "b", 30.0).owner == "b"
    assert not right.exists()
