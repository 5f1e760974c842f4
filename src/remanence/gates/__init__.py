"""Forget gates, one file each. `KNOWN` is the list of names; add a gate by adding it there."""

from .base import Forgetting, Gate
from .fast import Fast
from .power_law import PowerLaw
from .refine import Refine
from .sigmoid import Sigmoid
from .softsign import Softsign
from .ur import UniformRefine

KNOWN: dict[str, type[Gate]] = {gate.name: gate for gate in (Sigmoid, Fast, Softsign, Refine, UniformRefine, PowerLaw)}

__all__ = ["KNOWN", "Fast", "Forgetting", "Gate", "PowerLaw", "Refine", "Sigmoid", "Softsign", "UniformRefine"]
