"""Whole models: a recurrent layer and what is around it."""

from .sequence import SequenceModel, forward_together

__all__ = ["SequenceModel", "forward_together"]
