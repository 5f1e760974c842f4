"""Transcendental functions for the kernels, in plain Triton so that its interpreter knows them too.

Accurate in float32 to a few units in the last place, where the usual short forms are not: log(1 + x) and exp(x) - 1
lose all digits for small x, and those are the digits that a long memory is made of.
"""

# ruff: noqa: D402
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def sigmoids(x):
    """sigmoid(x) and sigmoid(-x), both to the last digit, from one exponential that cannot overflow."""
    e = tl.exp(-tl.abs(x))
    larger = 1.0 / (1.0 + e)
    smaller = e * larger
    return tl.where(x >= 0, larger, smaller), tl.where(x >= 0, smaller, larger)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    larger, _ = sigmoids(x)
    return larger


@triton.jit
def expm1(x):
    """exp(x) - 1: its series where the subtraction would cancel."""
    series = 1.0 + x * (1.0 / 7)
    series = 1.0 + x * (1.0 / 6) * series
    series = 1.0 + x * (1.0 / 5) * series
    series = 1.0 + x * (1.0 / 4) * series
    series = 1.0 + x * (1.0 / 3) * series
    series = 1.0 + x * (1.0 / 2) * series
    return tl.where(tl.abs(x) < 0.3, x * series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """log(1 + x): the series of 2 artanh(x / (2 + x)) where the sum would round."""
    s = x / (2.0 + x)
    s2 = s * s
    series = 1.0 / 9
    series = 1.0 / 7 + s2 * series
    series = 1.0 / 5 + s2 * series
    series = 1.0 / 3 + s2 * series
    series = 1.0 + s2 * series
    return tl.where(tl.abs(x) < 0.3, 2.0 * s * series, tl.log(1.0 + x))


@triton.jit
def tanh(x):
    """tanh(x), from exp(-2|x|) - 1."""
    e = expm1(-2.0 * tl.abs(x))
    t = -e / (2.0 + e)
    return tl.where(x >= 0, t, -t)


@triton.jit
def sinh(x):
    """sinh(x) for |x| that does not overflow."""
    e = expm1(tl.abs(x))
    s = 0.5 * (e + e / (e + 1.0))
    return tl.where(x >= 0, s, -s)


@triton.jit
def cosh(x):
    """cosh(x) for |x| that does not overflow."""
    e = tl.exp(tl.abs(x))
    return 0.5 * (e + 1.0 / e)
