"""Forget values of all units of a language model over a long text, without a step-by-step run where there is a way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ... import timescales
from ...cells import LSTMCell
from ...cells.base import affine
from ...gates import Gate
from ...models import LanguageModel
from ...nn import Recurrent
from ...nn.sequence import Inputs

Record = dict[str, Tensor]


class ForgetValues:
    """A language model as `remanence.timescales.estimate` measures it, on the engine of the model.

    A gate that carries nothing of its own from step to step follows from the input and the hidden state before it:

        f_t = phi(W x_t + R h_{t-1} + b)

    Engines give h of all steps, so that all f are one product. `LanguageModel.watch` would go step by step, three
    layers of 82,430 steps on the test text of the Penn Treebank. It is used where it must be: for the power law, whose
    ages are its own, and for other cells.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.at_once = all(isinstance(layer, Recurrent) and follows_from_hidden(layer) for layer in model.layers)

    @property
    def training(self) -> bool:
        """Of the model."""
        return self.model.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.model.train(mode)

    @property
    def gate(self) -> Gate:
        """Of all layers."""
        return self.model.gate

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """Of the model."""
        return self.model.forget_biases()

    def train(self, mode: bool = True) -> None:
        """As the model does."""
        self.model.train(mode)

    @torch.no_grad()
    def watch(self, input: Inputs, state: Any = None, dt: Any = None) -> tuple[list[Record], Any, Tensor | None]:
        """Run, and keep the forget values.

        Args:
            input: whole numbers `(T, B)`.
            state: state to start from, as returned; zeros if None.
            dt: None.

        Returns:
            For every layer `forget` and `complement` (1 - forget), `(T, B, H)` each; the state after the last step;
            None.
        """
        if not self.at_once:
            records, state, lengths = self.model.watch(input, state, dt)
            return [{name: one[name] for name in ("forget", "complement")} for one in records], state, lengths
        assert isinstance(input, Tensor)
        found: list[Record] = []
        with heard(self.model, lambda layer, *given: found.append(of_layer(layer, *given))):
            _, state = self.model(input, state)
        return found, state, None


def follows_from_hidden(layer: Recurrent) -> bool:
    """Whether forget values follow from the inputs and hidden states of a layer."""
    cell = layer.cell
    return isinstance(cell, LSTMCell) and not cell.gate.carries and not layer.proj_size


def of_layer(layer: Recurrent, inputs: Tensor, before: Any, output: Tensor) -> Record:
    """Forget values of one layer that has run.

    Args:
        layer: an LSTM.
        inputs: `(T, B, I)`.
        before: the state it started from, or None for zeros.
        output: hidden states `(T, B, H)`.
    """
    cell = layer.cell
    assert isinstance(cell, LSTMCell)
    weights = layer._weights(layer.places[0], output.dtype)
    first = output.new_zeros(1, *output.shape[1:]) if before is None else before[0].to(output.dtype)
    recurrent = affine(torch.cat((first, output[:-1])), weights["weight_hh"], weights.get("bias_hh"))
    forgetting = cell.forgetting(cell.rows(cell.project(inputs, weights) + recurrent), (), weights, None)
    return {"forget": forgetting.forget, "complement": forgetting.complement}


@contextmanager
def heard(model: LanguageModel, tell: Callable[[Recurrent, Tensor, Any, Tensor], None]) -> Iterator[None]:
    """While it lasts, every layer that runs is told with its inputs, the state before, and its outputs."""

    def hook(layer: Any, given: tuple[Any, ...], result: tuple[Tensor, Any]) -> None:
        inputs, before = given
        tell(layer, inputs, before, result[0])

    handles = [layer.register_forward_hook(hook) for layer in model.layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def estimated_timescales(model: LanguageModel, tokens: Tensor, *, chunk: int = 70) -> list[Tensor]:
    """Timescale of every unit from its mean forget value on a text, one float64 `(H,)` tensor per layer on the CPU.

    What `remanence.analysis.estimated_timescales` gives, sooner.

    Args:
        model: a language model.
        tokens: a text, `(N,)`, which is read in one piece from zero state.
        chunk: words run at a time.
    """
    if chunk < 1:
        raise ValueError(f"expected chunks of at least one word, got {chunk}")
    columns = tokens.to(model.device).unsqueeze(1)
    chunks = (columns[start : start + chunk] for start in range(0, len(columns), chunk))
    return [own.cpu() for own in timescales.estimate(ForgetValues(model), chunks, carry_state=True)]
