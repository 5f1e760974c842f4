"""Formulas that are read off a gate: their values and derivatives, and the code they are printed as.

What kernels make of them is in `test_own_gates.py`.
"""

from __future__ import annotations

import ctypes
import itertools
import linecache
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import remanence as rm
from remanence.engines.cpp import engine as host
from remanence.engines.cpp.compiler import HERE, library
from remanence.engines.kernels.derive import cpp, derived, operations, triton
from remanence.engines.kernels.derive import expression as ex
from remanence.engines.kernels.derive.evaluate import evaluated
from remanence.engines.kernels.derive.printing import CPP, TRITON, Language, Printer, cpp_number, triton_number
from remanence.engines.kernels.derive.trace import RULES, NotDerivableError, formulas
from remanence.engines.kernels.machine_code import FUNCTIONS, joined
from remanence.gates import KNOWN as GATES
from remanence.gates import PowerLaw

KINKS = [-6.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0]
"""Kinks of piecewise functions, and integers; pairs of them include ties."""
NAMES = ("x", "y", "w")


def points(many: int) -> dict[str, Tensor]:
    """Random numbers, and all pairs of kinks; the last of three is random."""
    source = torch.Generator().manual_seed(0)
    pairs = torch.tensor(list(itertools.product(KINKS, KINKS)), dtype=torch.float64)
    drawn = 3 * torch.randn(200, 3, generator=source, dtype=torch.float64)
    third = torch.randn(len(pairs), 1, generator=source, dtype=torch.float64)
    columns = torch.cat((drawn, torch.cat((pairs, third), 1))).unbind(1)
    return dict(zip(NAMES[:many], columns, strict=False))


def slopes_of(formula: ex.Expression, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Derivatives of a formula with respect to all inputs."""
    by = operations.gradients(formula)
    wanted = [by.get(ex.variable(name), ex.constant(0.0)) for name in given]
    like = next(iter(given.values()))
    return dict(zip(given, (part.expand_as(like) for part in evaluated(wanted, given)), strict=True))


def slopes_of_torch(function: Callable[..., Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same by autograd."""
    leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
    found = function(*leaves.values())
    if not found.requires_grad:
        return {name: torch.zeros_like(value) for name, value in given.items()}
    slopes = torch.autograd.grad(found.sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, slopes, strict=True))


def assert_like(
    found: Mapping[str, Tensor], truth: Mapping[str, Tensor], given: Mapping[str, Tensor], relative: float = 1e-9
) -> None:
    """Equal up to float64 rounding, including NaN and infinity."""
    for name, true in truth.items():
        wrong = ~torch.isclose(found[name], true, rtol=relative, atol=1e-12, equal_nan=True)
        where = [tuple(float(value[i]) for value in given.values()) for i in wrong.nonzero().flatten().tolist()[:5]]
        assert not wrong.any(), f"by {name} at {where}: {found[name][wrong][:5]}, not {true[wrong][:5]}"


# Operations.

OF_CONDITION = {"where": 2, "not": 1, "and": 2, "or": 2}
"""Operations that take or return a condition, and their number of other inputs."""
TWO = {"add", "mul", "lt", "le", "eq", "maximum", "minimum", "clamp_min", "clamp_max", "pow", "remainder"}


def inputs_of(name: str) -> int:
    return 2 if name in TWO or name in OF_CONDITION else 1


def formula_of(name: str) -> ex.Expression:
    """The operation on x, or x and y."""
    x, y = ex.variable("x"), ex.variable("y")
    if name == "where":
        return ex.apply("where", x < y, x * x, y)
    if name == "not":
        return ex.apply("not", x < y)
    if name in ("and", "or"):
        return ex.apply(name, x < y, ex.constant(0.0) <= x)
    return ex.apply(name, *((x, y) if name in TWO else (x,)))


@pytest.mark.parametrize("name", [name for name in operations.KNOWN if name not in ex.CONDITIONS])
def test_derivatives_of_operations_match_autograd(name: str) -> None:
    if name == "cosh_from_sinh":
        pytest.skip("only in derivatives, not differentiated itself")
    given = points(inputs_of(name))
    if name == "remainder":  # undefined for a zero divisor
        given = {key: value[given["y"] != 0] for key, value in given.items()}
    formula = formula_of(name)
    truth = slopes_of_torch(lambda *values: evaluated([formula], dict(zip(given, values, strict=True)))[0], given)
    assert_like(slopes_of(formula, given), truth, given)


