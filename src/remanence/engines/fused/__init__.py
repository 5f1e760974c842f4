"""The fused GPU engine: one launch for a whole sequence, forward and backward."""

from .engine import name, refuses, run, run_together

__all__ = ["name", "refuses", "run", "run_together"]
