"""The language models of the papers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..names import lookup
from ..timescales import Fixed, InverseGamma
from ..timescales.initial import Freeze
from .language import LanguageModel
from .text import Words

PLAIN: dict[str, Any] = {
    "tie": False,
    "word_dropout": 0.0,
    "input_dropout": 0.0,
    "layer_dropout": 0.0,
    "output_dropout": 0.0,
    "weight_drop": 0.0,
    "activation_penalty": 0.0,
    "change_penalty": 0.0,
    "initial_range": None,
}
"""Arguments of a model without regularisation and with torch's initialisation."""


def language_model(name: str, vocabulary: int | Words, **keywords: Any) -> LanguageModel:
    """Make a language model by the name that the papers use for it.

    Args:
        name: Word models with three layers of 1150, 1150 and 400 units: "baseline" (AWD-LSTM), "mts" (multi-timescale),
            "fast" and "refine" (the baseline with another gate in every layer and the same number of parameters).
            Character models with one layer: "char-lstm" and "char-plstm" (716 and 828 units); with one-hot inputs and
            two layers: "text8-lstm" and "text8-plstm" (512 and 592 units).
        vocabulary: Number of words, or a vocabulary.
        keywords: Any argument of `LanguageModel`. "mts" also takes `alpha`, the shape of the second layer's
            timescales, and `freeze` (True freezes the forget and input biases of the first two layers, "all" every
            bias of these layers, False none).

    Raises:
        ValueError: The name is unknown.

    Examples:
        >>> import remanence as rm
        >>> model = rm.models.language_model("mts", 100, hidden_size=32, embedding_size=16)
        >>> [len(timescales) for timescales in rm.timescales.of(model)]
        [32, 32, 16]
    """
    return lookup("language model", name, KNOWN)(vocabulary, **keywords)


def multi_timescale(
    vocabulary: int | Words, *, alpha: float = 0.56, freeze: Freeze = True, **keywords: Any
) -> LanguageModel:
    """The multi-timescale language model (ICLR 2021, its section on timescale assignment).

    Half of the units of the first layer have timescale 3, the others 4. Those of the second layer are quantiles of an
    inverse gamma distribution, long to short. Those of the third layer are learned.
    """
    size = keywords.get("hidden_size", 1150)
    first = size if isinstance(size, int) else size[0]
    short = [3.0] * (first // 2) + [4.0] * (first - first // 2)
    timescales = [Fixed(short, freeze=freeze), InverseGamma(alpha, freeze=freeze), None]
    return LanguageModel(vocabulary, **{"timescales": timescales, **keywords})


def preset(**arguments: Any) -> Callable[..., LanguageModel]:
    """A function that makes a model with these default arguments."""

    def maker(vocabulary: int | Words, **keywords: Any) -> LanguageModel:
        return LanguageModel(vocabulary, **{**arguments, **keywords})

    return maker


KNOWN: dict[str, Callable[..., LanguageModel]] = {
    "baseline": LanguageModel,
    "mts": multi_timescale,
    "fast": preset(gate="fast", forget_bias="uniform"),
    "refine": preset(gate="refine", input_gate="coupled", forget_bias="uniform"),
    "char-lstm": preset(embedding_size=20, hidden_size=716, num_layers=1, **PLAIN),
    "char-plstm": preset(embedding_size=20, hidden_size=828, num_layers=1, gate="power_law", **PLAIN),
    "text8-lstm": preset(embedding_size=None, hidden_size=512, num_layers=2, **PLAIN),
    "text8-plstm": preset(embedding_size=None, hidden_size=592, num_layers=2, gate="power_law", **PLAIN),
}
