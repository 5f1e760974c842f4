"""Text in chunks: the next symbol of a stream."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import remanence as rm
from remanence import language
from remanence.models import SequenceModel, forward_together
from remanence.tasks import make
from remanence.tasks.base import side_by_side

CPU = torch.device("cpu")
LINES = [f"line {number} says {'abcdefgh'[number % 8] * (number % 5)} and ends" for number in range(60)]


@pytest.fixture(scope="module")
def folder(own_corpus):
    """A corpus of a few lines."""
    return own_corpus(all="\n".join(LINES) + "\n")


def text(folder, **arguments):
    return make("text", corpus=folder, level="character", **{"chunk": 7, **arguments})


def test_sequences_are_chunks_of_the_stream_and_targets_the_next_symbols(folder):
    task = text(folder)
    stream = torch.tensor(language.load(folder, "character").train.tolist())
    source = task.source("train", 1, CPU)
    assert source.size == (len(stream) - 1) // 7
    batch = source.pick(torch.tensor([0, 3]))
    for column, number in enumerate((0, 3)):
        assert batch.inputs[:, column].tolist() == stream[number * 7 : number * 7 + 7].tolist()
        assert batch.targets[:, column].tolist() == stream[number * 7 + 1 : number * 7 + 8].tolist()


@settings(deadline=None, max_examples=20)
@given(chunk=st.integers(1, 40), lanes=st.integers(1, 5))
def test_lanes_continue_where_they_ended(folder, chunk, lanes):
    source = text(folder, chunk=chunk).source("train", 1, CPU)
    per_lane = source.size // lanes
    if per_lane < 2:
        return
    first = source.pick(torch.arange(lanes) * per_lane)
    second = source.pick(torch.arange(lanes) * per_lane + 1)
    assert first.targets[-1].tolist() == second.inputs[0].tolist()


def test_one_hot_inputs_are_the_symbols(folder):
    task = text(folder, one_hot=True)
    numbers = torch.tensor([1, 2])
    shown, plain = (kind.source("train", 1, CPU).pick(numbers) for kind in (task, text(folder)))
    assert shown.inputs.shape == (7, 2, task.symbols)
    assert shown.inputs.argmax(-1).tolist() == plain.inputs.tolist()
    assert shown.inputs.sum(-1).eq(1).all()


def test_sizes_cut_a_text_short(folder):
    task = text(folder, train_size=3, validation_size=10**6)
    assert task.source("train", 1, CPU).size == 3
    assert task.source("validation", 1, CPU).size == text(folder).source("validation", 1, CPU).size


def test_bits_are_the_loss_in_base_two_and_uniform_guesses_have_the_reference(folder):
    task = text(folder)
    batch = side_by_side([task.source("train", 1, CPU).pick(torch.arange(4))])
    outputs = torch.zeros(1, 7, 4, task.symbols)
    scores = {name: float(score.total / score.count) for name, score in task.scores(outputs, batch).items()}
    assert scores["bits"] == pytest.approx(math.log2(task.symbols)) == task.references["bits"]
    assert float(task.loss(outputs, batch)) == pytest.approx(math.log(task.symbols))
    assert scores["bits"] == pytest.approx(scores["loss"] / math.log(2))


def test_a_model_with_an_embedding_runs_alone_and_in_parallel(folder):
    task = text(folder)
    models = [SequenceModel(rm.LSTM(5, 6), task.symbols, symbols=task.symbols) for _ in range(2)]
    batches = [task.source("train", 1, CPU).pick(torch.arange(3) + start) for start in (0, 4)]
    together, states = forward_together(models, side_by_side(batches).inputs)
    for number, (model, batch) in enumerate(zip(models, batches, strict=True)):
        alone, state = model(batch.inputs)
        torch.testing.assert_close(together[number], alone)
        torch.testing.assert_close(states[number], state)


def test_known_corpora_need_no_files_for_their_size():
    assert make("text", corpus="ptb-char").symbols == 50
    assert make("text", corpus="text8").symbols == 27


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk": 0}, "expected chunk"),
        ({"one_hot": 1}, "expected one_hot to be true or false"),
        ({"level": "syllable"}, "expected level to be"),
        ({"corpus": "ptb-chr"}, "did you mean 'ptb-char'"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        assert make("text", **arguments).symbols


def test_a_text_shorter_than_a_chunk_is_refused(folder):
    with pytest.raises(ValueError, match="more than 100000 symbols"):
        text(folder, chunk=100000).source("train", 1, CPU)