@pytest.mark.parametrize("name", [name for name in operations.KNOWN if name in ex.CONDITIONS])
def test_conditions_have_no_derivative(name: str) -> None:
    x, formula = ex.variable("x"), formula_of(name)
    by = operations.gradients(ex.where(formula, x * 2.0, x * 3.0))
    given = points(2)
    holds, slope = evaluated([formula, by[x]], given)
    assert holds.dtype == torch.bool
    assert torch.equal(slope, torch.where(holds, 2.0, 3.0).double())
    assert ex.variable("y") not in by


# Every function of torch that a gate may call.

CALLS: dict[str, Callable[..., Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("neg", "reciprocal", "abs", "sign", "floor", "exp", "expm1", "log", "log1p", "sigmoid", "tanh", "sinh"),
            *("cosh", "asinh", "sqrt", "rsqrt", "sin", "cos", "tan", "atan", "erf", "sgn", "arctan", "negative"),
            *("square", "exp2", "log2", "log10", "relu"),
        )
    },
    **{
        name: getattr(functional, name)
        for name in ("softplus", "leaky_relu", "elu", "silu", "gelu", "mish", "hardtanh", "hardsigmoid", "hardswish")
    },
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "rsub", "mul", "div", "true_divide", "maximum", "minimum", "remainder", "logaddexp")
    },
    "celu": lambda x: functional.celu(x, alpha=0.7),
    "isnan": lambda x: torch.where(torch.isnan(x.log()), x, 2 * x),
    "pow": lambda x, y: torch.pow(x.abs(), y),
    "clamp": lambda x: torch.clamp(x, -1.0, 2.0),
    "clip": lambda x: torch.clip(x, max=0.5),
    "clamp_min": lambda x: torch.clamp_min(x, -1.0),
    "clamp_max": lambda x: torch.clamp_max(x, 2.0),
    "where": lambda x, y: torch.where(x < y, x * x, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 3.0),
    "lerp": torch.lerp,
    "addcmul": lambda x, y, w: torch.addcmul(x, y, w, value=0.5),
    "addcdiv": lambda x, y, w: torch.addcdiv(x, y, w, value=-2),
    **{
        name: (lambda compare: lambda x, y: torch.where(compare(x, y), x, 2 * y))(getattr(torch, name))
        for name in ("lt", "le", "gt", "ge", "eq", "ne")
    },
    **{
        name: (lambda both: lambda x, y: torch.where(both(x < y, x > 0), x, 2 * y))(getattr(torch, name))
        for name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or")
    },
    **{
        name: (lambda negate: lambda x, y: torch.where(negate(x < y), x, 2 * y))(getattr(torch, name))
        for name in ("logical_not", "bitwise_not")
    },
}
OTHER_CALLS: dict[str, Callable[..., Tensor]] = {
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x ** 9": lambda x: x**9,
    "x ** 0": lambda x: x**0 * x,
    "x ** 0.5": lambda x: x**0.5,
    "x ** -0.5": lambda x: x**-0.5,
    "|x| ** 1.7": lambda x: x.abs() ** 1.7,
    "2 ** x": lambda x: 2.0**x,
    "1 - x": lambda x: 1 - x,
    "1 / x": lambda x: 1 / x,
    "x / 3": lambda x: x / 3,
    "alpha": lambda x, y: torch.add(x, y, alpha=3) - torch.sub(x, y, alpha=0.5),
    "x % 2": lambda x: x % 2,
    "clamp between others": lambda x, y, w: torch.clamp(x, y, w),
    "clamp the wrong way round": lambda x: torch.clamp(x, 2.0, 1.0),
    "softplus, steep": lambda x: functional.softplus(x, beta=2.0, threshold=5.0),
    "elu, low": lambda x: functional.elu(x, alpha=0.3),
    "selu": functional.selu,
    "gelu, by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "leaky": lambda x: functional.leaky_relu(x, 0.2),
    "relu6": functional.relu6,
    "softsign": functional.softsign,
    "tanhshrink": functional.tanhshrink,
    "logsigmoid": functional.logsigmoid,
    "expit": torch.special.expit,
    "lerp by a number": lambda x, y: torch.lerp(x, y, 0.75),
    "where with numbers": lambda x: x * torch.where(x > 0, 1.0, 0.5),
    "nested where": lambda x: torch.where(x > 1, torch.where(x > 2, x, x * x), torch.where(x < -1, -x * x, x)),
    "a condition as a number": lambda x: x * (x > 0) + (x < 1) * 0.5,
    "a condition of a number": lambda x: torch.where(functional.relu(x).bool(), x, 2 * x),
    "conditions of numbers": lambda x, y: torch.where(torch.logical_and(x, y), x, torch.logical_not(x) * y),
    "equal conditions": lambda x, y: torch.where((x > 0) == (y > 0), x, y),
    "a tensor of one number": lambda x: x * torch.tensor(0.5) + torch.tensor([2.0]),
    "a number of 16 bits": lambda x: x * torch.tensor(0.1, dtype=torch.float16),
    "in place": lambda x: (x * 1).clamp_(-2, 2).mul_(3).sigmoid_(),
    "views": lambda x, y: x.reshape(-1).clone() * y.view(-1).expand_as(x).contiguous(),
    "numbers as tensors": lambda x: torch.full_like(x, 0.25) * x + torch.ones_like(x) - torch.zeros_like(x),
    "another dtype and back": lambda x: x.double() + x.to(torch.float64),
    "the same twice": lambda x: (x + x) * x,
}


