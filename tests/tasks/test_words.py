"""Words of a text."""

import numpy as np
import pytest

from remanence.tasks import words
from remanence.tasks.words import OTHER, encode, tokenise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A Film.", "a film ."),
        ("I don't, can't and won't", "i do n't , ca n't and wo n't"),
        ("it's they're I've we'll he'd I'm", "it 's they 're i 've we 'll he 'd i 'm"),
        ("the boys' film", "the boys ' film"),
        ("good<br /><br />bad<br>ugly", "good bad ugly"),
        ("a well-known O'Brien film", "a well-known o'brien film"),
        ("O'Brien's", "o'brien 's"),
        ("wait... no--yes", "wait ... no -- yes"),
        ("1,000 dollars, 7.5/10!!", "1,000 dollars , 7.5 / 10 ! !"),
        ('"Great" (really)', '" great " ( really )'),
        ("isn\u2019t it\u2019s", "is n't it 's"),
        ("café_au lait", "café _ au lait"),
        ("'s", "'s"),
        ("n't", "n't"),
        ("", ""),
        (" \n\t ", ""),
    ],
)
def test_tokens(text, expected):
    assert tokenise(text) == expected.split()


def test_no_character_except_whitespace_is_lost():
    text = "Mixed_up: “quotes” – dashes, 50% of $7.50; e-mail@home.com & so on… \x96 ¿qué? don't"  # noqa: RUF001
    assert "".join(tokenise(text)) == "".join(text.lower().split())


def test_ranks_follow_frequency_then_alphabet():
    encoded = encode(["b b a", "c a d"], ["d x b"])
    assert encoded.words == ["a", "b", "c", "d"]
    assert encoded.train.tolist() == [1, 1, 0, 2, 0, 3]
    assert encoded.train_lengths.tolist() == [3, 3]
    assert encoded.test.tolist() == [3, OTHER, 1]
    assert encoded.test_lengths.tolist() == [3]
    assert encoded.train.dtype == np.uint16


def test_only_the_most_frequent_words_have_their_own_id(monkeypatch):
    monkeypatch.setattr(words, "KEPT", 2)
    encoded = encode(["b b a a a c"], ["c b"])
    assert encoded.words == ["a", "b"]
    assert encoded.train.tolist() == [1, 1, 0, 0, 0, OTHER]
    assert encoded.test.tolist() == [OTHER, 1]


def test_texts_without_words():
    encoded = encode(["", "a"], [""])
    assert encoded.train_lengths.tolist() == [0, 1]
    assert encoded.test_lengths.tolist() == [0]
    assert encoded.test.tolist() == []
