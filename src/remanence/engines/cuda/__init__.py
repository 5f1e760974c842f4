"""Kernels for chips whose thread blocks write into each other's memory: a step takes a fraction of the time.

They are CUDA C++, compiled when they are first used by the compiler that comes with torch.
"""

from .engine import SIDE_BY_SIDE, made_of, name, refuses, run
from .plan import at_once

__all__ = ["SIDE_BY_SIDE", "at_once", "made_of", "name", "refuses", "run"]
