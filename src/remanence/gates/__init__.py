"""Forget gates, one file each. `KNOWN` is the list of names; add a gate by adding it there."""

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
    """The gate itself, or a new one of that name; one from outside of the package is tried first."""
    if not isinstance(gate, Gate):
        if not isinstance(gate, str):
            raise TypeError(f"expected gate to be a name or a gate object, got {type(gate).__name__}")
        gate = lookup("gate", gate, KNOWN)()
    if type(gate).__module__.rpartition(".")[0] != __name__:
        expect_sound(gate)
    return gate
