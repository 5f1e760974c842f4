"""Forget gates, one file each. `KNOWN` maps names to gates; register a custom gate by adding it there."""

from ..names import lookup
from .base import Forgetting, Gate
from .fast import Fast
from .power_law import PowerLaw
from .refine import Refine
from .sigmoid import Sigmoid
from .softsign import Softsign
from .sound import expect_sound
from .ur import UniformRefine

KNOWN: dict[str, type[Gate]] = {gate.name: gate for gate in (Sigmoid, Fast, Softsign, Refine, UniformRefine, PowerLaw)}

__all__ = [
    "KNOWN",
    "Fast",
    "Forgetting",
    "Gate",
    "PowerLaw",
    "Refine",
    "Sigmoid",
    "Softsign",
    "UniformRefine",
    "gate_named",
]


def gate_named(gate: str | Gate) -> Gate:
    """Return a gate object unchanged, or make the gate of this name. A custom gate is checked first.

    Args:
        gate: A name in `KNOWN`, or a gate.

    Raises:
        ValueError: The name is unknown, or a custom gate breaks the rules of `Gate.__call__`.
        TypeError: This is neither a name nor a gate.

    Examples:
        >>> from remanence import gates
        >>> gates.gate_named("fast")
        Fast()
    """
    if not isinstance(gate, Gate):
        if not isinstance(gate, str):
            raise TypeError(f"expected gate to be a name or a gate object, got {type(gate).__name__}")
        gate = lookup("gate", gate, KNOWN)()
    if type(gate).__module__.rpartition(".")[0] != __name__:
        expect_sound(gate)
    return gate
