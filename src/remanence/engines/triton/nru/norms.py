"""Constants of both forms of the NRU's memory: the smallest norm, and the smallest normal float32."""

# mypy: ignore-errors

import triton.language as tl

SMALLEST_NORM = tl.constexpr(1e-12)
TINY = tl.constexpr(1.1754943508222875e-38)
