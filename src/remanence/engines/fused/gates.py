"""Every forget gate as three device functions: one step, its slopes, and the derivative from these.

    forward(z, z2, age, p, dt, eps, HAS_DT)  -> forget, complement, age after the step
    slopes(z, z2, age, p, dt, eps, HAS_DT)   -> forget, complement, a tuple of the gate's own
    backward(slopes, d_forget, d_age, HAS_DT) -> d_z, d_z2, d_age before the step, d_p, d_dt

All tensors are (rows, units) float32 tiles of one program. z and z2 are the pre-activations of the gate's rows (z2
means nothing to a gate with one row), age is what the gate carries, p its own weight per unit. The complement is one
minus the forget value, so d_forget already holds both. What a gate has no use for comes in as zeros and goes out as
zeros.

Slopes are all that can be computed before the derivatives of a step are known: the kernel does it while it waits for
them, and what is left, a few products, is the backward function.

The equations are those of `remanence.gates`, file by file. To give a new gate a kernel, write its functions here and
name it in `DEVICE`.
"""

# ruff: noqa: D103, N803
# mypy: ignore-errors

import triton
import triton.language as tl

from .functions import cosh, expm1, log1p, sigmoids, sinh

SATURATED = tl.constexpr(10.0)
SMALLEST = tl.constexpr(2.0**-126)


@triton.jit
def one_row_backward(slopes, d_forget, d_age, HAS_DT: tl.constexpr):
    zero = tl.zeros_like(d_forget)
    return d_forget * slopes[0], zero, zero, zero, zero


@triton.jit
def sigmoid_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    forget, complement = sigmoids(z)
    return forget, complement, age


@triton.jit
def sigmoid_slopes(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    forget, complement = sigmoids(z)
    return forget, complement, (forget * complement,)


@triton.jit
def fast_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    forget, complement = sigmoids(sinh(tl.clamp(z, -SATURATED, SATURATED)))
    return forget, complement, age


@triton.jit
def fast_slopes(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    clamped = tl.clamp(z, -SATURATED, SATURATED)
    forget, complement = sigmoids(sinh(clamped))
    return forget, complement, (forget * complement * cosh(clamped),)


@triton.jit
def softsign_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    smaller = 1.0 / (2.0 + tl.abs(z))
    return tl.where(z >= 0, 1.0 - smaller, smaller), tl.where(z >= 0, smaller, 1.0 - smaller), age


@triton.jit
def softsign_slopes(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    smaller = 1.0 / (2.0 + tl.abs(z))
    forget = tl.where(z >= 0, 1.0 - smaller, smaller)
    return forget, tl.where(z >= 0, smaller, 1.0 - smaller), (smaller * smaller,)


@triton.jit
def refine_forward(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    f, u = sigmoids(z)
    r, v = sigmoids(z2)
    return r * f * (1.0 + u) + (1.0 - r) * f * f, r * u * u + v * u * (1.0 + f), age


@triton.jit
def refine_slopes(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    f, u = sigmoids(z)
    r, v = sigmoids(z2)
    by_z = 2.0 * (r * u + v * f) * f * u
    by_z2 = 2.0 * f * u * r * v
    return r * f * (1.0 + u) + (1.0 - r) * f * f, r * u * u + v * u * (1.0 + f), (by_z, by_z2)


@triton.jit
def refine_backward(slopes, d_forget, d_age, HAS_DT: tl.constexpr):
    zero = tl.zeros_like(d_forget)
    return d_forget * slopes[0], d_forget * slopes[1], zero, zero, zero


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
def power_law_slopes(z, z2, age, p, dt, eps, HAS_DT: tl.constexpr):
    reset, keep = sigmoids(z)
    turn = reset * keep
    raw = keep * (age + 1.0) + eps
    held = tl.maximum(raw, SMALLEST)
    if HAS_DT:
        elapsed = reset + keep * dt
        lost = tl.maximum(elapsed - eps, 0.0)
    else:
        lost = tl.zeros_like(z) + (1.0 - eps)
    log_ratio = -log1p(lost / held)
    log_forget = p * log_ratio
    forget = tl.exp(log_forget)
    by_lost = -forget * p / (held + lost)
    by_held = tl.where(raw >= SMALLEST, -by_lost * (lost / held), 0.0)
    by_z = -by_held * (age + 1.0)
    aged_by_z = -(age + 1.0) * turn
    by_dt = tl.zeros_like(z)
    if HAS_DT:
        by_elapsed = tl.where(elapsed >= eps, by_lost, 0.0)
        by_z += by_elapsed * (1.0 - dt)
        aged_by_z = -(age + dt) * turn
        by_dt = by_elapsed * keep
    return forget, -expm1(log_forget), (by_z * turn, by_held * keep, forget * log_ratio, by_dt, aged_by_z, keep)


@triton.jit
def power_law_backward(slopes, d_forget, d_age, HAS_DT: tl.constexpr):
    by_z, by_age, by_p, by_dt, aged_by_z, keep = slopes
    zero = tl.zeros_like(d_forget)
    kept = d_age * keep
    d_dt = zero
    if HAS_DT:
        d_dt = d_forget * by_dt + kept
    return d_forget * by_z + d_age * aged_by_z, zero, d_forget * by_age + kept, d_forget * by_p, d_dt


DEVICE: dict[str, tuple[triton.JITFunction, triton.JITFunction, triton.JITFunction]] = {
    "sigmoid": (sigmoid_forward, sigmoid_slopes, one_row_backward),
    "fast": (fast_forward, fast_slopes, one_row_backward),
    "softsign": (softsign_forward, softsign_slopes, one_row_backward),
    "refine": (refine_forward, refine_slopes, refine_backward),
    "ur": (refine_forward, refine_slopes, refine_backward),
    "power_law": (power_law_forward, power_law_slopes, power_law_backward),
}
"""Device functions by the name of the gate: forward, slopes, backward."""
