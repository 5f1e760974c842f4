"""What gates contribute, one file each. A gate of the package that stands in `KNOWN` runs on this engine."""

from ....gates import Fast, Gate, PowerLaw, Refine, Sigmoid, Softsign, UniformRefine
from .base import Decision, GateKernel, Reading, Slopes
from .fast import FastKernel
from .power_law import PowerLawKernel
from .refine import RefineKernel
from .sigmoid import SigmoidKernel
from .softsign import SoftsignKernel

KNOWN: dict[type[Gate], type[GateKernel]] = {
    Sigmoid: SigmoidKernel,
    Fast: FastKernel,
    Softsign: SoftsignKernel,
    Refine: RefineKernel,
    UniformRefine: RefineKernel,
    PowerLaw: PowerLawKernel,
}

__all__ = ["KNOWN", "Decision", "GateKernel", "Reading", "Slopes"]
