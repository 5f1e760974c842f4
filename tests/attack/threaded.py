"""The differential fuzzer with every loop of the C++ engine in several threads, for the thread sanitizer.

It is loaded before Python (LD_PRELOAD), and must not be loaded before the compiler.
"""

from __future__ import annotations

import os

os.environ.pop("LD_PRELOAD", None)

import differential

from remanence.engines.cpp import one_step, recurrence

one_step.SHARE = one_step.LARGE = recurrence.FEW = 1  # layers of tests are so small that one thread would do

if __name__ == "__main__":
    differential.THREADS = (2, 3)
    differential.main()
