"""CPU kernels in C++, compiled on first use, if there is a C++ compiler.

A step made of torch operations passes over memory a dozen times, in one thread if the layer is small. A compiled step
passes over it once, in all threads. Matmuls with a large recurrent matrix are still done by torch.
"""

from .engine import made_of, name, prepare, refuses, run

__all__ = ["made_of", "name", "prepare", "refuses", "run"]
