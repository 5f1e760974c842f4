"""Dyck-2 strings, with two kinds of brackets: drawn from a grammar, and parsed with a stack.

Symbols are integers: 0 and 1 open a round and a square bracket, 2 and 3 close them, 4 is padding. N strings, T steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SYMBOLS = "([)]"
KINDS = 2
PADDING = len(SYMBOLS)
AT_ONCE = 2**16
"""Random choices drawn at a time."""

Strings = NDArray[np.int8]
"""`(T, N)` symbols, padded at the end."""


def draw(count: int, longest: int, rng: np.random.Generator) -> list[bytes]:
    """Distinct strings of 2 to `longest` symbols, in the order in which they were drawn.

    S -> (S) | [S] | SS | nothing, with probability 1/4 each, the leftmost S first. Strings that are empty, too long or
    duplicates are discarded.
    """
    rules = choices(rng)
    found: dict[bytes, None] = {}
    while len(found) < count:
        string = expand(rules, longest // 2)
        if string:
            found[string] = None
    return list(found)


def choices(rng: np.random.Generator) -> Iterator[int]:
    """An infinite stream of random integers from 0 to 3."""
    while True:
        yield from rng.integers(0, KINDS + 2, AT_ONCE).tolist()


def expand(rules: Iterator[int], most: int) -> bytes | None:
    """One string; None as soon as it has more than `most` pairs, because the mean length of strings is infinite."""
    start, twice = PADDING, KINDS
    string = bytearray()
    pairs = 0
    pending = [start]  # the last one is leftmost
    while pending:
        symbol = pending.pop()
        if symbol != start:
            string.append(symbol)
            continue
        rule = next(rules)
        if rule < KINDS:
            pairs += 1
            if pairs > most:
                return None
            string.append(rule)
            pending += (rule + KINDS, start)
        elif rule == twice:
            pending += (start, start)
    return bytes(string)


def padded(strings: Sequence[bytes], steps: int) -> Strings:
    """Strings as columns, padded to equal length."""
    rows = b"".join(string.ljust(steps, bytes([PADDING])) for string in strings)
    return np.frombuffer(rows, np.int8).reshape(len(strings), steps).T


class Nesting(NamedTuple):
    """The state of the stack after every symbol, `(T, N)` each."""

    open: NDArray[np.int8]
    """The innermost open bracket, the one that may be closed: 1 round, 2 square, 0 none or padding."""
    timescales: NDArray[np.int16]
    """At a closing bracket: the number of symbols from its opening bracket to it, both included. Elsewhere 0."""


def read(strings: Strings) -> Nesting:
    """Parse balanced strings, all in parallel."""
    steps, count = strings.shape
    every = np.arange(count)
    kinds = np.zeros((steps + 1, count), np.int8)  # by depth; at depth 0 nothing is open
    opened = np.zeros((steps + 1, count), np.int16)
    depth = np.zeros(count, np.int64)
    result = Nesting(np.zeros((steps, count), np.int8), np.zeros((steps, count), np.int16))
    for step, symbols in enumerate(strings):
        opens, closes = symbols < KINDS, (symbols >= KINDS) & (symbols < PADDING)
        result.timescales[step] = np.where(closes, step + 1 - opened[depth, every], 0)
        depth += opens
        kinds[depth[opens], every[opens]] = symbols[opens] + 1
        opened[depth[opens], every[opens]] = step
        depth -= closes
        result.open[step] = kinds[depth, every]
    return result
