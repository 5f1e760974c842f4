"""Symbols and their ids."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remanence.language import Vocabulary

WORDS = Vocabulary(["the", "cat", "<eos>", "<unk>", "sat"], "<unk>")
CHARACTERS = Vocabulary(["a", "b", " ", "<eos>"], None, "character")
BYTES = Vocabulary([chr(byte) for byte in range(256)], None, "byte")


def test_ids_follow_the_given_order():
    assert len(WORDS) == 5
    assert WORDS.index["sat"] == 4
    assert WORDS.end == 2
    assert "cat" in WORDS
    assert "dog" not in WORDS


def test_words_have_ids_and_all_unknown_words_share_one():
    numbers = WORDS.encode(["the", "dog", "sat", "<eos>"])
    assert numbers.dtype == np.int32
    assert numbers.tolist() == [0, 3, 4, 2]
    assert WORDS.decode(numbers) == ["the", "<unk>", "sat", "<eos>"]
    assert WORDS.encode([]).shape == (0,)


def test_a_text_is_split_first():
    assert WORDS.encode("the cat\n\nsat").tolist() == [0, 1, 2, 2, 4]
    assert CHARACTERS.encode("ab a\n").tolist() == [0, 1, 2, 0, 3]


def test_a_vocabulary_without_an_unknown_word_refuses_others():
    with pytest.raises(ValueError, match=r"expected only characters of this vocabulary of 4, .* got 'x'"):
        CHARACTERS.encode("abx")


def test_texts_without_lines_have_no_end():
    assert Vocabulary(["a", "b"], None, "character").end is None


@given(st.lists(st.lists(st.sampled_from(["the", "cat", "sat"]), max_size=3), min_size=1, max_size=6))
def test_text_of_words_comes_back(lines):
    text = "\n".join(map(" ".join, lines))
    assert WORDS.text(WORDS.encode(text)) == text


@given(st.text("ab \n"))
def test_text_of_characters_comes_back(text):
    assert CHARACTERS.text(CHARACTERS.encode(text)) == text


@given(st.text())
def test_text_of_bytes_comes_back(text):
    assert BYTES.encode(text).tolist() == list(text.encode())
    assert BYTES.text(BYTES.encode(text)) == text


def test_an_incomplete_utf_8_character_is_not_an_error():
    assert BYTES.text(BYTES.encode("é")[:1]) == "\ufffd"


def test_plain_data_and_back():
    again = Vocabulary.from_dict(json.loads(json.dumps(WORDS.to_dict())))
    assert again == WORDS
    assert hash(again) == hash(WORDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least one word"),
        ((["a", "b", "a"],), "'a' twice"),
        ((["a"], "<unk>"), "'<unk>'; add it"),
        ((["a", 1],), "strings, got 1"),
        ((["a"], None, "letter"), "word, character, byte, got 'letter'"),
    ],
)
def test_wrong_vocabularies(arguments, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(*arguments)


@pytest.mark.parametrize("number", [-1, 5])
def test_ids_outside_the_vocabulary(number):
    with pytest.raises(ValueError, match=f"expected ids from 0 to 4, got {number}"):
        WORDS.decode([0, number])
