"""Kernels for GPUs with thread block clusters (Hopper, Blackwell), whose blocks write to each other's shared memory.

Exchanging states through distributed shared memory takes a fraction of the time of global memory. The kernels are CUDA
C++, compiled on first use by NVRTC, which comes with torch.
"""

from .engine import SIDE_BY_SIDE, made_of, name, refuses, run
from .plan import at_once

__all__ = ["SIDE_BY_SIDE", "at_once", "made_of", "name", "refuses", "run"]
