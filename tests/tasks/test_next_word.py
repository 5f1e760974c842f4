"""The next word of a text: perplexity, and every word counted once."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remanence import language
from remanence.tasks import KNOWN, NextWord, make
from remanence.tasks.base import side_by_side
from remanence.training.evaluation import index_batches

CPU = torch.device("cpu")
WORDS = [f"word{number}" for number in range(60)]
"""All different, so that a word is a place in the text."""


@pytest.fixture(scope="module")
def folder(own_corpus):
    """A corpus with one line of words for every split."""
    line = " ".join(WORDS) + "\n"
    return own_corpus(train=line, valid=line, test=line)


def next_word(folder, **arguments):
    return make("next-word", corpus=folder, **{"chunk": 7, **arguments})


def mean_loss(task, outputs, batch):
    score = task.scores(outputs, batch)["loss"]
    return float(score.total / score.count)


def test_it_reads_words_of_the_penn_treebank_in_chunks_of_seventy_unless_told_otherwise():
    assert KNOWN["next-word"] is NextWord
    task = make("next-word")
    assert (task.corpus, task.chunk, task.symbols, task.goal) == ("ptb", 70, 10_000, "perplexity")
    assert not task.higher_is_better


def test_perplexity_is_the_exponential_of_the_loss(folder):
    task = next_word(folder)
    batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(3))])
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(1, 7, 3, task.symbols, dtype=torch.float64, generator=generator)
    loss = mean_loss(task, outputs, batch)
    chances = outputs.softmax(-1).gather(-1, batch.targets.unsqueeze(-1))
    assert task.derived({"loss": loss})["perplexity"] == pytest.approx(float(chances.log().mean().neg().exp()))


def test_the_perplexity_of_a_uniform_prediction_is_the_vocabulary_size(folder):
    task = next_word(folder)
    source = task.source("validation", 1, CPU)
    batch = side_by_side([source.pick(torch.arange(source.size))])  # the last chunk is not full
    outputs = torch.zeros(1, *batch.targets.shape[1:], task.symbols, dtype=torch.float64)
    assert task.symbols == len(language.load(folder, "word").vocabulary)
    found = task.derived({"loss": mean_loss(task, outputs, batch)})["perplexity"]
    assert found == pytest.approx(task.symbols, rel=1e-12)
    assert task.references["perplexity"] == task.symbols


def test_a_loss_that_overflows_has_infinite_perplexity():
    assert make("next-word").derived({"loss": 1e4}) == {"perplexity": math.inf}


@settings(deadline=None, max_examples=60)
@given(chunk=st.integers(1, 59), lanes=st.integers(1, 70))
def test_every_word_but_the_first_counts_once_whatever_the_number_of_lanes(folder, chunk, lanes):
    for split in ("validation", "test"):
        source = next_word(folder, chunk=chunk).source(split, 1, CPU)
        counted = []
        for numbers in index_batches(source.size, lanes, CPU, stateful=True):
            batch = source.pick(numbers)
            counts = torch.ones_like(batch.targets, dtype=torch.bool) if batch.counts is None else batch.counts
            counted += batch.targets[counts].tolist()
        text = language.load(folder, "word").split(split)
        assert sorted(counted) == sorted(text[1:].tolist())


def test_training_uses_complete_chunks_only(folder):
    source = next_word(folder).source("train", 1, CPU)
    assert source.size == len(WORDS) // 7
    assert source.pick(torch.arange(source.size)).counts is None


def test_markov_reads_the_markov_text(folder):
    made = language.markov(language.load(folder, "word"), 3)
    for split in ("train", "validation", "test"):
        source = next_word(folder, markov=3).source(split, 1, CPU)
        assert source.stream.tokens.tolist() == made.split(split).tolist()


def test_another_seed_gives_another_markov_text(own_corpus):
    folder = own_corpus(all="a b a c b a b c c a b a\n" * 20)
    streams = [next_word(folder, markov=seed).source("train", 1, CPU).stream.tokens for seed in (None, 1, 2)]
    assert len({tuple(tokens.tolist()) for tokens in streams}) == 3
    assert len({len(tokens) for tokens in streams}) == 1
