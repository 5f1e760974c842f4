"""The order of sequences, and that batches of all replicas at once equal those of each replica."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remanence.tasks import Adding, Copy, CopyVariable, Dyck2, Frequency, Pixels
from remanence.tasks.base import Batch, side_by_side
from remanence.training import batches
from remanence.training.batches import Batches, Order, ready_made
from remanence.training.evaluation import picked

CPU = torch.device("cpu")
SEEDS = (1, 2, 3)
TASKS = [
    Copy(delay=3, train_size=40),
    Copy(delay=3, form="cues", train_size=None),
    CopyVariable(shortest=2, longest=5, train_size=40),
    CopyVariable(shortest=2, longest=5, train_size=None),
    Adding(length=6, train_size=40),
    Adding(length=7),
    Frequency(train_size=40),
    Frequency(sampling="sync-0.1", time_input=True),
    Frequency(sampling="async", train_size=40),
    Frequency(sampling="async", periods="log-uniform"),
    Pixels(data="digits", train_size=40),
    Dyck2(longest=20, train_size=40, validation_size=10, test_size=0),
]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.train_size}")


class Numbered:
    """A source whose sequences are their numbers."""

    def __init__(self, size):
        self.size = size

    def pick(self, numbers):
        return Batch(numbers, numbers)

    def draw(self, count, generator):
        numbers = torch.randint(1000, (count,), generator=generator)
        return Batch(numbers, numbers)


def take(order, count):
    return [order.next().inputs.tolist() for _ in range(count)]


@given(batch=st.integers(1, 7), batches=st.integers(1, 6), rest=st.integers(0, 6))
def test_a_pass_has_every_sequence_at_most_once_in_full_batches(batch, batches, rest):
    size = batch * batches + rest % batch
    order = Order(Numbered(size), batch, 1, CPU)
    for _ in range(3):
        rows = take(order, batches)
        assert all(len(row) == batch for row in rows)
        flat = list(chain(*rows))
        assert len(set(flat)) == len(flat) == batch * batches
        assert set(flat) <= set(range(size))


def test_without_shuffling_every_pass_is_in_the_order_of_the_set():
    order = Order(Numbered(11), 5, 1, CPU, shuffle=False)
    assert take(order, 4) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2
    again = Order(Numbered(11), 5, 1, CPU, shuffle=False)
    again.resume_at(order.generator_state, 1)
    assert take(again, 2) == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]


def test_every_pass_has_another_order_and_every_seed_its_own():
    order = Order(Numbered(50), 10, 1, CPU)
    first, second = take(order, 5), take(order, 5)
    assert first != second
    assert take(Order(Numbered(50), 10, 2, CPU), 5) != first
    assert take(Order(Numbered(50), 10, 1, CPU), 5) == first


@pytest.mark.parametrize("size", [None, 12, 13])
@given(before=st.integers(0, 9))
def test_an_order_resumes_where_another_stopped(size, before):
    order = Order(Numbered(size), 4, 1, CPU)
    take(order, before)
    state, position = order.generator_state.clone(), order.position
    expected = take(order, 8)
    other = Order(Numbered(size), 4, 99, CPU)
    take(other, 2)
    other.resume_at(state, position)
    assert take(other, 8) == expected


def test_a_stream_is_read_in_lanes():
    order = Order(Numbered(7), 2, 1, CPU, stateful=True)
    assert order.at_start
    assert take(order, 3) == [[0, 3], [1, 4], [2, 5]]
    assert order.at_start
    assert take(order, 2) == [[0, 3], [1, 4]]
    assert not order.at_start


def test_an_endless_stream_is_refused():
    with pytest.raises(ValueError, match=r"^expected a task with a fixed number of sequences for stateful training"):
        Order(Numbered(None), 2, 1, CPU, stateful=True)


def orders(task, seeds=SEEDS):
    return [Order(task.source("train", seed, CPU), 5, seed, CPU) for seed in seeds]


def expect_equal(found, expected):
    for name, value in vars(expected).items():
        other = getattr(found, name)
        assert (value is None) == (other is None)
        if value is not None:
            assert other.dtype == value.dtype
            assert torch.equal(other, value), name
            assert other.is_contiguous(), name


@every_task
@pytest.mark.parametrize("size", [1, 1000, batches.PREFETCH_BYTES], ids=lambda size: f"{size}-bytes-ahead")
def test_batches_of_all_replicas_equal_those_of_each(task, size, monkeypatch):
    monkeypatch.setattr(batches, "PREFETCH_BYTES", size)
    alone, together = orders(task), orders(task)
    draws = Batches(together)
    for _ in range(20):  # more than two passes
        expect_equal(draws.next().shown(), side_by_side([order.next() for order in alone]))
        for order, other in zip(together, alone, strict=True):  # what a checkpoint holds
            assert order.position == other.position
            assert torch.equal(order.generator_state, other.generator_state)


@every_task
def test_a_drawn_batch_has_the_same_shapes_every_time(task):
    draws = Batches(orders(task))
    shapes = {tuple(part.shape for part in draws.next().parts) for _ in range(20)}
    assert len(shapes) == 1


def test_replicas_may_be_at_different_places():
    alone, together = orders(TASKS[0]), orders(TASKS[0])
    for first, *_ in (alone, together):
        for _ in range(3):
            first.next()
    draws = Batches(together)
    for _ in range(20):
        expect_equal(draws.next().shown(), side_by_side([order.next() for order in alone]))


def test_an_order_that_jumps_is_followed():
    alone, together = orders(TASKS[0]), orders(TASKS[0])
    draws = Batches(together)
    draws.next()
    for all_orders in (alone, together):
        for order, other in zip(all_orders, orders(TASKS[0], (7, 8, 9)), strict=True):
            order.resume_at(other.generator_state, 4)
    for _ in range(6):
        expect_equal(draws.next().shown(), side_by_side([order.next() for order in alone]))


def test_look_ups_are_for_many_batches(monkeypatch):
    draws = Batches(orders(TASKS[0]))
    calls = []
    monkeypatch.setattr(batches.Prefetch, "_look_up", count(calls, batches.Prefetch._look_up))
    for _ in range(16):  # two passes
        draws.next()
    assert len(calls) == 2


def count(calls, function):
    def counted(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return counted


class Numbers:
    """A source that makes whole batches and nothing less: here of the numbers themselves."""

    size = 40

    def pick(self, numbers):
        return Batch(numbers.float().expand(3, -1).unsqueeze(-1).contiguous(), numbers)


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_ready_made_batches_are_put_side_by_side(seeds):
    alone, together = ([Order(Numbers(), 5, seed, CPU) for seed in seeds] for _ in range(2))
    draws = Batches(together)
    for _ in range(3):
        expect_equal(draws.next().shown(), side_by_side([order.next() for order in alone]))


def test_a_single_replica_draws_its_inputs_directly():
    (alone,), draws = orders(TASKS[0], (1,)), Batches(orders(TASKS[0], (1,)))
    drawn = draws.next()
    expected = side_by_side([alone.next()])
    expect_equal(drawn.shown(), expected)
    assert torch.equal(drawn.parts[0], expected.inputs)


def test_a_ready_made_batch_keeps_its_fields():
    batch = side_by_side([TASKS[2].source("train", 1, CPU).pick(torch.arange(4))])
    drawn = ready_made(batch)
    assert len(drawn.parts) == 4
    expect_equal(drawn.shown(), batch)


@every_task
@pytest.mark.parametrize("seeds", [(1,), SEEDS])
def test_evaluation_shows_all_replicas_what_each_would_see(task, seeds):
    sources = [task.source("validation", seed, CPU) for seed in seeds]
    numbers = torch.tensor([4, 0, 7])
    expect_equal(picked(sources, numbers), side_by_side([source.pick(numbers) for source in sources]))
