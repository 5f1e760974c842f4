"""Kernels in Triton's language: one launch for a whole sequence, forward and backward."""

from .engine import SIDE_BY_SIDE, made_of, name, refuses, run

__all__ = ["SIDE_BY_SIDE", "made_of", "name", "refuses", "run"]
