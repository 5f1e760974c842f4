"""The Triton engine: persistent kernels that run a whole sequence in one launch, forward and backward."""

from .engine import SIDE_BY_SIDE, made_of, name, refuses, run

__all__ = ["SIDE_BY_SIDE", "made_of", "name", "refuses", "run"]
