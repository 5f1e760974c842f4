"""Texts whose state a language model never forgets."""

import json
import math
import statistics

import pytest
import torch
from torch.nn.functional import cross_entropy

import remanence as rm
from remanence.experiments import find
from remanence.experiments.analyses.attractors import attractors, bits_of, from_start, texts
from remanence.experiments.analyses.trained import Trained
from remanence.experiments.figures import figures_of
from remanence.models import SequenceModel
from remanence.tasks import Copy, Text

CPU = torch.device("cpu")


@pytest.fixture
def corpus(tmp_path):
    words = "the quick brown fox jumps over the lazy dog while it rains and nobody is there to see it\n"
    for split, times in {"train": 20, "valid": 6, "test": 6}.items():
        (tmp_path / f"{split}.txt").write_text(words * times)
    return Text(corpus=str(tmp_path), level="character", chunk=10)


def model_of(task, units=12, stubborn=False):
    torch.manual_seed(3)
    layer = rm.LSTM(5, units)
    if stubborn:  # the first input decides the sign of a unit, which stays: h = tanh(c), and c follows 3 h
        with torch.no_grad():
            for weight in layer.parameters():
                weight.zero_()
            layer.bias_ih_l0.view(4, units)[:] = torch.tensor([5.0, -5.0, 0.0, 5.0]).unsqueeze(1)
            layer.weight_hh_l0.view(4, units, units)[2] = 3 * torch.eye(units)
            layer.weight_ih_l0.view(4, units, 5)[2] = 0.5 * torch.randn(units, 5)
    return SequenceModel(layer, task.output_size, symbols=task.symbols).double()


class Run(Trained):
    """A run whose model and task are given."""

    def __init__(self, task, model, name, seed=1):
        super().__init__("a folder", "here", name, seed, {}, CPU)
        self.__dict__["task"] = task
        self.__dict__["given"] = model

    def model(self):
        return self.given


def test_chunks_are_spread_over_the_text(corpus):
    tokens = corpus.source("validation", 1, CPU).stream.tokens.long()
    pieces = texts(Run(corpus, None, "lstm"), 5, 40)
    assert pieces.shape == (41, 5)
    assert torch.equal(pieces[:, 0], tokens[:41])
    assert torch.equal(pieces[:, -1], tokens[-41:])
    with pytest.raises(ValueError, match=rf"of more than {len(tokens)} symbols, got {len(tokens)}$"):
        texts(Run(corpus, None, "lstm"), 5, len(tokens))
    with pytest.raises(ValueError, match=r"^expected runs on a text, got copy in a folder$"):
        texts(Run(Copy(), None, "lstm"), 5, 40)


@pytest.mark.parametrize("start", ["zeros", "others"])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_model_that_forgets_recovers_and_one_that_does_not_never_does(corpus, start, stubborn):
    pieces = texts(Run(corpus, None, "lstm"), 11, 160)
    found = from_start(model_of(corpus, stubborn=stubborn), pieces, start, 60, 20, 100)
    assert found["steps"] == [20, 40, 60, 80, 100]
    assert found["sequences"] == 11
    if stubborn:
        assert found["locked"] > 5
        assert found["apart"][-1] == pytest.approx(found["locked"] / 11)
    else:
        assert found["locked"] == 0
        assert found["apart"][-1] == 0


def test_bits_are_over_the_last_quarter_by_whether_a_chunk_recovers(corpus):
    model = model_of(corpus, stubborn=True)
    pieces = texts(Run(corpus, None, "lstm"), 7, 100)
    outputs, _ = model(pieces[20:-1])
    expected = [
        cross_entropy(outputs[60:, one], pieces[81:, one]).item() / math.log(2) for one in range(pieces.shape[1])
    ]
    assert bits_of(model, pieces[20:]).tolist() == pytest.approx(expected)
    found = from_start(model, pieces, "zeros", 20, 20, 100)
    locked, others = found["locked"], 7 - found["locked"]
    shown = [found[name] or 0.0 for name in ("bits_of_locked", "bits_of_others")]
    assert locked * shown[0] + others * shown[1] == pytest.approx(7 * statistics.fmean(expected))
    in_parts = from_start(model, pieces, "zeros", 20, 20, 3)  # 3, 3 and 1: the last joins the batch before
    for name, value in found.items():
        assert in_parts[name] == pytest.approx(value)


def test_findings_have_a_table_and_a_figure(corpus, tmp_path):
    runs = [Run(corpus, model_of(corpus, stubborn=name == "stubborn"), name) for name in ("lstm", "stubborn")]
    found = attractors(runs, sequences=8, warm=40, listened=80, every=20, at_once=4)
    (table,) = found.tables
    assert table.title == "here, 8 texts, two runs of each, 80 symbols after the restart"
    lstm, stubborn = table.rows
    assert lstm[:6] == ("lstm", "1", "0.00", "0.00", "0.00", "-")
    assert len(lstm) == len(table.headings)
    assert stubborn[4] == stubborn[2]
    assert float(stubborn[2]) == pytest.approx(100 * found.data["here"]["stubborn"]["1"]["zeros"]["locked"] / 8)
    place = tmp_path / "own/attractors/smoke/result.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"found": found.data}))
    (figure,) = figures_of(find("own/attractors", "smoke"), tmp_path)
    assert [panel.title for panel in figure.panels] == [
        "here, restart from zeros",
        "here, restart from another text's state",
    ]
    shown = {one.name: one for one in figure.panels[0].series}
    assert list(shown["stubborn"].x) == [20, 40, 60, 80]
    assert shown["stubborn"].y == pytest.approx(
        [100 * value for value in found.data["here"]["stubborn"]["1"]["zeros"]["apart"]]
    )