def test_every_supported_function_is_tested_here() -> None:
    assert set(CALLS) == set(RULES)


def shift_ties(name: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without points that divide by zero, or whose quotient is an integer: its floor depends on the last bit."""
    if name not in ("remainder", "x % 2"):
        return given
    return {key: value + 0.05 * (place + 1) for place, (key, value) in enumerate(given.items())}


@pytest.mark.parametrize("name", [*CALLS, *OTHER_CALLS])
def test_formulas_of_functions_match_the_functions(name: str) -> None:
    function = (CALLS | OTHER_CALLS)[name]
    code = getattr(function, "__code__", None)
    three = ("lerp",)
    two = ("add", "sub", "rsub", "mul", "div", "true_divide", "maximum", "minimum", "remainder", "logaddexp")
    many = 3 if name in three else 2 if name in two else code.co_argcount if "lambda" in repr(function) else 1
    given = shift_ties(name, points(many))
    (formula,) = formulas(lambda **values: [function(*values.values())], given)
    (found,) = evaluated([formula], given)
    assert_like({"value": found.expand_as(given["x"])}, {"value": function(*given.values())}, given)
    loose = 1e-6 if name in ("hardsigmoid", "celu") else 1e-9  # torch has float32 constants in these
    assert_like(slopes_of(formula, given), slopes_of_torch(function, given), given, loose)


SATURATING = (
    "softplus",
    "softplus, steep",
    "elu",
    "elu, low",
    "celu",
    "selu",
    "mish",
    "silu",
    "gelu",
    "sigmoid",
    "tanh",
)


@pytest.mark.parametrize("name", [*SATURATING, "log_sigmoid", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu"])
def test_gradients_are_finite_where_an_exponential_would_overflow(name: str) -> None:
    function = (CALLS | OTHER_CALLS | {"log_sigmoid": functional.logsigmoid})[name]
    given = {"x": torch.tensor([-1000.0, -100.0, -1.0, 0.5, 100.0, 1000.0], dtype=torch.float64)}
    (formula,) = formulas(lambda **values: [function(*values.values())], given)
    (found,) = evaluated([formula], given)
    assert_like({"value": found}, {"value": function(given["x"])}, given)
    slopes = slopes_of(formula, given)
    assert slopes["x"].isfinite().all()
    assert_like(slopes, slopes_of_torch(function, given), given, 1e-6)


def test_an_out_argument_is_the_result() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        place = torch.zeros_like(x)
        torch.add(x, y, out=place)
        return [place * 2]

    given = points(2)
    (formula,) = formulas(function, given)
    torch.testing.assert_close(evaluated([formula], given)[0], 2 * (given["x"] + given["y"]))


NOT_FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "mean": (lambda x: x - x.mean(-1, keepdim=True), r"torch\.mean"),
    "cumsum": (lambda x: x.cumsum(-1), r"torch\.cumsum"),
    "a decision": (lambda x: x if x.sum() > 0 else -x, r"torch\.sum|reads the value"),
    "a number out of it": (lambda x: x * x.flatten()[0].item(), r"torch\.\w+|reads the value"),
    "random numbers": (lambda x: x + torch.rand_like(x), r"torch\.rand"),
    "a tensor of its own": (lambda x: x + torch.arange(5.0), r"torch\.arange"),
    "a parameter of its own": (lambda x: x * LEARNT, r"a tensor that is not one of its arguments"),
    "rounded quotients": (lambda x: torch.div(x, 2, rounding_mode="floor"), r"torch\.div .*rounding_mode"),
    "sums of conditions": (lambda x: ((x > 0) + (x > 1)).to(x.dtype), r"torch\.add with boolean values"),
    "a chosen condition": (
        lambda x: torch.where(torch.where(x > 0, x > 1, x < -1), x, -x),
        r"torch\.where with boolean values",
    ),
    "whole numbers": (lambda x: x * x.long(), r"to torch.int64"),
    "two results": (lambda x: torch.frexp(x)[0], r"torch\.frexp"),
}
LEARNT = torch.nn.Parameter(torch.tensor(2.0))


@pytest.mark.parametrize("name", NOT_FORMULAS)
def test_the_error_names_what_cannot_be_traced(name: str) -> None:
    function, sentence = NOT_FORMULAS[name]
    with pytest.raises(NotDerivableError, match=sentence):
        formulas(lambda x: [function(x)], {"x": torch.randn(3, 5)})


# Simplification.


def test_simplification_keeps_nan_and_infinity() -> None:
    x, zero = ex.variable("x"), ex.constant(0.0)
    given = {"x": torch.tensor([math.inf, math.nan, 1.0])}
    (product,) = evaluated([zero * x], given)
    assert product.isnan().tolist() == [True, True, False]
    (difference,) = evaluated([x - x], given)
    assert difference.isnan().tolist() == [True, True, False]


def test_expressions_are_simplified() -> None:
    x, y = ex.variable("x"), ex.variable("y")
    assert x * 1.0 is x
    assert x + 0.0 is x
    assert ex.apply("neg", -x) is x
    assert 2.0 * (x * 3.0) is 6.0 * x
    assert x * y is y * x
    assert ex.where(x < y, x, x) is x
    assert ex.apply("sigmoid", -x) is ex.apply("sigmoid_complement", x)


def test_literals_are_short_and_exact() -> None:
    assert cpp_number(0.1) == "0.1f"
    assert cpp_number(1e300) == cpp_number(math.inf) == "infinity()"
    assert cpp_number(-1e300) == cpp_number(-math.inf) == "-infinity()"
    assert triton_number(1e300) == 'float("inf")'
    assert triton_number(-1e300) == 'float("-inf")'
    for value in (1 / 3, math.pi, 1e-38, 3.4028234663852886e38, 2**-149, 16777217.0):
        single = torch.tensor(value, dtype=torch.float64).float()
        assert torch.tensor(float(triton_number(value)), dtype=torch.float64).float() == single
    assert "nan" in triton_number(math.nan)


# Functions of the kernels, in float32.

SINGLE = torch.float32
BOUNDS: dict[str, float] = {"erf": 3e-6, "tan": 2e-6, "pow": 2e-5, "sin": 1e-6, "cos": 1e-6}
"""Relative tolerances of some operations. All others have `USUAL`, a few roundings of 6e-8."""
USUAL = 6e-7
SMALLEST = 3e-38
"""Results below this may be zero: kernels flush denormals, with a margin of a factor of two."""
LARGEST = 3.4028235e38


def wide_range() -> Tensor:
    """Values of all magnitudes and both signs, those where a series meets another form, NaN and infinity."""
    source = torch.Generator().manual_seed(0)
    sizes = 10 ** torch.empty(4000, dtype=torch.float64).uniform_(-44, 38.5, generator=source)
    usual = torch.empty(4000, dtype=torch.float64).uniform_(-10, 10, generator=source)
    steep = torch.empty(1000, dtype=torch.float64).uniform_(-105, 95, generator=source)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan], dtype=torch.float64)
    return torch.cat((sizes, -sizes, usual, steep, special)).float()


def other_range() -> Tensor:
    """Second inputs: the same values in another order, often equal to the first ones."""
    numbers = wide_range()
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(1))
    mixed = numbers[order]
    mixed[::5] = numbers[::5]
    return mixed


def printed(name: str, language: Language, names: Mapping[str, str]) -> tuple[list[str], str]:
    """The lines of code of an operation, and the expression of its result."""
    formula = formula_of(name)
    printer = Printer(language, names)
    (value,) = printer.values([ex.where(formula, 1.0, 0.0) if formula.is_condition else formula])
    return printer.lines, value


def assert_accurate(name: str, found: Tensor) -> None:
    """Within tolerance where the result is a normal number; elsewhere of the same class as torch's in float32."""
    x, y = wide_range(), other_range()
    formula = formula_of(name)
    if formula.is_condition:
        formula = ex.where(formula, 1.0, 0.0)
    (true,) = evaluated([formula], {"x": x.double(), "y": y.double()})
    (single,) = evaluated([formula], {"x": x, "y": y})
    if name == "remainder":  # exact in kernels if float32 represents the integer quotient
        some = (x.abs() < 1e6 * y.abs()) & (y.abs() > 1e-30) & (y.abs() < 1e30)
        assert some.sum() > 1000
        error = (found.double() - true).abs() / y.double().abs()
        bad = some & ~(torch.minimum(error, (1 - error).abs()) <= 1e-6)  # 0 and a whole period are the same
        examples = [(float(x[i]), float(y[i]), float(found[i]), float(true[i])) for i in bad.nonzero().flatten()[:4]]
        assert not bad.any(), f"{name}: such as {examples}"
        return
    usual = true.isfinite() & (true.abs() > SMALLEST) & (true.abs() < LARGEST / (20 if name == "sinh" else 2))
    if name in ("sin", "cos", "tan"):
        usual &= x.abs() < 1e4  # beyond, one ulp of x is a part of a period
    error = ((found.double() - true) / true).abs()
    bound = BOUNDS.get(name, USUAL)
    bad = usual & ~(error <= bound)
    examples = [(float(x[i]), float(y[i]), float(found[i]), float(true[i])) for i in bad.nonzero().flatten()[:4]]
    assert not bad.any(), f"{name}: {float(error[usual].max()):.1e} beyond {bound:.1e}, such as {examples}"
    small = (true.abs() <= SMALLEST) & ~x.isnan()  # torch's sign of these is zero
    wrong = small & ~(found.abs() <= 2 * SMALLEST)
    assert not wrong.any(), f"{name}: {x[wrong][:4]}, {found[wrong][:4]}"
    rest = ~usual & ~small & ((true.abs() > LARGEST) | ~true.isfinite())
    if name.startswith("clamp"):
        rest &= ~y.isnan()  # a NaN bound does not clamp
    if name not in ("sin", "cos", "tan"):
        kinds = (Tensor.isnan, Tensor.isposinf, Tensor.isneginf)
        for kind in kinds:
            other = rest & (kind(found) != kind(single))
            examples = [
                (float(x[i]), float(y[i]), float(found[i]), float(single[i])) for i in other.nonzero().flatten()
            ]
            assert not other.any(), f"{name}: {examples[:4]}"


@pytest.fixture(scope="module")
def compiled() -> ctypes.CDLL:
    """Every operation as a loop over values, with the headers of the engine "c++"."""
    loops = []
    for name in operations.KNOWN:
        lines, value = printed(name, CPP, {"x": "x[i]", "y": "y[i]"})
        body = "\n".join([*lines, f"out[i] = {value};"])
        loops.append(
            f'extern "C" void of_{name}(int64_t many, const float* x, const float* y, float* out) {{\n'
            f"SIDE_BY_SIDE\nfor (int64_t i = 0; i < many; ++i) {{\n{body}\n}}\n}}"
        )
    return library(joined([HERE / "loops.hpp", HERE / "processor.hpp", FUNCTIONS, *loops]))


@pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("name", operations.KNOWN)
def test_functions_in_cpp_are_accurate(name: str, compiled: ctypes.CDLL) -> None:
    x, y = wide_range(), other_range()
    out = torch.empty_like(x)
    addresses = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, y, out))
    getattr(compiled, f"of_{name}")(ctypes.c_int64(len(x)), *addresses)
    assert_accurate(name, out)


