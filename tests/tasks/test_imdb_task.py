"""IMDB with GloVe."""

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from remanence import data
from remanence.tasks import IMDB, Batch, encoded, side_by_side
from remanence.tasks.encoded import encoded_once
from remanence.tasks.imdb import bin_name
from remanence.tasks.reviews import padded, word_vectors
from remanence.tasks.words import encode

CPU = torch.device("cpu")
TRAIN = ["good good film", "bad film film", "film", "", "good rare " + "film " * 60]
TEST = ["good unseen bad", "film " * 401]


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """A few reviews, vectors for some of their words, and an empty cache folder."""
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    vectors = np.arange(300, dtype=np.float32).reshape(3, 100)
    reviews = SimpleNamespace(
        train_texts=TRAIN,
        train_labels=np.array([1, 0, 1, 0, 1], dtype=np.uint8),
        test_texts=TEST,
        test_labels=np.array([0, 1], dtype=np.uint8),
    )
    monkeypatch.setattr(data, "imdb", lambda: reviews)
    monkeypatch.setattr(data, "glove", lambda: SimpleNamespace(words=["the", "film", "good"], vectors=vectors))
    return vectors


def reader(split, seed=1, **arguments):
    return IMDB(**{"validation_size": 1, "length": 4, "vocabulary": 3, **arguments}).source(split, seed, CPU)


def test_words_become_vectors_cut_and_padded_at_the_end(made_up):
    batch = reader("test").pick(torch.tensor([1, 0]))
    film, good = (torch.from_numpy(row) for row in made_up[1:])
    assert batch.inputs.shape == (4, 2, 100)
    assert batch.inputs.is_contiguous()
    assert all(torch.equal(step, film) for step in batch.inputs[:, 0])  # 401 words, of which 4 are read
    assert torch.equal(batch.inputs[0, 1], good)
    assert batch.inputs[1, 1].eq(0).all()  # unknown
    assert batch.inputs[2, 1].ne(0).all()  # known, without a vector
    assert batch.inputs[3, 1].eq(0).all()  # padding
    assert batch.lengths.tolist() == [4, 3]
    assert batch.targets.tolist() == [1, 0]
    assert batch.groups.tolist() == [8, 0]


def test_only_frequent_words_are_known(made_up):
    # film is the most frequent, then good, then bad.
    one = reader("test", vocabulary=1).pick(torch.tensor([0])).inputs[:, 0]
    assert one.eq(0).all()
    two = reader("test", vocabulary=2).pick(torch.tensor([0])).inputs[:, 0]
    assert two[0].ne(0).any()
    assert two[2].eq(0).all()


def test_words_without_a_vector_always_get_the_same_random_one():
    known = SimpleNamespace(words=["a"], vectors=np.ones((1, 100), dtype=np.float32))
    words = [f"w{n}" for n in range(500)]
    vectors, again = (word_vectors(words, known) for _ in range(2))
    assert torch.equal(vectors, again)
    assert vectors[:2].eq(0).all()
    assert vectors[2:].mean().item() == pytest.approx(0, abs=0.02)
    assert vectors[2:].std().item() == pytest.approx(1, abs=0.02)
    found = word_vectors(["w0", "a", *words[2:]], known)
    assert found[3].eq(1).all()
    assert torch.equal(found[4:], vectors[4:])
    assert torch.equal(found[2], vectors[2])


def test_a_review_without_words_is_one_step_of_padding(made_up):
    source = reader("train", train_size=4)
    validation = reader("validation")
    batches = [source.pick(torch.arange(4)), validation.pick(torch.arange(1))]
    lengths = torch.cat([batch.lengths for batch in batches])
    assert sorted(lengths.tolist()) == [1, 1, 3, 3, 4]


def test_padding_as_a_plain_program_does_it():
    rows = [[5, 6, 7], [], [8], [9, 10, 11, 12, 13]]
    flat = np.array([number for row in rows for number in row], dtype=np.int32)
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    for steps in (1, 3, 7):
        expected = [(row + [0] * steps)[:steps] for row in rows]
        assert padded(flat, lengths, steps).tolist() == expected
    assert padded(flat[:0], lengths[:0], 3).shape == (0, 3)
    assert padded(flat[:0], np.zeros(2, dtype=np.int32), 3).tolist() == [[0] * 3] * 2


def test_validation_is_a_random_part_of_training_that_depends_on_the_seed(made_up):
    held = set()
    for seed in range(20):
        train, validation = (reader(split, seed, validation_size=2) for split in ("train", "validation"))
        assert (train.size, validation.size) == (3, 2)
        assert sorted((*train.chosen.tolist(), *validation.chosen.tolist())) == [0, 1, 2, 3, 4]
        assert torch.equal(validation.chosen, reader("validation", seed, validation_size=2).chosen)
        held.add(tuple(sorted(validation.chosen.tolist())))
    assert len(held) > 5


def test_sizes_beyond_the_data_are_refused(made_up):
    with pytest.raises(ValueError, match="expected validation_size to be at most 4, got 2500"):
        IMDB().source("train", 1, CPU)
    with pytest.raises(ValueError, match="expected train_size to be at most 4, got 5"):
        reader("train", train_size=5)
    with pytest.raises(ValueError, match="expected test_size to be at most 2, got 3"):
        reader("test", test_size=3)


