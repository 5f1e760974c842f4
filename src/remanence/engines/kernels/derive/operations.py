"""The operations of formulas: each with its derivative, and how it is written in torch, C++ and Triton.

Derivatives match torch's autograd, including ties and kinks, with one exception that is more precise than torch:
sigmoid'(x) is sigmoid(x) sigmoid(-x), where neither factor rounds to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .expression import Expression, apply, constant, ordered, where

Slopes = tuple[Expression | None, ...]


@dataclass(frozen=True)
class Operation:
    """One pointwise operation."""

    torch: Callable[..., Any]
    """Implementation on tensors."""
    cpp: str
    """C++ code for scalars (float); `{0}` is the first input. Functions are those of functions.cuh."""
    triton: str
    """Triton code for float32 tiles. Functions are those of triton/functions.py."""
    derivative: Callable[..., Slopes] = field(default=lambda g, y, *x: (None,) * len(x))
    """Gradients of all inputs, None for zero, from the gradient g of the result, the result y and the inputs x."""

    def slopes(self, gradient: Expression, node: Expression) -> Slopes:
        """Gradients of all inputs of a node."""
        return self.derivative(gradient, node, *node.inputs)


def _call(name: str, triton: str | None = None, of: int = 1) -> tuple[str, str]:
    places = ", ".join(f"{{{place}}}" for place in range(of))
    return f"{name}({places})", f"{triton or name}({places})"


def _infix(sign: str) -> tuple[str, str]:
    return (f"{{0}} {sign} {{1}}",) * 2


def _of_power(g: Expression, y: Expression, x: Expression, n: Expression) -> Slopes:
    # As in torch: the gradient of the base is 0 at exponent 0, and that of a nonnegative exponent is 0 at base 0.
    by_base = where(apply("eq", n, constant(0.0)), 0.0, g * (n * apply("pow", x, n - 1.0)))
    at_zero = apply("and", apply("eq", x, constant(0.0)), constant(0.0) <= n)
    return by_base, where(at_zero, 0.0, g * (y * apply("log", x)))


def _of_larger(g: Expression, y: Expression, a: Expression, b: Expression) -> Slopes:
    half = where(apply("eq", a, b), 0.5 * g, g)
    return where(a < b, 0.0, half), where(b < a, 0.0, half)


def _of_smaller(g: Expression, y: Expression, a: Expression, b: Expression) -> Slopes:
    half = where(apply("eq", a, b), 0.5 * g, g)
    return where(b < a, 0.0, half), where(a < b, 0.0, half)


KNOWN: dict[str, Operation] = {
    "add": Operation(torch.add, *_infix("+"), lambda g, y, a, b: (g, g)),
    "mul": Operation(torch.mul, *_infix("*"), lambda g, y, a, b: (g * b, g * a)),
    "neg": Operation(torch.neg, "-{0}", "-{0}", lambda g, y, x: (-g,)),
    "reciprocal": Operation(torch.reciprocal, *_call("reciprocal"), lambda g, y, x: (-(g * y * y),)),
    "where": Operation(
        torch.where,
        "{0} ? {1} : {2}",
        "tl.where({0}, {1}, {2})",
        lambda g, y, c, a, b: (None, where(c, g, 0.0), where(c, 0.0, g)),
    ),
    # Conditions.
    "lt": Operation(torch.lt, *_infix("<")),
    "le": Operation(torch.le, *_infix("<=")),
    "eq": Operation(torch.eq, *_infix("==")),
    "not": Operation(torch.logical_not, "!{0}", "{0} == 0"),
    "and": Operation(torch.logical_and, "{0} && {1}", "{0} & {1}"),
    "or": Operation(torch.logical_or, "{0} || {1}", "{0} | {1}"),
    "isnan": Operation(torch.isnan, "{0} != {0}", "{0} != {0}"),
    # Kinks.
    "abs": Operation(torch.abs, *_call("fabsf", "tl.abs"), lambda g, y, x: (g * apply("sign", x),)),
    "sign": Operation(torch.sign, *_call("sign")),
    "maximum": Operation(torch.maximum, *_call("maximum", of=2), _of_larger),
    "minimum": Operation(torch.minimum, *_call("minimum", of=2), _of_smaller),
    "clamp_min": Operation(
        torch.clamp_min,
        *_call("larger_of", "maximum", of=2),
        lambda g, y, x, low: (where(low <= x, g, 0.0), where(x < low, g, 0.0)),
    ),
    "clamp_max": Operation(
        torch.clamp_max,
        *_call("smaller_of", "minimum", of=2),
        lambda g, y, x, high: (where(x <= high, g, 0.0), where(high < x, g, 0.0)),
    ),
    "floor": Operation(torch.floor, *_call("floorf", "tl.floor")),
    "remainder": Operation(
        torch.remainder,
        *_call("remainder_of", "remainder", of=2),
        lambda g, y, a, b: (g, -(g * ((a - y) / b))),
    ),
    # Exponentials and logarithms.
    "exp": Operation(torch.exp, *_call("exponential_of", "tl.exp"), lambda g, y, x: (g * y,)),
    "expm1": Operation(
        torch.expm1,
        *_call("exponential_less_one", "expm1"),
        lambda g, y, x: (g * apply("exp", x),),
    ),
    "log": Operation(torch.log, *_call("logarithm_of", "tl.log"), lambda g, y, x: (g / x,)),
    "log1p": Operation(
        torch.log1p,
        *_call("logarithm_of_one_and", "log1p"),
        lambda g, y, x: (g / (1.0 + x),),
    ),
    "sigmoid": Operation(torch.sigmoid, *_call("sigmoid"), lambda g, y, x: (g * (y * apply("sigmoid_complement", x)),)),
    "sigmoid_complement": Operation(
        lambda x: torch.sigmoid(-x),
        "sigmoid(-{0})",
        "sigmoid(-{0})",
        lambda g, y, x: (-(g * (y * apply("sigmoid", x))),),
    ),
    "tanh": Operation(
        torch.tanh,
        *_call("hyperbolic_tangent", "tanh"),
        lambda g, y, x: (g * (1.0 - y * y),),
    ),
    "sinh": Operation(
        torch.sinh,
        *_call("hyperbolic_sine_of", "sinh"),
        lambda g, y, x: (g * apply("cosh", x),),
    ),
    "cosh": Operation(
        torch.cosh,
        *_call("hyperbolic_cosine_of", "cosh"),
        lambda g, y, x: (g * apply("sinh", x),),
    ),
    "asinh": Operation(
        torch.asinh,
        *_call("asinhf", "asinh"),
        lambda g, y, x: (g * apply("rsqrt", x * x + 1.0),),
    ),
    # Roots and powers.
    "sqrt": Operation(torch.sqrt, *_call("square_root", "tl.sqrt"), lambda g, y, x: (g / (2.0 * y),)),
    "rsqrt": Operation(torch.rsqrt, *_call("1.0f / sqrtf", "tl.rsqrt"), lambda g, y, x: (-0.5 * (g * (y * (y * y))),)),
    "pow": Operation(torch.pow, *_call("powf", "power", of=2), _of_power),
    # Trigonometry.
    "sin": Operation(torch.sin, *_call("sinf", "tl.sin"), lambda g, y, x: (g * apply("cos", x),)),
    "cos": Operation(torch.cos, *_call("cosf", "tl.cos"), lambda g, y, x: (-(g * apply("sin", x)),)),
    "tan": Operation(torch.tan, *_call("tanf", "tangent"), lambda g, y, x: (g * (1.0 + y * y),)),
    "atan": Operation(torch.atan, *_call("arctangent_of", "arctangent"), lambda g, y, x: (g / (x * x + 1.0),)),
    "erf": Operation(
        torch.erf,
        *_call("erff", "tl.erf"),
        lambda g, y, x: (2 / math.sqrt(math.pi) * (g * apply("exp", -(x * x))),),
    ),
}
"""Operations by name."""


def gradients(output: Expression) -> dict[Expression, Expression]:
    """Derivatives of a formula with respect to all of its nodes, by backpropagation.

    Each is a product from the output inwards, in the order of autograd: the branch that a `where` does not take gets
    zero, whatever is behind it.
    """
    total = {output: constant(1.0)}
    for node in reversed(ordered([output])):
        if node not in total or not node.inputs or node.is_condition:
            continue
        for part, slope in zip(node.inputs, KNOWN[node.operation].slopes(total[node], node), strict=True):
            if slope is not None and not part.is_condition:
                total[part] = total[part] + slope if part in total else slope
    return total
