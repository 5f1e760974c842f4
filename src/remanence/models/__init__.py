"""Complete models: sequence models with a read-out, language models, and export."""

from ..pretrained import register
from .activations import Activations, LayerActivations
from .exporting import Exported, export
from .language import LanguageModel, Loss
from .named import KNOWN, language_model
from .sequence import SequenceModel, forward_together

register(SequenceModel, LanguageModel)

__all__ = [
    "KNOWN",
    "Activations",
    "Exported",
    "LanguageModel",
    "LayerActivations",
    "Loss",
    "SequenceModel",
    "export",
    "forward_together",
    "language_model",
]
