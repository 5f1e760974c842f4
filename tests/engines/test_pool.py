"""The memory pool that consecutive training steps on a CPU share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import remanence as rm
from remanence.engines.kernels import pool
from remanence.engines.machine import memory

CPU = torch.device("cpu")
make = partial(pool.pooled, dtype=torch.float32, device=CPU)
MANY = pool.LARGE // 4


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    pool.forget()
    yield
    pool.forget()


def test_freed_memory_is_reused() -> None:
    first = make(2, MANY)
    place = first.data_ptr()
    assert make(2, MANY).data_ptr() != place  # still in use
    del first
    again = make(MANY, 2)
    assert (again.data_ptr(), again.shape) == (place, (MANY, 2))


def test_a_view_keeps_memory_in_use() -> None:
    first = make(2, MANY)
    place, part = first.data_ptr(), first[1, :3]
    del first
    assert make(2, MANY).data_ptr() != place
    del part
    assert place in {make(2, MANY).data_ptr() for _ in range(2)}


def test_much_larger_and_small_blocks_are_not_reused() -> None:
    place = make(5, MANY).data_ptr()
    assert make(2, MANY).data_ptr() != place
    assert make(3, MANY).data_ptr() == place
    kept = len(pool._kept)
    make(3)
    assert len(pool._kept) == kept


def places(pieces: Iterable[torch.Tensor]) -> list[int]:
    return [piece.data_ptr() for piece in pieces]


def test_the_pool_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST", 3 * pool.LARGE)
    held = [make(MANY) for _ in range(5)]
    assert sum(piece.nbytes() for piece in pool._kept) <= pool.MOST
    assert len(set(places(held))) == 5


def test_a_step_that_needs_more_than_the_pool_reuses_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST", 3 * pool.LARGE)

    def step() -> list[int]:
        return places([make(MANY) for _ in range(5)])

    first = step()
    assert step()[:3] == first[:3]


def test_free_blocks_of_other_sizes_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MOST", 5 * pool.LARGE)
    used = make(MANY)
    make(3, MANY)  # free at once
    large = make(7 * MANY // 2)
    assert places([large]) == [pool._kept[-1].data_ptr()]
    assert used.data_ptr() in {piece.data_ptr() for piece in pool._kept}
    assert sum(piece.nbytes() for piece in pool._kept) <= pool.MOST


def test_memory_is_what_the_machine_and_the_container_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlimited(_: Path) -> str:
        return "max\n"

    def limited(_: Path) -> str:
        return "1000000\n"

    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**20, "SC_PAGE_SIZE": 2**12}.__getitem__, raising=False)
    monkeypatch.setattr(Path, "read_text", unlimited)
    assert memory() == 2**32
    monkeypatch.setattr(Path, "read_text", limited)
    assert memory() == 1_000_000
    monkeypatch.delattr(os, "sysconf")
    assert memory() == 0


def test_threads_get_separate_blocks() -> None:
    found: list[torch.Tensor] = []

    def take() -> None:
        found.extend(make(MANY) for _ in range(4))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({piece.data_ptr() for piece in found}) == 16


def test_holding_only_the_storage_keeps_it_in_use() -> None:
    first = make(2, MANY)
    place, storage = first.data_ptr(), first.untyped_storage()
    del first
    assert make(2, MANY).data_ptr() != place
    assert storage.nbytes() == 8 * MANY


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_starts_with_an_empty_pool_even_while_the_lock_is_held() -> None:
    held = make(MANY)
    with pool._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover
            os._exit(int(make(MANY).data_ptr() == held.data_ptr()))
    assert os.waitpid(child, 0)[1] == 0


def test_two_layers_before_one_backward_pass_do_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LARGE", 1)
    layer, inputs = rm.LSTM(3, 5, gate="fast"), torch.randn(2, 6, 4, 3)

    def gradients() -> list[torch.Tensor | None]:
        layer.zero_grad()
        outputs = [layer(each)[0] for each in inputs]  # both save tensors
        sum(output.square().sum() for output in outputs).backward()
        return [weight.grad for weight in layer.parameters()]

    found = gradients()
    layer.engine = "loop"
    for one, true in zip(found, gradients(), strict=True):
        torch.testing.assert_close(one, true)


def test_a_second_step_reuses_the_memory_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "LARGE", 1)
    layer, inputs = rm.LSTM(3, 5, gate="fast"), torch.randn(6, 4, 3)
    if rm.engines.explain(layer).engine != "c++":
        pytest.skip("no C++ compiler")
    for _ in range(3):
        layer(inputs)[0].sum().backward()
    kept = {piece.data_ptr() for piece in pool._kept}
    layer(inputs)[0].sum().backward()
    assert {piece.data_ptr() for piece in pool._kept} == kept