KERNEL = """
@triton.jit
def kernel(x_pointer, y_pointer, out, MANY: tl.constexpr):
    i = tl.arange(0, MANY)
    x = tl.load(x_pointer + i)
    y = tl.load(y_pointer + i)
    {lines}
    tl.store(out + i, {value})
"""


def triton_kernel(name: str) -> Any:
    """An operation as a kernel, with the functions of the engine "triton"."""
    import triton as library_of_kernels
    import triton.language as tl

    from remanence.engines.triton import functions

    lines, value = printed(name, TRITON, {"x": "x", "y": "y"})
    text = KERNEL.format(lines="\n    ".join(lines), value=value)
    file = f"<operation {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {**vars(functions), "triton": library_of_kernels, "tl": tl}
    exec(compile(text, file, "exec"), space)
    return space["kernel"]


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy evaluates both branches of where
@pytest.mark.parametrize("name", operations.KNOWN)
def test_functions_in_triton_are_accurate_interpreted(name: str) -> None:
    x, y = wide_range(), other_range()
    more = (1 << (len(x) - 1).bit_length()) - len(x)
    wide = [functional.pad(tensor, (0, more), value=1.0) for tensor in (x, y)]
    out = torch.empty_like(wide[0])
    triton_kernel(name)[(1,)](*wide, out, MANY=len(out))
    assert_accurate(name, out[: len(x)])


