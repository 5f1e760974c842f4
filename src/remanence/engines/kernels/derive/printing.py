"""Prints formulas as lines of C++ or Triton code."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .expression import Expression, ordered
from .operations import KNOWN

PAIR = ("sigmoid", "sigmoid_complement")
"""Operations that are computed together: both cost hardly more than one, because they share an exponential and a
reciprocal."""
RATIO = "log1p"
"""Operation that takes a quotient as numerator and denominator, so that it does not wait for the division."""

LARGEST = 3.4028235e38
"""Largest finite float32."""
LONG = 60
"""Length in characters from which on a value is assigned to a variable."""


@dataclass(frozen=True)
class Language:
    """Syntax of a target language."""

    spelling: Callable[[str], str]
    """Template of an operation, with a placeholder for every input."""
    number: Callable[[float], str]
    define: str
    """Template of a variable definition: `{type}`, `{name}`, `{value}`."""
    number_type: str = ""
    condition_type: str = ""
    pair: str = ""
    """Template that assigns a sigmoid and its complement to `{one}` and `{other}`."""
    ratio: str = ""
    """Template of log(1 + `{0}` / `{1}`)."""


def shortest(value: float) -> str:
    """The shortest decimal that rounds to this number in float32."""
    single = struct.unpack("f", struct.pack("f", value))[0]
    for digits in range(1, 18):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def cpp_number(value: float) -> str:
    """A C++ literal."""
    if value != value:
        return "(infinity() - infinity())"
    if abs(value) > LARGEST:
        return "infinity()" if value > 0 else "-infinity()"
    return f"{shortest(value)}f"


def triton_number(value: float) -> str:
    """A Triton literal."""
    if value != value:
        return 'float("nan")'
    if abs(value) > LARGEST:
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return shortest(value)


CPP = Language(
    lambda operation: KNOWN[operation].cpp,
    cpp_number,
    "{type} {name} = {value};",
    "float",
    "bool",
    "Pair {one}_and_{other} = sigmoids({of}); float {one} = {one}_and_{other}.of, {other} = {one}_and_{other}.other;",
    "logarithm_of_one_and_ratio({0}, {1})",
)
TRITON = Language(
    lambda operation: KNOWN[operation].triton,
    triton_number,
    "{name} = {value}",
    pair="{one}, {other} = sigmoids({of})",
    ratio="log1p_of_ratio({0}, {1})",
)


@dataclass
class Printer:
    """Prints the lines of code that compute some formulas."""

    language: Language
    names: Mapping[str, str]
    """How variables are written in the code."""
    lines: list[str] = field(default_factory=list)
    named: int = 0

    def values(self, outputs: Sequence[Expression]) -> list[str]:
        """Append the lines that compute the formulas, and return the expressions that hold their values."""
        nodes = ordered(outputs, parts)
        uses = Counter(part for node in nodes for part in parts(node)) + Counter(outputs)
        written: dict[Expression, str] = {}
        for node in nodes:
            if node in written:
                continue
            if node.operation == "constant":
                written[node] = self.language.number(node.number)
            elif node.operation == "variable":
                written[node] = self.names[str(node.value)]
            elif node.operation in PAIR and (partner := _partner(node, nodes)) is not None:
                one, other = (node, partner) if node.operation == PAIR[0] else (partner, node)
                written[one], written[other] = self._new_name(), self._new_name()
                of = written[node.inputs[0]]
                self.lines.append(self.language.pair.format(one=written[one], other=written[other], of=of))
            else:
                value = self._spelled(node, written)
                if uses[node] == 1 and node not in outputs and len(value) < LONG:
                    written[node] = f"({value})"
                else:
                    kind = self.language.condition_type if node.is_condition else self.language.number_type
                    written[node] = self._new_name()
                    self.lines.append(self.language.define.format(type=kind, name=written[node], value=value))
        return [written[node] for node in outputs]

    def _new_name(self) -> str:
        self.named += 1
        return f"v{self.named}"

    def _spelled(self, node: Expression, written: Mapping[Expression, str]) -> str:
        if (ratio := _ratio(node)) is not None:
            return self.language.ratio.format(*(written[part] for part in ratio))
        if (apart := _difference(node)) is not None:
            return "{} - {}".format(*(written[part] for part in apart))
        return self.language.spelling(node.operation).format(*(written[part] for part in node.inputs))


def parts(node: Expression) -> tuple[Expression, ...]:
    """The nodes that a node's code refers to."""
    return _ratio(node) or _difference(node) or node.inputs


def _ratio(node: Expression) -> tuple[Expression, ...] | None:
    """Numerator and denominator, for log(1 + x / y)."""
    if node.operation == RATIO and node.inputs[0].operation == "mul":
        for x, y in (node.inputs[0].inputs, node.inputs[0].inputs[::-1]):
            if y.operation == "reciprocal":
                return x, y.inputs[0]
    return None


def _difference(node: Expression) -> tuple[Expression, ...] | None:
    """Minuend and subtrahend, for a sum with a negated term."""
    if node.operation == "add":
        for x, y in (node.inputs, node.inputs[::-1]):
            if y.operation == "neg" and x.operation != "neg":
                return x, y.inputs[0]
    return None


def _partner(node: Expression, nodes: Sequence[Expression]) -> Expression | None:
    """The other sigmoid of the same argument."""
    wanted = PAIR[1 - PAIR.index(node.operation)]
    return next((other for other in nodes if other.operation == wanted and other.inputs == node.inputs), None)
