"""Every figure of the papers, made from the result files of experiments.

A figure maker takes the result files and the published claims of an experiment and returns figures as plain data, for
`report.drawing` and for the page. It raises `NotYetRun` if there are no results.
"""

from __future__ import annotations

from collections.abc import Callable

from ..figure import Figure
from ..files import NotYetRun, ResultFiles
from .attractors import attractors
from .by_bin import by_dependency, by_length
from .copy_task import fixed_exponent, over_delays, reset_times, unit_ablation
from .learning_curves import learning_curves, loss_and_score, over_epochs
from .simulated import decay, gate_functions, toy
from .timescales import assigned, fitted_timescales, forget_maps, growth
from .words import layer_choice, routing, shape_sweep, word_traces

FigureMaker = Callable[[ResultFiles, str], list[Figure]]

CURVES = (
    *("plstm/copy-200", "plstm/copy-500", "plstm/copy-1000"),
    *("plstm/copy-variable-200-500", "plstm/copy-variable-200-1000"),
    *("plstm/mnist-256", "plstm/mnist-512", "plstm/pmnist-256", "plstm/pmnist-512"),
    *("plstm/charptb-150", "plstm/charptb-500", "plstm/text8-500", "plstm/freq-sync1", "plstm/freq-sync0.1"),
    *("fastgate/adding-5000", "fastgate/copy-500", "fastgate/smnist", "fastgate/scifar", "fastgate/ptb"),
    *("mts/ptb", "mts/wt2", "mts/markov-ptb", "own/digits", "own/demo"),
)

KNOWN: dict[str, FigureMaker] = {
    **dict.fromkeys(CURVES, learning_curves),
    "plstm/fig1-decay": decay,
    "plstm/copy-generalization": over_delays,
    "plstm/fixed-p": fixed_exponent,
    "plstm/kt-and-p": reset_times,
    "plstm/unit-ablation": unit_ablation,
    "plstm/imdb": by_length,
    "plstm/freq-async": loss_and_score,
    "fastgate/fig1-functions": gate_functions,
    "fastgate/fig2-toy": toy,
    "fastgate/timescale-growth": growth,
    "fastgate/psmnist": over_epochs,
    "mts/fig1-timescales": fitted_timescales,
    "mts/dyck2": by_dependency,
    "mts/routing-ptb": routing,
    "mts/routing-wt2": routing,
    "mts/fig4-assigned-vs-estimated": assigned,
    "mts/fig5-forget-heatmaps": forget_maps,
    "mts/word-ablation": word_traces,
    "mts/shape-sweep": shape_sweep,
    "mts/layer-choice": layer_choice,
    "own/attractors": attractors,
}
"""Figure makers by experiment id."""

__all__ = ["KNOWN", "FigureMaker", "NotYetRun"]
