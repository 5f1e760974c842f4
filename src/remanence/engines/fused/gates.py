"""Every forget gate as two device functions: one step, and its derivative.

    forward(z, z2, age, p, dt, eps, HAS_DT)                   -> forget, complement, age after the step
    backward(z, z2, age, p, dt, eps, HAS_DT, d_forget, d_age) -> d_z, d_z2, d_age before the step, d_p, d_dt

All tensors are (rows, units) float32 tiles of one program. z and z2 are the pre-activations of the gate's rows (z2
means nothing to a gate with one row), age is what the gate carries, p its own weight per unit. The complement is one
minus the forget value, so d_forget already holds both. What a gate has no use for comes in as zeros and goes out as
zeros.

The equations are those of `remanence.gates`, file by file. To give a new gate a kernel, write its pair of functions
here and name it in `DEVICE`.
"""

# ruff: noqa: D103, N803
# mypy: ignore-errors

import triton
import triton.language as tl

from .functions import cosh, expm1, log1p, sigmoids, sinh

SATURATED = tl.constexpr(10.0)
SMALLEST = tl.constexpr(2.0**-126)


@triton.jit
def sigmoid_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    forget, complement = sigmoids(z)
    return forget, complement, age


@triton.jit
def sigmoid_backward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr, d_forget, d_age):
    forget, complement = sigmoids(z)
    zero = tl.zeros_like(z)
    return d_forget * forget * complement, zero, zero, zero, zero


@triton.jit
def fast_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    forget, complement = sigmoids(sinh(tl.clamp(z, -SATURATED, SATURATED)))
    return forget, complement, age


@triton.jit
def fast_backward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr, d_forget, d_age):
    clamped = tl.clamp(z, -SATURATED, SATURATED)
    forget, complement = sigmoids(sinh(clamped))
    zero = tl.zeros_like(z)
    return d_forget * forget * complement * cosh(clamped), zero, zero, zero, zero


@triton.jit
def softsign_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    smaller = 1.0 / (2.0 + tl.abs(z))
    return tl.where(z >= 0, 1.0 - smaller, smaller), tl.where(z >= 0, smaller, 1.0 - smaller), age


@triton.jit
def softsign_backward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr, d_forget, d_age):
    smaller = 1.0 / (2.0 + tl.abs(z))
    zero = tl.zeros_like(z)
    return d_forget * smaller * smaller, zero, zero, zero, zero


@triton.jit
def refine_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    f, u = sigmoids(z)
    r, v = sigmoids(z2)
    return r * f * (1.0 + u) + (1.0 - r) * f * f, r * u * u + v * u * (1.0 + f), age


@triton.jit
def refine_backward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr, d_forget, d_age):
    f, u = sigmoids(z)
    r, v = sigmoids(z2)
    zero = tl.zeros_like(z)
    d_z = d_forget * 2.0 * (r * u + v * f) * f * u
    d_z2 = d_forget * 2.0 * f * u * r * v
    return d_z, d_z2, zero, zero, zero


@triton.jit
def power_law_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    reset, keep = sigmoids(z)
    held = tl.maximum(keep * (age + 1.0) + eps, SMALLEST)
    if HAS_DT:
        age = keep * (age + dt)
        lost = tl.maximum(reset + keep * dt - eps, 0.0)
    else:
        age = keep * (age + 1.0)
        lost = 1.0 - eps
    log_forget = -p * log1p(lost / held)
    return tl.exp(log_forget), -expm1(log_forget), age


@triton.jit
def power_law_backward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr, d_forget, d_age):
    reset, keep = sigmoids(z)
    raw = keep * (age + 1.0) + eps
    held = tl.maximum(raw, SMALLEST)
    if HAS_DT:
        step = dt
        elapsed = reset + keep * dt
    else:
        step = tl.zeros_like(z) + 1.0
        elapsed = step
    lost = tl.maximum(elapsed - eps, 0.0)
    log_ratio = -log1p(lost / held)
    d_log_forget = d_forget * tl.exp(p * log_ratio)
    d_p = d_log_forget * log_ratio
    d_lost = -d_log_forget * p / (held + lost)
    d_held = tl.where(raw >= SMALLEST, -d_lost * (lost / held), 0.0)
    d_keep = d_age * (age + step) + d_held * (age + 1.0)
    d_before = (d_age + d_held) * keep
    d_reset = tl.zeros_like(z)
    d_dt = tl.zeros_like(z)
    if HAS_DT:
        d_lost = tl.where(elapsed >= eps, d_lost, 0.0)
        d_keep += d_lost * dt
        d_reset = d_lost
        d_dt = (d_age + d_lost) * keep
    return (d_reset - d_keep) * reset * keep, tl.zeros_like(z), d_before, d_p, d_dt


DEVICE: dict[str, tuple[triton.JITFunction, triton.JITFunction]] = {
    "sigmoid": (sigmoid_forward, sigmoid_backward),
    "fast": (fast_forward, fast_backward),
    "softsign": (softsign_forward, softsign_backward),
    "refine": (refine_forward, refine_backward),
    "ur": (refine_forward, refine_backward),
    "power_law": (power_law_forward, power_law_backward),
}
"""Forward and backward device functions by the name of the gate."""