def test_loss_and_scores():
    task = IMDB()
    lengths = torch.tensor([1, 50, 51, 400, 401])
    batch = Batch(
        torch.zeros(2, 5, 100),
        torch.tensor([1, 0, 1, 1, 0]),
        lengths=lengths,
        groups=((lengths - 1) // 50).clamp(max=8),
    )
    outputs = torch.tensor([[[2.0], [-1.0], [-0.5], [3.0], [1.0]]], dtype=torch.float64)
    naive = [math.log1p(math.exp(x)) for x in (-2.0, -1.0, 0.5, -3.0, 1.0)]
    both = side_by_side([batch])
    assert task.loss(outputs, both).item() == pytest.approx(sum(naive) / 5)
    scores = {name: (s.total.item(), s.count.item()) for name, s in task.scores(outputs, both).items()}
    assert scores.pop("loss") == pytest.approx((sum(naive), 5))
    assert scores.pop("accuracy") == (3, 5)
    assert scores.pop("accuracy_1_50") == (2, 2)
    assert scores.pop("accuracy_51_100") == (0, 1)
    assert scores.pop("accuracy_351_400") == (1, 1)
    assert scores.pop("accuracy_over_400") == (0, 1)
    assert set(scores.values()) == {(0, 0)}
    assert set(scores) == {bin_name(number) for number in range(2, 7)}
    assert task.loss(torch.zeros(1, 5, 1), both).item() == pytest.approx(task.references["loss"])


class TestCache:
    @pytest.fixture(autouse=True)
    def folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
        return tmp_path

    @pytest.fixture
    def calls(self, monkeypatch):
        seen = []
        monkeypatch.setattr(encoded, "encode", lambda *texts: seen.append(texts) or encode(*texts))
        return seen

    @staticmethod
    def same(one, other):
        return one.words == other.words and all(map(np.array_equal, one[1:], other[1:]))

    def test_encoded_once(self, calls, folder):
        first, again = encoded_once(TRAIN, TEST), encoded_once(TRAIN, TEST)
        assert len(calls) == 1
        assert self.same(first, again)
        assert self.same(first, encode(TRAIN, TEST))
        assert [path.suffix for path in (folder / "imdb").iterdir()] == [".npz"]

    def test_other_texts_are_encoded_again(self, calls):
        encoded_once(TRAIN, TEST)
        encoded_once(TEST, TRAIN)
        encoded_once([*TRAIN, TEST[0]], TEST[1:])
        assert len(calls) == 3

    @pytest.mark.parametrize("damage", ["cut", "noise", "empty", "other"])
    def test_a_damaged_file_is_rebuilt(self, calls, folder, damage):
        first = encoded_once(TRAIN, TEST)
        (path,) = (folder / "imdb").iterdir()
        content = path.read_bytes()
        if damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif damage == "noise":
            place = content.index(first.train.tobytes())
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        elif damage == "empty":
            path.write_bytes(b"")
        else:
            np.savez(path, train=first.train)
        assert self.same(encoded_once(TRAIN, TEST), first)
        assert len(calls) == 2
        assert self.same(encoded_once(TRAIN, TEST), first)
        assert len(calls) == 2

    def test_nothing_in_the_file_needs_pickle(self, folder):
        encoded_once(TRAIN, TEST)
        (path,) = (folder / "imdb").iterdir()
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype != object for name in arrays)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif("REMANENCE_DATA" not in os.environ, reason="needs data sets: set REMANENCE_DATA")
def test_real_reviews(monkeypatch, tmp_path):
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    task = IMDB()
    train, validation, test = (task.source(split, 1, CPU) for split in ("train", "validation", "test"))
    assert (train.size, validation.size, test.size) == (22_500, 2500, 25_000)
    reviews = test.reviews
    assert train.reviews is validation.reviews is reviews
    assert sorted(torch.cat((train.chosen, validation.chosen)).tolist()) == list(range(25_000))
    assert reviews.labels["test"].sum() == 12_500
    assert reviews.vectors.shape == (25_002, 100)
    # The first training review (negative, id 0) begins "Story of a man who has unnatural feelings for a pig."
    (kept,) = (tmp_path / "imdb").iterdir()
    words = encoded.read(kept).words
    assert words[:3] == ["the", ".", ","]
    begun = [words[number - 2] for number in reviews.words["train"][0, :11].tolist()]
    assert begun == ["story", "of", "a", "man", "who", "has", "unnatural", "feelings", "for", "a", "pig"]
    vectors = data.glove()
    holder = train if (train.chosen == 0).any() else validation
    batch = holder.pick((holder.chosen == 0).nonzero().flatten())
    story = torch.from_numpy(vectors.vectors[vectors.words.index("story")])
    assert torch.equal(batch.inputs[0, 0], story)
    assert batch.targets.tolist() == [0]
    # Of the 25,000 words, those without a vector are few; running words known by the vocabulary are nearly all.
    assert len(set(words[:25_000]) - set(vectors.words)) < 1000
    unknown = reviews.words["train"] == 1
    present = reviews.words["train"] != 0
    assert 0.015 < (unknown.sum() / present.sum()).item() < 0.02
    assert reviews.lengths["train"].median() == 201  # 202 in the paper
    assert torch.bincount(reviews.bins["test"], minlength=9).min() > 200
