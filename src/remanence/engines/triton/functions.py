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
    """sinh(x); where it overflows, infinity."""
    e = expm1(tl.abs(x))
    s = 0.5 * (e + tl.where(e < 1e30, e / (e + 1.0), 1.0))
    return tl.where(x >= 0, s, -s)


@triton.jit
def cosh(x):
    """cosh(x); where it overflows, infinity."""
    e = tl.exp(tl.abs(x))
    return 0.5 * (e + 1.0 / e)


@triton.jit
def log1p_of_ratio(x, y):
    """log(1 + x / y)."""
    return log1p(x / y)


@triton.jit
def reciprocal(x):
    """1 / x."""
    return 1.0 / x


@triton.jit
def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x * 0.0))


@triton.jit
def maximum(x, y):
    """The larger of two; NaN if one of them is."""
    return tl.where((x > y) | (x != x), x, y)


@triton.jit
def minimum(x, y):
    """The smaller of two; NaN if one of them is."""
    return tl.where((x < y) | (x != x), x, y)


@triton.jit
def asinh(x):
    """asinh(x), from log(1 + y), which keeps the digits of small x."""
    a = tl.abs(x)
    small = a + a * a / (1.0 + tl.sqrt(1.0 + a * a))
    found = tl.where(a < 1e9, log1p(small), tl.log(a) + 0.6931471805599453)
    return tl.where(x >= 0, found, -found)


@triton.jit
def tangent(x):
    """tan(x)."""
    return tl.sin(x) / tl.cos(x)


@triton.jit
def arctangent(x):
    """atan(x): half of the angle twice, then its series."""
    a = tl.abs(x)
    y = tl.where(a > 1.0, 1.0 / a, a)
    y = y / (1.0 + tl.sqrt(1.0 + y * y))
    y = y / (1.0 + tl.sqrt(1.0 + y * y))
    y2 = y * y
    series = 1.0 / 11
    series = 1.0 / 9 - y2 * series
    series = 1.0 / 7 - y2 * series
    series = 1.0 / 5 - y2 * series
    series = 1.0 / 3 - y2 * series
    series = 1.0 - y2 * series
    angle = 4.0 * y * series
    angle = tl.where(a > 1.0, 1.5707963267948966 - angle, angle)
    return tl.where(x >= 0, angle, tl.where(x < 0, -angle, x))


@triton.jit
def power(x, n):
    """x to the power of n; of a negative x for whole n alone."""
    size = tl.exp(n * tl.log(tl.abs(x)))
    whole = tl.floor(n) == n
    odd = whole & (tl.floor(n * 0.5) * 2.0 != n)
    found = tl.where(x < 0, tl.where(whole, tl.where(odd, -size, size), float("nan")), size)
    found = tl.where(x == 0, tl.where(n > 0, 0.0, float("inf")), found)
    return tl.where(n == 0, 1.0, found)


@triton.jit
def remainder(x, y):
    """What is left of x after whole y, with the sign of y; nothing of a quotient beyond all digits of float32."""
    left = tl.fma(-tl.floor(x / y), y, x)
    left = tl.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)
    left = tl.where(tl.abs(left) >= tl.abs(y), left - y, left)  # the quotient may be off by one
    return tl.where(tl.abs(left) >= tl.abs(y), 0.0, left)
