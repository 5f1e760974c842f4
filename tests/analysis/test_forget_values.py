"""Forget values of language models on a text, and the timescales estimated from them."""

import pytest
import torch

from remanence import timescales
from remanence.analysis import forget_values
from remanence.analysis.forget_values import estimated_timescales
from remanence.models import LanguageModel
from remanence.timescales import Fixed, InverseGamma

GATES = ["sigmoid", "fast", "softsign", "refine", "ur", "power_law"]


def make(**options):
    """A model whose hidden states matter to its gates."""
    torch.manual_seed(0)
    arguments = {"embedding_size": 6, "hidden_size": 8, "initial_range": 1.0, "dtype": torch.float64, **options}
    return LanguageModel(11, **arguments)


def text(words=50):
    return torch.randint(11, (words,), generator=torch.Generator().manual_seed(0))


def step_by_step(model, stream):
    """The same timescales from records of the loop engine."""
    return timescales.estimate(model, stream.unsqueeze(1).split(10), carry_state=True)


@pytest.mark.parametrize("chunk", [1, 9, 200])
@pytest.mark.parametrize("gate", GATES)
def test_timescales_are_those_of_a_run_step_by_step(gate, chunk):
    assigned = None if gate == "power_law" else [None, InverseGamma(0.56, freeze=True), Fixed(3.0)]
    model = make(gate=gate, timescales=assigned)
    found = estimated_timescales(model, text(), chunk=chunk)
    for one, expected in zip(found, step_by_step(model, text()), strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, expected, rtol=1e-12, atol=0)
    assert model.training


@pytest.mark.parametrize(
    "options",
    [
        {"input_gate": "coupled"},
        {"weight_drop": 0.5, "layer_dropout": 0.5, "word_dropout": 0.5},
        {"embedding_size": None, "tie": False, "num_layers": 1},
        {"layer": "gru"},
        {"layer": "janet"},
    ],
    ids=str,
)
def test_timescales_of_other_models_are_those_of_a_run_step_by_step(options):
    model = make(**options)
    for one, expected in zip(estimated_timescales(model, text()), step_by_step(model, text()), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("gate", GATES)
def test_forget_values_are_those_of_a_run_step_by_step(gate):
    model = make(gate=gate).eval()
    chunks = text().view(25, 2).split(7)
    state = None
    with torch.no_grad():
        for records, chunk in zip(forget_values.forget_values(model, chunks), chunks, strict=True):
            expected, state, _ = model.watch(chunk, state)
            for record, full in zip(records, expected, strict=True):
                for name in ("forget", "complement"):
                    torch.testing.assert_close(record[name], full[name], rtol=1e-12, atol=1e-15)


def test_only_gates_that_carry_something_and_other_cells_go_step_by_step(monkeypatch):
    watched = []
    watch = LanguageModel.watch
    monkeypatch.setattr(LanguageModel, "watch", lambda model, *given: watched.append(model) or watch(model, *given))
    stepwise = [make(gate="power_law"), make(layer="gru"), make(layer="janet")]
    for model in [*(make(gate=gate) for gate in GATES[:-1]), *stepwise]:
        estimated_timescales(model, text(20))
    assert watched == stepwise


def test_a_text_without_words_and_chunks_without_words_are_refused():
    with pytest.raises(ValueError, match="expected at least one batch with at least one step, got none"):
        estimated_timescales(make(), text(0))
    with pytest.raises(ValueError, match="expected chunks of at least one word, got 0"):
        estimated_timescales(make(), text(), chunk=0)
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        estimated_timescales(make(layer="nru"), text())