# Code of gates.

PRINT = """
import sys
from remanence.engines.kernels.derive import cpp, derived, triton
from remanence.gates import KNOWN
for name in sys.argv[1:]:
    gate = KNOWN[name]()
    for has_dt in (False, True) if gate.takes_dt else (False,):
        formulas = derived(gate, has_dt)
        print(formulas.digest, cpp.source(formulas), triton.source(formulas), sep="\\n")
    print("####")
"""


@pytest.mark.long
def test_code_is_the_same_in_every_process_and_order() -> None:
    found = []
    for seed, names in (("1", list(GATES)), ("2", list(reversed(GATES)))):
        done = subprocess.run(
            [sys.executable, "-c", PRINT, *names],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(dict(zip(names, done.stdout.split("####\n"), strict=False)))
    assert found[0] == found[1]
    assert all("gate_forward" in text for text in found[0].values())


@pytest.mark.parametrize("has_dt", [False, True])
@pytest.mark.parametrize("gate", [PowerLaw(), PowerLaw(p=0.5)], ids=["learnt", "fixed"])
def test_the_code_of_the_power_law_loses_no_precision(gate: PowerLaw, has_dt: bool) -> None:
    formulas = derived(gate, has_dt)
    in_cpp, in_triton = cpp.source(formulas), triton.source(formulas)
    assert "logarithm_of_one_and_ratio(" in in_cpp
    assert "exponential_less_one(" in in_cpp
    assert "logarithm_of(" not in in_cpp
    assert "log1p_of_ratio(" in in_triton
    assert "expm1(" in in_triton
    assert "tl.log(" not in in_triton
    complement = formulas.complement
    assert "expm1" in repr(complement)
    assert "exp(" not in repr(complement).replace("expm1(", "")


@pytest.mark.parametrize("name", ["sigmoid", "fast", "power_law"])
def test_slopes_stay_precise_where_the_forget_value_rounds_to_one(name: str) -> None:
    formulas = derived(GATES[name](), False)
    end = {"sigmoid": 80.0, "fast": 4.9, "power_law": 60.0}[name]
    z = torch.linspace(-end, end, 4001, dtype=torch.float64).float()
    given = {"z0": z, "carried0": torch.full_like(z, 1e4), "fixed0": torch.full_like(z, 0.3)}
    slope = formulas.by_forget["z0"]
    (place,) = (formulas.slopes[int(str(slope.value).removeprefix("slope"))],)
    (found,), (true,) = (
        evaluated([place], {key: value.to(dtype) for key, value in given.items()}) for dtype in (SINGLE, torch.float64)
    )
    (forget,) = evaluated([formulas.forget], given)
    usual = true.abs() > 1e-37
    assert (forget[usual] == 1).any() or name == "power_law"
    assert (((found - true) / true).abs()[usual] < 1e-5).all()


def test_deriving_a_cell_does_not_seed_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights on a GPU would otherwise depend on whether their cell was derived while the layer was made."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    rm.PhasedLSTM(2, 3, leak=0.0123)  # a cell that was not derived before
    assert seeded == []
