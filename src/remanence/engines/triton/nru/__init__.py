"""Separate kernels for the non-saturating recurrent unit (NRU), which has more than one matmul per step."""

from .run import run, unsuited

__all__ = ["run", "unsuited"]
