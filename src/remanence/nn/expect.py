"""Argument checks. Error messages state what was expected and what was passed, in one sentence."""

from __future__ import annotations


def is_number(value: object) -> bool:
    """Whether the value is a finite int or float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def expect_number(name: str, value: float) -> float:
    """Return the value if it is a finite number, else raise."""
    if not is_number(value):
        raise ValueError(f"expected {name} to be a finite number, got {value!r}")
    return float(value)


def expect_probability(name: str, value: float) -> float:
    """Return the value if it is a probability, else raise."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"expected {name} to be a number in [0, 1], got {value!r}")
    return float(value)


def expect_size(name: str, value: int) -> int:
    """Return the value if it is a positive integer, else raise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"expected {name} to be a positive integer, got {value!r}")
    return value


def expect_count(name: str, value: int) -> int:
    """Return the value if it is a non-negative integer, else raise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected {name} to be 0 or a positive integer, got {value!r}")
    return value
