"""Timescales of the units of language models, estimated from their forget values on a long text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from .trained import Findings, Trained, by_run, in_order, keep, number
from .words import corpus_of, language_model, median, rounded, text_of
from .words import layer as layer_of

Record = dict[str, Tensor]


class ForgetValues:
    """A language model as `remanence.timescales.estimate` measures it, on the engine of the model.

    The forget value of a gate without carried state depends only on the input and the previous hidden state:

        f_t = phi(W x_t + R h_{t-1} + b)

    Engines return h for all steps, so all f take one matmul. `LanguageModel.watch` would go step by step, three layers
    of 82,430 steps on the test text of the Penn Treebank. It is used only where it is needed: for the power law, which
    carries its age, and for other cells.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.at_once = all(isinstance(layer, Recurrent) and follows_from_hidden(layer) for layer in model.layers)

    @property
    def training(self) -> bool:
        """Training mode of the model."""
        return self.model.training

    @training.setter
    def training(self, mode: bool) -> None:
        self.model.train(mode)

    @property
    def gate(self) -> Gate:
        """The gate of all layers."""
        return self.model.gate

    def forget_biases(self) -> list[tuple[Tensor, ...]]:
        """Forget biases of the model."""
        return self.model.forget_biases()

    def train(self, mode: bool = True) -> None:
        """Set the training mode of the model."""
        self.model.train(mode)

    @torch.no_grad()
    def watch(self, input: Inputs, state: Any = None, dt: Any = None) -> tuple[list[Record], Any, Tensor | None]:
        """Run the model and record the forget values.

        Args:
            input: token ids `(T, B)`.
            state: initial state, as returned; zeros if None.
            dt: None.

        Returns:
            For every layer, `forget` and `complement` (1 - forget), `(T, B, H)` each; the state after the last step;
            None.
        """
        if not self.at_once:
            records, state, lengths = self.model.watch(input, state, dt)
            return [{name: one[name] for name in ("forget", "complement")} for one in records], state, lengths
        assert isinstance(input, Tensor)
        found: list[Record] = []
        with layer_hooks(self.model, lambda layer, *given: found.append(of_layer(layer, *given))):
            _, state = self.model(input, state)
        return found, state, None


def follows_from_hidden(layer: Recurrent) -> bool:
    """Whether the forget values of a layer can be computed from its inputs and hidden states."""
    cell = layer.cell
    return isinstance(cell, LSTMCell) and not cell.gate.carries and not layer.proj_size


def of_layer(layer: Recurrent, inputs: Tensor, before: Any, output: Tensor) -> Record:
    """Forget values of one layer from its inputs and outputs.

    Args:
        layer: an LSTM.
        inputs: `(T, B, I)`.
        before: its initial state, or None for zeros.
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
def layer_hooks(model: LanguageModel, callback: Callable[[Recurrent, Tensor, Any, Tensor], None]) -> Iterator[None]:
    """Context in which `callback` is called for every layer that runs, with its inputs, initial state and outputs."""

    def hook(layer: Any, given: tuple[Any, ...], result: tuple[Tensor, Any]) -> None:
        inputs, before = given
        callback(layer, inputs, before, result[0])

    handles = [layer.register_forward_hook(hook) for layer in model.layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def estimated_timescales(model: LanguageModel, tokens: Tensor, *, chunk: int = 70) -> list[Tensor]:
    """Timescale of every unit from its mean forget value on a text, one float64 `(H,)` tensor per layer on the CPU.

    Same result as `remanence.analysis.estimated_timescales`, but faster.

    Args:
        model: a language model.
        tokens: a text, `(N,)`, read as one sequence from a zero state.
        chunk: words per forward pass.
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

    The data, by need, model and seed, with H units in the order of their assigned timescales, long to short:

        layer        number of the layer, from 1
        assigned     H values
        estimated    H values
        spearman     rank correlation
        log_pearson  Pearson correlation of the logarithms
        left_out     number of units without a finite logarithm

    Args:
        runs: word-level language models.
        layer: number of the layer, from 1 at the input.
        length: use only the first `length` words of the test text; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        model = language_model(run)
        estimated = estimated_timescales(model, text_of(corpus_of(run), "test", length), chunk=chunk)
        assigned = timescales_of(layer_of(model, layer))
        found = analysis.assigned_against_estimated(assigned, estimated[layer - 1])
        keep(data, run, {"layer": layer, **rounded(found.plain())})
    return Findings(data, assigned_tables(data))


def assigned_tables(data: Mapping[str, Any]) -> list[Table]:
    """One row per run."""
    rows, layer = [], None
    for *names, found in by_run(data):
        layer = found["layer"]
        numbers = f"{number(found['spearman']):.3f}", f"{number(found['log_pearson']):.3f}", str(found["left_out"])
        rows.append((*names, str(len(found["assigned"])), *numbers))
    headings = ("text", "model", "seed", "units", "Spearman", "Pearson of logarithms", "units without logarithm")
    return [Table(f"assigned against estimated timescales, layer {layer}", headings, rows, words=2)]


def fitted_timescales(runs: Sequence[Trained], *, length: int | None = None, chunk: int = 70) -> Findings:
    """Timescales of all units from forget values on the test text, and distributions fitted to them.

    The data, by need, model and seed, with n units in all layers:

        timescales      n values, long to short
        range           the shortest and the longest
        below_10        fraction of units below ten words
        better          family with the smaller KS statistic, "inverse gamma" or "gaussian"
        inverse_gamma   {family, parameter, grid (A), statistics (A), best, statistic, quantiles (n), long to short}:
                        quantiles are the curve to draw next to the timescales
        gaussian        the same
        layers          per layer {units, below_10, median, longest}

    Args:
        runs: word-level language models.
        length: use only the first `length` words of the test text; None for all.
        chunk: words per forward pass.
    """
    data: dict[str, Any] = {}
    for run in in_order(runs):
        own = estimated_timescales(language_model(run), text_of(corpus_of(run), "test", length), chunk=chunk)
        keep(data, run, plain_fits(analysis.timescale_fits(own), own))
    return Findings(data, fits_tables(data))


def fits_tables(data: Mapping[str, Any]) -> list[Table]:
    """One row per run."""
    rows = [(*names, *fits_row(found)) for *names, found in by_run(data)]
    headings = (
        *("text", "model", "seed", "units", "shortest", "longest", "below 10, %"),
        *("best alpha", "KS", "best mu", "KS", "nearer"),
    )
    title = "timescales in words from forget values on the test text, inverse gamma (alpha) and Gaussian (mu) fitted"
    return [Table(title, headings, rows, words=2, text=1)]


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


def fits_row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Table row of one model."""
    own, gamma, gaussian = found["timescales"], found["inverse_gamma"], found["gaussian"]
    return (
        str(len(own)),
        f"{number(own[-1]):.2f}",
        f"{number(own[0]):.1f}",
        f"{100 * found['below_10']:.1f}",
        *(f"{number(gamma['best']):.2f}", f"{number(gamma['statistic']):.3f}"),
        *(f"{number(gaussian['best']):.2f}", f"{number(gaussian['statistic']):.3f}"),
        found["better"],
    )
