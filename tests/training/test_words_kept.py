"""Runs of language models: saved averages, compiled models, and configurations that are refused."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from small_runs import Made, words_run

from remanence.experiments.loading import put_in
from remanence.models import LanguageModel
from remanence.training import Optimiser, train
from remanence.training.directory import Directory
from remanence.training.optimisers import averaging_began

STALLING = Optimiser("sgd", lr=40, clip_norm=0.25, average="when stalled", average_patience=0)


def last_checkpoint(run):
    return max((run.directory / "checkpoints").glob("step-*.safetensors"))


def perplexity_of_last(run):
    """On the test text, of the weights in the last checkpoint as analyses take them."""
    model, path = run.make_model(), last_checkpoint(run)
    put_in(model, load_file(path), path)
    return model.perplexity(run.task.source("test", 1, torch.device("cpu")).stream.tokens.long(), chunk=8)


def since_when(run):
    directory = Directory(run.directory)
    directory.rewind_to(10**7, directory.metrics.read_bytes())
    return averaging_began(directory.lines, run.config.optimiser)


def test_last_weights_are_read_as_they_were_reported_which_is_averaged(tmp_path):
    one = words_run(tmp_path, report="last", optimiser=STALLING)
    (result,) = train([one])
    assert since_when(one) < result["updates"]
    assert result["test_weights"] == "last"
    assert perplexity_of_last(one) == pytest.approx(result["test"]["perplexity"], rel=1e-5)


def test_averages_that_begin_with_the_last_update_are_the_weights_themselves(tmp_path):
    first = words_run(tmp_path / "whole", report="last", optimiser=STALLING)
    (result,) = train([first])
    since = since_when(first)
    one = words_run(tmp_path / "short", report="last", optimiser=STALLING, epochs=1, epoch_updates=since)
    one = replace(one, config=replace(one.config, evaluate_every=result["updates"] // 5))
    (result,) = train([one])
    assert since_when(one) == result["updates"] == since
    assert perplexity_of_last(one) == pytest.approx(result["test"]["perplexity"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compile_compiles_what_training_runs(tmp_path, monkeypatch):
    traced = []

    def backend(graph, inputs):
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    eager, compiled = (
        train([words_run(tmp_path / str(compile), model="baseline", epochs=1, epoch_updates=4, compile=compile)])[0]
        for compile in (False, True)
    )
    assert traced
    assert compiled["test"]["loss"] == pytest.approx(eager["test"]["loss"], rel=1e-4)


@dataclass(frozen=True, kw_only=True)
class Unchecked(Made):
    """A text without a validation part."""

    def source(self, split, seed, device):
        return None if split == "validation" else super().source(split, seed, device)


def test_averages_without_validation_are_refused(tmp_path):
    one = words_run(tmp_path)
    with pytest.raises(ValueError, match=r"expected validation sequences with training\.optimiser\.average"):
        train([replace(one, task=Unchecked())])
    never = replace(one.config, optimiser=Optimiser("sgd"), epochs=1)
    assert train([replace(one, task=Unchecked(), config=never)])[0]["status"] == "finished"


@pytest.mark.parametrize("name", ["word_dropout", "input_dropout", "layer_dropout", "output_dropout"])
def test_a_wrong_probability_is_named(name):
    with pytest.raises(ValueError, match=rf"expected {name} to be a number in \[0, 1\], got 2"):
        LanguageModel(10, embedding_size=4, hidden_size=6, **{name: 2})


def test_a_wrong_size_of_vectors_is_named():
    with pytest.raises(ValueError, match="expected embedding_size to be a positive integer, got -2"):
        LanguageModel(10, embedding_size=-2, hidden_size=6)
