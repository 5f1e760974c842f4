"""Steps for the processor, compiled when they are first used, where there is a C++ compiler.

A step of torch's operations goes through memory a dozen times, in one thread where a layer is small. Compiled it goes
through once, in all threads; products with the recurrent matrix stay torch's.
"""

from .engine import made_of, name, prepare, refuses, run

__all__ = ["made_of", "name", "prepare", "refuses", "run"]
