"""Timescales of the units of language models, estimated from their forget values on a long text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ... import analysis, timescales
from ...analysis.groups import timescales_of
from ...cells import LSTMCell
from ...cells.base import affine
from ...gates import Gate
from ...models import LanguageModel
from ...nn import Recurrent
from ...nn.sequence import Inputs
from ...table import Table
from .trained import Findings, Trained, in_order, keep
from .words import corpus_of, language_model, median, rounded, text_of
from .words import layer as layer_of

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


def assigned_vs_estimated(
    runs: Sequence[Trained], *, layer: int = 2, length: int | None = None, chunk: int = 70
) -> Findings:
    """Timescales of the units of a layer from its biases and from forget values on the test text.

    The data, by need, model and seed, with H units in their order, which is that of assigned timescales, long to short:

        layer        counted from one
        assigned     H numbers
        estimated    H numbers
        spearman     correlation of ranks
        log_pearson  correlation of logarithms
        left_out     units without a logarithm

    Args:
        runs: models of words.
        layer: counted from one at the input.
        length: only the first so many words of the test text; None for all.
        chunk: words run at a time.
    """
    data: dict[str, Any] = {}
    rows = []
    for run in in_order(runs):
        model = language_model(run)
        estimated = estimated_timescales(model, text_of(corpus_of(run), "test", length), chunk=chunk)
        assigned = timescales_of(layer_of(model, layer))
        found = analysis.assigned_against_estimated(assigned, estimated[layer - 1])
        keep(data, run, {"layer": layer, **rounded(found.plain())})
        numbers = f"{found.spearman:.3f}", f"{found.log_pearson:.3f}", str(found.left_out)
        rows.append((run.need, run.model_name, str(run.seed), str(len(assigned)), *numbers))
    headings = ("text", "model", "seed", "units", "Spearman", "Pearson of logarithms", "units without logarithm")
    return Findings(data, [Table(f"assigned against estimated timescales, layer {layer}", headings, rows, words=2)])


def fitted_timescales(runs: Sequence[Trained], *, length: int | None = None, chunk: int = 70) -> Findings:
    """Timescales of all units of all layers from forget values on the test text, and distributions fitted to them.

    The data, by need, model and seed, with n units in all layers:

        timescales      n numbers, long to short
        range           the shortest and the longest
        below_10        share of units below ten words
        better          family with the smaller statistic, "inverse gamma" or "gaussian"
        inverse_gamma   {family, parameter, grid (A), statistics (A), best, statistic, quantiles (n), long to short}:
                        quantiles are the curve to draw beside timescales
        gaussian        the same
        layers          for every layer {units, below_10, median, longest}

    Args:
        runs: models of words.
        length: only the first so many words of the test text; None for all.
        chunk: words run at a time.
    """
    data: dict[str, Any] = {}
    rows = []
    for run in in_order(runs):
        own = estimated_timescales(language_model(run), text_of(corpus_of(run), "test", length), chunk=chunk)
        fits = analysis.timescale_fits(own)
        keep(data, run, plain_fits(fits, own))
        rows.append((run.need, run.model_name, str(run.seed), *fits_row(fits)))
    headings = (
        *("text", "model", "seed", "units", "shortest", "longest", "below 10, %"),
        *("best alpha", "KS", "best mu", "KS", "nearer"),
    )
    title = "timescales in words from forget values on the test text, inverse gamma (alpha) and Gaussian (mu) fitted"
    return Findings(data, [Table(title, headings, rows, words=2, text=1)])


def plain_fits(fits: analysis.TimescaleFits, layers: Sequence[Tensor]) -> dict[str, Any]:
    """For the result file."""
    found: dict[str, Any] = {
        **fits.plain(),
        "range": analysis.as_plain([fits.timescales[-1], fits.timescales[0]]),
        "layers": [
            {
                "units": len(own),
                "below_10": float((own < 10).double().mean()),
                "median": median(own),
                "longest": float(torch.amax(own)),
            }
            for own in layers
        ],
    }
    whole: dict[str, Any] = rounded(analysis.as_plain(found))
    return whole


def fits_row(fits: analysis.TimescaleFits) -> tuple[str, ...]:
    """One model."""
    gamma, gaussian = fits.inverse_gamma, fits.gaussian
    return (
        str(len(fits.timescales)),
        f"{fits.timescales[-1]:.2f}",
        f"{fits.timescales[0]:.1f}",
        f"{100 * fits.below_10:.1f}",
        *(f"{gamma.best:.2f}", f"{gamma.statistic:.3f}"),
        *(f"{gaussian.best:.2f}", f"{gaussian.statistic:.3f}"),
        fits.better,
    )
