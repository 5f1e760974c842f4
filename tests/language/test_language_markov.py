"""The control text."""

import numpy as np
import pytest

from remanence.language import Corpus, Vocabulary, markov


def corpus(train, validation=(0,), test=(0,), words="abcdefgh", end=True):
    names = [*words[:-1], "<eos>"] if end else list(words)
    arrays = (np.array(part, np.int32) for part in (train, validation, test))
    return Corpus("tiny", Vocabulary(names), *arrays)


def pairs(tokens, size):
    """Shares of all pairs of neighbours, `(size, size)`."""
    counts = np.bincount(tokens[:-1].astype(int) * size + tokens[1:], minlength=size * size)
    return counts.reshape(size, size) / (len(tokens) - 1)


@pytest.fixture(scope="module")
def longer():
    """A text with a memory longer than one word: every word is that of five words before, or a new one."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, 8, 5).tolist()
    fresh = random.choice(8, 100_000, p=np.arange(1, 9) / 36).tolist()
    for chance, new in zip(random.random(100_000).tolist(), fresh, strict=True):
        tokens.append(tokens[-5] if chance < 0.8 else min(tokens[-1] + 1, 7) if chance < 0.9 else new)
    return corpus(tokens, tokens[:5000], tokens[:3000])


@pytest.fixture(scope="module")
def control(longer):
    return markov(longer, 1)


def test_lengths_vocabulary_and_form_stay(longer, control):
    assert control.vocabulary is longer.vocabulary
    assert [len(part) for part in (control.train, control.validation, control.test)] == [100_005, 5000, 3000]
    assert control.train.dtype == np.int32
    assert control.name == "tiny-markov"
    assert "seed 1" in control.note


def test_pairs_are_as_frequent_as_in_the_corpus(longer, control):
    expected = pairs(longer.train, 8)
    for part, allowed in ((control.train, 0.02), (control.validation, 0.1), (control.test, 0.1)):
        assert np.abs(pairs(part, 8) - expected).sum() / 2 < allowed
    assert not np.any(pairs(control.train, 8)[expected == 0])


def test_followers_pass_a_chi_squared_test(longer, control):
    from scipy.stats import chisquare

    size = len(control.train) - 1
    found, expected = pairs(control.train, 8) * size, pairs(longer.train, 8)
    expected = expected / expected.sum(1, keepdims=True) * found.sum(1, keepdims=True)
    possible = expected > 0
    # Rows are drawn given their sums: 8 numbers of freedom fewer.
    assert chisquare(found[possible], expected[possible], ddof=7).pvalue > 0.001


def test_order_and_longer_memory_are_gone(longer, control):
    assert np.mean(longer.train[5:] == longer.train[:-5]) > 0.8
    assert np.mean(control.train[5:] == control.train[:-5]) < 0.3
    assert not np.array_equal(control.train, longer.train)


def test_seeds_and_parts_differ_and_a_seed_is_repeatable(longer):
    one, again, two = markov(longer, 1), markov(longer, 1), markov(longer, 2)
    assert np.array_equal(one.train, again.train)
    assert not np.array_equal(one.train, two.train)
    assert not np.array_equal(one.train[:3000], one.test)
    assert not np.array_equal(one.validation[:3000], one.test)


def test_the_text_begins_as_after_a_line_end():
    # <eos> is 7 and is always followed by 0 or 1; nothing else is.
    text = corpus([7, 0, 2, 7, 1, 2, 7, 0, 2, 7], [0] * 3, [0] * 3)
    starts = {int(markov(text, seed).train[0]) for seed in range(30)}
    assert starts == {0, 1}


def test_a_text_without_line_ends_begins_as_after_its_first_token():
    text = corpus([3, 1, 3, 1, 2, 3, 1], end=False)
    assert {int(markov(text, seed).train[0]) for seed in range(10)} == {1}


def test_a_token_that_only_ends_the_text_is_followed_as_a_line_end_is():
    text = corpus([0, 7, 1, 7, 5], [0] * 500)
    chain = markov(text, 3).validation
    after = chain[1:][chain[:-1] == 5]
    assert set(after.tolist()) == {1, 5}


def test_a_line_end_that_only_ends_the_text_is_followed_as_the_first_token_is():
    text = corpus([0, 1, 2, 7], [0] * 100)
    chain = markov(text, 1).validation
    assert set(zip(chain[:-1].tolist(), chain[1:].tolist(), strict=True)) == {(1, 2), (2, 7), (7, 1)}


def test_a_text_of_one_token_has_no_pairs():
    with pytest.raises(ValueError, match="at least 2 tokens, got 1"):
        markov(corpus([0]), 1)
