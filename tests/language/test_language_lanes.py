"""Layout of a stream, and its chunks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remanence.language import batches, chunks, jittered_lengths


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def test_lanes_run_down_the_columns():
    stream = batches(np.arange(11, dtype=np.int32), 3)
    assert stream.dtype == torch.int32
    assert stream.tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_read_only_stream_is_copied():
    tokens = np.arange(10, dtype=np.int32)
    tokens.flags.writeable = False
    stream = batches(tokens, 2)
    stream[0, 0] = 7
    assert tokens[0] == 0


@given(st.integers(1, 7), st.integers(2, 40), st.integers(0, 6), st.integers(1, 50))
def test_chunks_are_the_whole_stream_with_the_next_token_as_target(batch, steps, rest, length):
    tokens = np.arange(batch * steps + min(rest, batch - 1), dtype=np.int32)
    stream = batches(tokens, batch)
    assert stream.shape == (steps, batch)
    parts = list(chunks(stream, length))
    assert all(part.inputs.dtype == part.targets.dtype == torch.int64 for part in parts)
    assert all(len(part.inputs) == length for part in parts[:-1])
    assert 1 <= len(parts[-1].inputs) <= length
    assert torch.equal(torch.cat([part.inputs for part in parts]), stream[:-1])
    assert torch.equal(torch.cat([part.targets for part in parts]), stream[1:])


@given(st.integers(0, 3000), st.integers(0, 100))
def test_jittered_chunks_are_the_whole_stream(steps, seed):
    lengths = jittered_lengths(steps, seeded(seed))
    assert all(length >= 5 for length in lengths)
    parts = list(chunks(torch.zeros(max(steps, 2), 1), lengths))
    assert len(parts) == len(lengths)
    assert [len(part.inputs) for part in parts[:-1]] == lengths[:-1]
    assert sum(len(part.inputs) for part in parts) == max(steps - 1, 0)


def test_jittered_lengths_have_the_published_law():
    lengths = np.array(jittered_lengths(2_000_000, seeded()))
    full = lengths > 52
    assert full.mean() == pytest.approx(0.95, abs=0.01)
    # Without the fraction they are half a step shorter.
    assert lengths[full].mean() == pytest.approx(69.5, abs=0.2)
    assert lengths[full].std() == pytest.approx(5, abs=0.1)
    assert lengths[~full].mean() == pytest.approx(34.5, abs=0.6)


def test_jittered_lengths_depend_on_the_generator_alone():
    assert jittered_lengths(5000, seeded(1)) == jittered_lengths(5000, seeded(1))
    assert jittered_lengths(5000, seeded(1)) != jittered_lengths(5000, seeded(2))
    one, two = seeded(), seeded()
    jittered_lengths(5000, one)
    jittered_lengths(5000, two, base=200)
    assert torch.equal(one.get_state(), two.get_state())


def test_other_bases_and_a_shortest_length():
    lengths = np.array(jittered_lengths(300_000, seeded(), base=20, least=12))
    assert lengths.min() == 12
    assert np.median(lengths) == pytest.approx(19.5, abs=0.5)


def test_wrong_sizes():
    with pytest.raises(ValueError, match="batch to be at least 1, got 0"):
        batches(np.zeros(5, np.int32), 0)
    with pytest.raises(ValueError, match="at least 40 tokens for a batch of 20, got 39"):
        batches(np.zeros(39, np.int32), 20)
    with pytest.raises(ValueError, match="length to be at least 1, got 0"):
        list(chunks(torch.zeros(3, 1), 0))
    with pytest.raises(ValueError, match="least to be at least 1, got 0"):
        jittered_lengths(10, seeded(), least=0)
