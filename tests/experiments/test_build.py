"""Building dataclasses from plain data: accepted values and error messages."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remanence.experiments import text
from remanence.experiments.build import build
from remanence.training.config import Training, plain


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    size: int
    name: str = "x"
    on: bool = False
    pair: tuple[float, float] = (0.0, 1.0)
    several: list[int] = field(default_factory=list)
    levels: dict[str, float] = field(default_factory=dict)
    maybe: float | None = None
    either: int | list[int] = 1
    inner: Inner = field(default_factory=Inner)
    anything: Any = None


def test_every_kind_of_field_is_accepted():
    values = {
        "size": 3,
        "name": "y",
        "on": True,
        "pair": [1, "2e-1"],
        "several": [1, 2],
        "levels": {"loss": 1},
        "maybe": "1e-3",
        "either": [4, 5],
        "inner": {"rate": "1e-3", "kind": "b"},
        "anything": {"a": [1]},
    }
    assert build(Outer, values) == Outer(
        3, "y", True, (1.0, 0.2), [1, 2], {"loss": 1.0}, 0.001, [4, 5], Inner(0.001, "b"), {"a": [1]}
    )


def test_what_is_left_out_keeps_its_default():
    assert build(Outer, {"size": 1}) == Outer(1)


def test_null_is_accepted_only_where_allowed():
    assert build(Outer, {"size": 1, "maybe": None}).maybe is None
    with pytest.raises(ValueError, match="expected on to be true or false, got None"):
        build(Outer, {"size": 1, "on": None})


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({}, "expected size to be given, got nothing"),
        ({"size": 1.5}, "expected size to be a whole number, got 1.5"),
        ({"size": True}, "expected size to be a whole number, got True"),
        ({"size": "ten"}, "expected size to be a whole number, got 'ten'"),
        ({"size": 1, "name": 2}, "expected name to be text, got 2"),
        ({"size": 1, "pair": [1]}, "expected pair to be a list of 2 (each a number), got [1]"),
        ({"size": 1, "pair": ["a", 1]}, "expected pair[0] to be a number, got 'a'"),
        ({"size": 1, "several": 3}, "expected several to be a list (each a whole number), got 3"),
        ({"size": 1, "several": [1, "b"]}, "expected several[1] to be a whole number, got 'b'"),
        ({"size": 1, "levels": {"loss": "low"}}, "expected levels.loss to be a number, got 'low'"),
        ({"size": 1, "levels": [1]}, "expected levels to be a mapping of names to values, got [1]"),
        ({"size": 1, "either": "x"}, "expected either to be a whole number or a list (each a whole number), got 'x'"),
        ({"size": 1, "inner": {"kind": "c"}}, "expected inner.kind to be one of a, b, got 'c'"),
        ({"size": 1, "inner": 3}, "expected inner to be a mapping of names to values, got 3"),
        (
            {"size": 1, "inner": {"rat": 1}},
            "expected inner to have fields among rate, kind, got inner.rat; did you mean inner.rate?",
        ),
        ([1], "expected the configuration to be a mapping of names to values, got [1]"),
    ],
)
def test_a_wrong_value_raises_with_its_path_the_expected_type_and_the_value(values, answer):
    with pytest.raises(ValueError, match="expected") as caught:
        build(Outer, values)
    assert str(caught.value) == answer


def test_messages_prefix_the_path():
    with pytest.raises(ValueError, match=r"expected training\.optimiser\.lr to be a number, got 'fast'"):
        build(Training, {"optimiser": {"lr": "fast"}}, "training")


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**12), 10**12))
def test_numbers_survive_yaml(number, whole):
    found = text.read(text.write({"number": number, "whole": whole}))
    assert found == {"number": number, "whole": whole}
    assert build(Outer, {"size": found["whole"], "maybe": found["number"]}).maybe == number


@pytest.mark.parametrize(
    ("written", "value"), [("1e-3", 1e-3), ("1E5", 1e5), ("3e4", 3e4), ("-2.5e-1", -0.25), ("7", 7)]
)
def test_numbers_are_read_as_people_write_them(written, value):
    found = text.read(f"a: {written}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_plain_data_builds_the_same_again():
    training = build(Training, {"batch": 3, "stop": {"reached": {"accuracy": 0.9}}, "optimiser": {"betas": [0.5, 0.6]}})
    assert build(Training, text.read(text.write(plain(training)))) == training
