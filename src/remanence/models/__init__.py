"""Whole models: recurrent layers and what is around them."""

from .activations import Activations, LayerActivations
from .language import LanguageModel, Loss
from .named import LANGUAGE_MODELS, language_model
from .sequence import SequenceModel, forward_together

__all__ = [
    "LANGUAGE_MODELS",
    "Activations",
    "LanguageModel",
    "LayerActivations",
    "Loss",
    "SequenceModel",
    "forward_together",
    "language_model",
]
