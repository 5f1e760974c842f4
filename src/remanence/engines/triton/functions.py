"""Transcendental functions for the kernels, in plain Triton (no libdevice) so that the interpreter supports them too.

Accurate in float32 to a few ulp. The usual short forms of log(1 + x) and exp(x) - 1 are not: they lose all significand
bits for small x, and long memories depend on exactly those bits.
"""

# ruff: noqa: D402
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def sigmoids(x):
    """sigmoid(x) and sigmoid(-x), both accurate to the last bit, from one exponential that cannot overflow."""
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
    """exp(x) - 1, by its series where the subtraction would cancel."""
    series = 1.0 + x * (1.0 / 7)
    series = 1.0 + x * (1.0 / 6) * series
    series = 1.0 + x * (1.0 / 5) * series
    series = 1.0 + x * (1.0 / 4) * series
    series = 1.0 + x * (1.0 / 3) * series
    series = 1.0 + x * (1.0 / 2) * series
    return tl.where(tl.abs(x) < 0.3, x * series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """log(1 + x), by the series of 2 artanh(x / (2 + x)) where the sum would round."""
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
    """sinh(x); overflow gives infinity."""
    e = expm1(tl.abs(x))
    s = 0.5 * (e + tl.where(e < 1e30, e / (e + 1.0), 1.0))
    return tl.where(x >= 0, s, -s)


@triton.jit
def cosh(x):
    """cosh(x); overflow gives infinity."""
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
    """-1, 0 or 1; NaN for NaN."""
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x * 0.0))


@triton.jit
def maximum(x, y):
    """Maximum of two numbers; NaN if either is NaN."""
    return tl.where((x > y) | (x != x), x, y)


@triton.jit
def minimum(x, y):
    """Minimum of two numbers; NaN if either is NaN."""
    return tl.where((x < y) | (x != x), x, y)


@triton.jit
def asinh(x):
    """asinh(x), from log(1 + y), which stays accurate for small x."""
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
    """atan(x): the angle is halved twice, then its series."""
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
    """x to the power of n; NaN for negative x unless n is an integer."""
    size = tl.exp(n * tl.log(tl.abs(x)))
    whole = tl.floor(n) == n
    odd = whole & (tl.floor(n * 0.5) * 2.0 != n)
    found = tl.where(x < 0, tl.where(whole, tl.where(odd, -size, size), float("nan")), size)
    found = tl.where(x == 0, tl.where(n > 0, 0.0, float("inf")), found)
    return tl.where(n == 0, 1.0, found)


@triton.jit
def remainder(x, y):
    """x modulo y, with the sign of y; zero if the quotient exceeds the integers that float32 represents."""
    left = tl.fma(-tl.floor(x / y), y, x)
    left = tl.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)
    left = tl.where(tl.abs(left) >= tl.abs(y), left - y, left)  # the quotient may be off by one
    return tl.where(tl.abs(left) >= tl.abs(y), 0.0, left)
