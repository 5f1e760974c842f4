"""Whole models: recurrent layers and what is around them."""

from .activations import Activations, LayerActivations
from .language import LanguageModel, Loss
from .named import KNOWN, language_model
from .sequence import SequenceModel, forward_together

__all__ = [
    "KNOWN",
    "Activations",
    "LanguageModel",
    "LayerActivations",
    "Loss",
    "SequenceModel",
    "forward_together",
    "language_model",
]
