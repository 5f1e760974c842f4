"""The non-saturating recurrent unit, which has more than one product a step, in kernels of its own."""

from .run import run, unsuited

__all__ = ["run", "unsuited"]
