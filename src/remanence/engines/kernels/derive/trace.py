"""Traces a function written in torch into a formula, with a dispatch mode that records the operations it calls.

The function runs once on small tensors. Operations that are not pointwise, or that read a tensor value to decide what
comes next (data-dependent control flow), cannot be part of a formula; the error names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .expression import Expression, apply, constant, variable, where


class NotDerivableError(ValueError):
    """A function that cannot be traced into a formula; the message is the reason, as the end of a sentence."""


BlockFormulas = tuple[Expression, ...]
"""The formulas of a tensor that concatenates blocks of units, one per block."""


def formulas(
    function: Callable[..., Sequence[Tensor]], given: Mapping[str, Tensor], wide: Mapping[str, Tensor] | None = None
) -> list[Expression]:
    """The results of a function as formulas of its arguments.

    Args:
        function: Takes tensors by name and returns tensors.
        given: Small tensors that broadcast with each other.
        wide: Tensors that concatenate several blocks of that size; the blocks of `z` are named `z0`, `z1`, ...
    """
    recorder = _Recorder(given, wide or {})
    with torch.no_grad(), recorder:
        results = function(**given, **(wide or {}))
    return [recorder.expression_of(result) for result in results]


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The shape that these shapes broadcast to, or None. torch.broadcast_shapes is not used: it imports sympy."""
    found: list[int] = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            return None
        found.append(others.pop() if others else 1)
    return tuple(reversed(found))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations that are called."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: it never runs under Dynamo, and the default would import the compiler, which takes two seconds."""
        return False

    def __init__(self, given: Mapping[str, Tensor], wide: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: list[Tensor] = []  # keeps tensors alive, so that no id is reused
        self.known: dict[int, Expression | BlockFormulas] = {}
        self.block: int | None = None
        """The block being traced, of tensors that have several."""
        self.shape = _broadcast(*(tensor.shape for tensor in given.values())) or ()
        for name, tensor in given.items():
            self.note(tensor, variable(name))
        for name, tensor in wide.items():
            blocks = tuple(variable(f"{name}{i}") for i in range(tensor.shape[-1] // self.shape[-1]))
            self.note(tensor, blocks if len(blocks) > 1 else blocks[0])

    def note(self, tensor: Tensor, expression: Expression | BlockFormulas) -> None:
        self.alive.append(tensor)
        self.known[id(tensor)] = expression

    def blocks_of(self, value: Any) -> BlockFormulas | None:
        """The formulas of an argument that has several blocks."""
        found = self.known.get(id(value)) if isinstance(value, Tensor) else None
        return found if isinstance(found, tuple) else None

    def expression_of(self, value: Any) -> Expression:
        """The formula of an argument."""
        if isinstance(value, Tensor):
            found = self.known.get(id(value))
            if isinstance(found, tuple):
                if self.block is None:
                    raise NotDerivableError("it computes with several blocks at once instead of each separately")
                found = found[self.block]
            if found is None and value.numel() == 1 and not value.requires_grad:
                found = constant(float(value))
            if found is None:
                raise NotDerivableError("it uses a tensor that is not one of its arguments")
            return found
        if isinstance(value, bool | int | float):
            return constant(value)
        raise NotDerivableError(f"it calls an operation with {value!r}")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        base = name.rstrip("_") if not name.startswith("_") else name
        if base in ("_local_scalar_dense", "item", "is_nonzero", "equal"):
            raise NotDerivableError("it reads the value of a tensor, as an if or .item() does")
        several = [blocks for value in (*args, *kwargs.values()) if (blocks := self.blocks_of(value)) is not None]
        if several or base in PIECES:
            self._note_blocks(base, func, args, kwargs, result, len(several[0]) if several else 1)
            return result
        if not isinstance(result, Tensor):
            if base == "log_sigmoid_forward":
                self.note(result[0], _log_sigmoid(self.expression_of(args[0])))
                return result
            raise NotDerivableError(f"it calls torch.{base}, which is not pointwise")
        fits = _broadcast(result.shape, self.shape) is not None and result.dim() <= len(self.shape)
        if not fits:
            raise NotDerivableError(f"it calls torch.{base} with a result of shape {tuple(result.shape)}")
        target = args[0] if name.endswith("_") and not name.startswith("_") and result is args[0] else result
        self.note(target, self._formula(base, func, args, kwargs, result))
        return result

    def _note_blocks(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, count: int
    ) -> None:
        """Record an operation on several blocks at once: one that splits them, or a pointwise one on each."""
        units = self.shape[-1]
        if name in PIECES:
            blocks, start = self.blocks_of(args[0]) or (self.expression_of(args[0]),), 0
            if name == "slice":
                (whole, dim), begin = args[:2], args[2] if len(args) > 2 else 0
                start = int(begin or 0) % whole.shape[dim] if dim in (-1, whole.dim() - 1) else 0
            for piece in [result] if isinstance(result, Tensor) else result:
                first, many = divmod(start, units)[0], piece.shape[-1] // units
                if start % units or piece.shape[-1] % units or piece.shape[:-1] != args[0].shape[:-1]:
                    raise NotDerivableError(f"it calls torch.{name} with pieces that are not whole blocks")
                self.note(piece, blocks[first] if many == 1 else blocks[first : first + many])
                start += piece.shape[-1]
            return
        if not isinstance(result, Tensor) or result.shape[-1] != count * units:
            raise NotDerivableError(f"it calls torch.{name} with several blocks at once")
        found = []
        for self.block in range(count):
            found.append(self._formula(name, func, args, kwargs, result))
        self.block = None
        self.note(result, tuple(found))

    def _formula(
        self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Tensor
    ) -> Expression:
        if name in FILLED:
            return constant(float(result.flatten()[0]) if result.numel() else 0.0)
        if name in UNCHANGED:
            source = self.expression_of(args[0])
            if source.is_condition and result.dtype != torch.bool:
                return where(source, 1.0, 0.0)
            if result.dtype == torch.bool and not source.is_condition:
                return _truth(source)
            if not result.dtype.is_floating_point and result.dtype != torch.bool:
                raise NotDerivableError(f"it calls torch.{name} to {result.dtype}")
            return source
        rule = RULES.get(name)
        if rule is None:
            raise NotDerivableError(f"it calls torch.{name}, which is not one of the supported pointwise functions")
        names = [argument.name for argument in func._schema.arguments]
        values = dict(zip(names, args, strict=False)) | dict(kwargs)
        values.pop("out", None)  # the result itself
        formed = {key: self._argument(value) for key, value in values.items() if value is not None}
        if name not in LOGICAL:
            if result.dtype == torch.bool and name not in COMPARISONS and any(map(_is_condition, formed.values())):
                raise NotDerivableError(f"it calls torch.{name} with boolean values")
            chosen_by = ("condition", "mask")
            formed = {key: value if key in chosen_by else _as_number(value) for key, value in formed.items()}
        try:
            return rule(**formed)
        except (TypeError, AttributeError) as error:
            words = ", ".join(formed)
            raise NotDerivableError(f"it calls torch.{name} with unsupported arguments ({words})") from error

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.expression_of(value)
        return value


def _is_condition(value: Any) -> bool:
    return isinstance(value, Expression) and value.is_condition


def _as_number(value: Any) -> Any:
    """A boolean as 1 or 0, for arithmetic."""
    return where(value, 1.0, 0.0) if _is_condition(value) else value


FILLED = frozenset(
    {
        "zeros_like",
        "ones_like",
        "full_like",
        "zeros",
        "ones",
        "full",
        "new_zeros",
        "new_ones",
        "new_full",
        "scalar_tensor",
    }
)
"""Operations that create a tensor filled with one value."""
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGICAL = frozenset({"logical_not", "bitwise_not", "logical_and", "bitwise_and", "logical_or", "bitwise_or"})
"""Operations on booleans; all other operations take them as 1 and 0."""
UNCHANGED = frozenset(
    {"_to_copy", "to", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "view", "_unsafe_view", "reshape",
     "expand", "unsqueeze", "squeeze", "contiguous", "positive", "view_as", "expand_as"}
)  # fmt: skip
"""Operations that do not change values."""

PIECES = frozenset({"split", "split_with_sizes", "chunk", "slice", "narrow"})
"""Operations that separate blocks."""

Value = Expression | float


def _lift(value: Value) -> Expression:
    return value if isinstance(value, Expression) else constant(value)


def _unary(name: str) -> Callable[..., Expression]:
    return lambda self, **_: apply(name, _lift(self))


def _softplus(self: Expression, beta: float = 1.0, threshold: float = 20.0) -> Expression:
    # Clamped where it is not used: exp would overflow there, and the gradient would be 0 * inf.
    scaled, limit = float(beta) * self, constant(threshold)
    below = apply("log1p", apply("exp", apply("clamp_max", scaled, limit))) * (1.0 / float(beta))
    return where(limit < scaled, self, below)


def _log_sigmoid(self: Expression) -> Expression:
    # As in torch: min(x, 0) - log1p(exp(-|x|)), with the derivative of a sigmoid: a half at zero, where minimum ties.
    return -apply("log1p", apply("exp", -apply("abs", self))) + apply("minimum", self, constant(0.0))


def _clamp(self: Expression, min: Value | None = None, max: Value | None = None) -> Expression:
    if min is not None:
        self = apply("clamp_min", self, _lift(min))
    if max is not None:
        self = apply("clamp_max", self, _lift(max))
    return self


def _power(self: Value, exponent: Value) -> Expression:
    if not isinstance(exponent, Expression):
        if float(exponent).is_integer() and 1 <= abs(exponent) <= 8:
            product = base = _lift(self)
            for _ in range(int(abs(exponent)) - 1):
                product = product * base
            return product if exponent > 0 else 1.0 / product
        if exponent == 0.5:
            return apply("sqrt", _lift(self))
        if exponent == -0.5:
            return apply("rsqrt", _lift(self))
        if exponent == 0:
            return constant(1.0)
    return apply("pow", _lift(self), _lift(exponent))


def _elu(self: Expression, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expression:
    # Clamped as in `_softplus`.
    below = alpha * scale * apply("expm1", apply("clamp_max", self * float(input_scale), constant(0.0)))
    return where(self <= 0.0, below, float(scale) * self)


def _gelu(self: Expression, approximate: str = "none") -> Expression:
    if approximate == "none":
        return 0.5 * self * (1.0 + apply("erf", self * math.sqrt(0.5)))
    inner = math.sqrt(2 / math.pi) * (self + 0.044715 * (self * self * self))
    return 0.5 * self * (1.0 + apply("tanh", inner))


def _lerp(self: Expression, end: Expression, weight: Value) -> Expression:
    weight, apart = _lift(weight), end - self
    return where(weight < 0.5, self + weight * apart, end - apart * (1.0 - weight))


def _logaddexp(self: Expression, other: Expression) -> Expression:
    larger = apply("maximum", self, other)
    return larger + apply("log1p", apply("exp", -apply("abs", self - other)))


def _truth(value: Expression) -> Expression:
    """A value as boolean: whether it is nonzero."""
    return value if value.is_condition else apply("not", apply("eq", value, constant(0.0)))


def _compare(operation: str, swapped: bool = False, negated: bool = False) -> Callable[..., Expression]:
    def rule(self: Value, other: Value) -> Expression:
        pair = (_lift(self), _lift(other))
        found = apply(operation, *(reversed(pair) if swapped else pair))
        return apply("not", found) if negated else found

    return rule


def _hardtanh(self: Expression, min_val: float = -1.0, max_val: float = 1.0) -> Expression:
    return where(self <= float(min_val), float(min_val), where(constant(max_val) <= self, float(max_val), self))


RULES: dict[str, Callable[..., Expression]] = {
    **{name: _unary(name) for name in ("neg", "reciprocal", "abs", "sign", "floor", "exp", "expm1", "log", "log1p")},
    **{name: _unary(name) for name in ("sigmoid", "tanh", "sinh", "cosh", "asinh", "sqrt", "rsqrt", "sin", "cos")},
    **{name: _unary(name) for name in ("tan", "atan", "erf", "isnan")},
    "sgn": _unary("sign"),
    "arctan": _unary("atan"),
    "negative": _unary("neg"),
    "add": lambda self, other, alpha=1: _lift(self) + _lift(other) * float(alpha),
    "sub": lambda self, other, alpha=1: _lift(self) - _lift(other) * float(alpha),
    "rsub": lambda self, other, alpha=1: _lift(other) - _lift(self) * float(alpha),
    "mul": lambda self, other: _lift(self) * _lift(other),
    "div": lambda self, other: _lift(self) / _lift(other),
    "true_divide": lambda self, other: _lift(self) / _lift(other),
    "pow": _power,
    "square": lambda self: self * self,
    "exp2": lambda self: apply("exp", math.log(2) * self),
    "log2": lambda self: apply("log", self) * (1 / math.log(2)),
    "log10": lambda self: apply("log", self) * (1 / math.log(10)),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda self, min: apply("clamp_min", self, _lift(min)),
    "clamp_max": lambda self, max: apply("clamp_max", self, _lift(max)),
    "maximum": lambda self, other: apply("maximum", _lift(self), _lift(other)),
    "minimum": lambda self, other: apply("minimum", _lift(self), _lift(other)),
    "where": lambda condition, self=0.0, other=0.0: where(condition, self, other),
    "masked_fill": lambda self, mask, value: where(mask, value, self),
    "lerp": _lerp,
    "addcmul": lambda self, tensor1, tensor2, value=1: self + float(value) * (tensor1 * tensor2),
    "addcdiv": lambda self, tensor1, tensor2, value=1: self + float(value) * (tensor1 / tensor2),
    "lt": _compare("lt"),
    "le": _compare("le"),
    "gt": _compare("lt", swapped=True),
    "ge": _compare("le", swapped=True),
    "eq": _compare("eq"),
    "ne": _compare("eq", negated=True),
    "logical_not": lambda self: apply("not", _truth(self)),
    "bitwise_not": lambda self: apply("not", _truth(self)),
    "logical_and": lambda self, other: apply("and", _truth(self), _truth(other)),
    "bitwise_and": lambda self, other: apply("and", _truth(self), _truth(other)),
    "logical_or": lambda self, other: apply("or", _truth(self), _truth(other)),
    "bitwise_or": lambda self, other: apply("or", _truth(self), _truth(other)),
    "softplus": _softplus,
    "relu": lambda self: where(self <= 0.0, 0.0, self),
    "leaky_relu": lambda self, negative_slope=0.01: where(constant(0.0) < self, self, float(negative_slope) * self),
    "elu": _elu,
    "celu": lambda self, alpha=1.0: _elu(self, alpha, 1.0, 1.0 / alpha),
    "silu": lambda self: self * apply("sigmoid", self),
    "gelu": _gelu,
    "mish": lambda self: self * apply("tanh", _softplus(self)),
    "hardtanh": _hardtanh,
    "hardsigmoid": lambda self: _hardtanh(self * (1 / 6) + 0.5, 0.0, 1.0),
    "hardswish": lambda self: self * _hardtanh(self * (1 / 6) + 0.5, 0.0, 1.0),
    "remainder": lambda self, other: apply("remainder", _lift(self), _lift(other)),
    "logaddexp": _logaddexp,
}  # fmt: skip
"""Formulas of torch's functions; parameters have the names of torch's arguments."""
