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
"""What a model without regularisation, started as torch does, has."""


def language_model(name: str, vocabulary: int | Words, **keywords: Any) -> LanguageModel:
    """A language model by the name the papers use.

    Args:
        name: of words, three layers of 1150, 1150 and 400 units: "baseline" (AWD-LSTM), "mts" (multi-timescale),
            "fast" and "refine" (the baseline with another gate in every layer, as many parameters). Of characters, in
            one layer: "char-lstm" and "char-plstm" (716 and 828 units); of characters given one-hot, in two layers:
            "text8-lstm" and "text8-plstm" (512 and 592 units).
        vocabulary: number of words, or a vocabulary.
        keywords: any argument of `LanguageModel`; "mts" also takes `alpha`, the shape of the second layer's
            timescales, and `freeze` (True: forget and input biases of the first two layers stay as they are; "all":
            every bias of these layers; False: none).
    """
    return lookup("language model", name, KNOWN)(vocabulary, **keywords)


def multi_timescale(
    vocabulary: int | Words, *, alpha: float = 0.56, freeze: Freeze = True, **keywords: Any
) -> LanguageModel:
    """The multi-timescale language model (ICLR 2021, its section on timescale assignment).

    Half of the first layer's units have timescale 3, the others 4; the second layer's are quantiles of an inverse
    gamma distribution, long to short; the third's are learned.
    """
    size = keywords.get("hidden_size", 1150)
    first = size if isinstance(size, int) else size[0]
    short = [3.0] * (first // 2) + [4.0] * (first - first // 2)
    timescales = [Fixed(short, freeze=freeze), InverseGamma(alpha, freeze=freeze), None]
    return LanguageModel(vocabulary, **{"timescales": timescales, **keywords})


def preset(**arguments: Any) -> Callable[..., LanguageModel]:
    """A model with these arguments where the user says nothing else."""

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
