"""Which sequences come next."""

from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remanence.tasks.base import Batch
from remanence.training.evaluation import batches
from remanence.training.order import Order

CPU = torch.device("cpu")


class Numbers:
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
    order = Order(Numbers(size), batch, 1, CPU)
    for _ in range(3):
        rows = take(order, batches)
        assert all(len(row) == batch for row in rows)
        flat = list(chain(*rows))
        assert len(set(flat)) == len(flat) == batch * batches
        assert set(flat) <= set(range(size))


def test_without_shuffling_every_pass_is_in_the_order_of_the_set():
    order = Order(Numbers(11), 5, 1, CPU, shuffle=False)
    assert take(order, 4) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2
    again = Order(Numbers(11), 5, 1, CPU, shuffle=False)
    again.go_to(order.generator_state, 1)
    assert take(again, 2) == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]


def test_every_pass_has_another_order_and_every_seed_its_own():
    order = Order(Numbers(50), 10, 1, CPU)
    first, second = take(order, 5), take(order, 5)
    assert first != second
    assert take(Order(Numbers(50), 10, 2, CPU), 5) != first
    assert take(Order(Numbers(50), 10, 1, CPU), 5) == first


@pytest.mark.parametrize("size", [None, 12, 13])
@given(before=st.integers(0, 9))
def test_an_order_goes_on_where_another_was(size, before):
    order = Order(Numbers(size), 4, 1, CPU)
    take(order, before)
    state, position = order.generator_state.clone(), order.position
    expected = take(order, 8)
    other = Order(Numbers(size), 4, 99, CPU)
    take(other, 2)
    other.go_to(state, position)
    assert take(other, 8) == expected


def test_a_stream_is_read_in_lanes():
    order = Order(Numbers(7), 2, 1, CPU, stateful=True)
    assert order.at_start
    assert take(order, 3) == [[0, 3], [1, 4], [2, 5]]
    assert order.at_start
    assert take(order, 2) == [[0, 3], [1, 4]]
    assert not order.at_start


def test_an_endless_stream_is_refused():
    with pytest.raises(ValueError, match=r"^expected a task with a fixed number of sequences for stateful training"):
        Order(Numbers(None), 2, 1, CPU, stateful=True)


@given(count=st.integers(1, 40), width=st.integers(1, 12), stateful=st.booleans())
def test_evaluation_takes_every_sequence_once(count, width, stateful):
    rows = [row.tolist() for row in batches(count, width, CPU, stateful)]
    assert sorted(chain(*rows)) == list(range(count))
    assert all(len(row) <= width for row in rows)
    if stateful:  # what stays of the lanes are the first, and each goes on where it was
        for row, later in pairwise(rows):
            assert later == [number + 1 for number in row[: len(later)]]
