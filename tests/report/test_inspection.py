"""Tables, histograms and figures of the units of a model."""

import math

import numpy
import pytest
import torch

import remanence as rm
from remanence.models import LanguageModel, SequenceModel
from remanence.report.characters import WIDTH, histogram, round_edges, tenths
from remanence.report.inspection import inspect, save, shown
from remanence.timescales import Fixed

TIMESCALES = [1.5, 3.0, 3.0, 30.0, 3000.0]


def layer():
    return rm.LSTM(3, 5, timescales=Fixed(TIMESCALES))


@torch.no_grad()
def power_law():
    made = rm.PowerLawLSTM(3, 4)
    made.p_hat_l0.copy_(torch.logit(torch.tensor([0.11, 0.12, 0.55, 0.95])))
    made.bias_ih_l0[:4] = torch.logit(torch.tensor([0.5, 0.1, 0.01, 0.001]))
    return made


def test_tables_hold_the_set_timescales():
    timescales, gates = inspect(layer()).tables()
    assert timescales.headings == ("layer", "gate", "units", "5 %", "25 %", "median", "75 %", "95 %")
    assert timescales.rows == [("l0", "sigmoid", "5", "1.5", "3", "3", "30", "3,000")]
    assert [row[:2] for row in gates.rows] == [("l0", "forget"), ("l0", "input"), ("l0", "output")]
    assert gates.rows[0][2:] == tuple(f"{math.exp(-1 / value):.4f}" for value in TIMESCALES)


def test_a_power_law_shows_exponents_and_ages_in_their_place():
    exponents, ages, gates = inspect(power_law()).tables()
    assert exponents.rows == [("l0", "power_law", "4", "0.11", "0.12", "0.55", "0.55", "0.95")]
    assert ages.rows == [("l0", "4", "1", "9", "99", "99", "999")]
    assert gates.rows[-1][1:] == ("reset", "0.0010", "0.0100", "0.1000", "0.1000", "0.5000")


def test_driven_models_also_show_what_stays():
    model = SequenceModel(layer(), 2)
    found = inspect(model, input=torch.randn(30, 4, 3), driven_by="over noise", steps=120)
    titles = [table.title for table in found.tables()]
    assert "timescales from gates (steps), over noise" in titles
    assert titles[-1] == "what is left when the input is switched off, over noise"
    decay = found.tables()[-1]
    assert decay.headings[:4] == ("layer", "after 1", "after 10", "after 100")
    assert found.decay is not None
    assert decay.rows[0][2] == f"{100 * found.decay.layers[0].mean[10]:.3g} %"
    assert [panel.title for panel in found.figure().panels][-1] == "Decay without input"
    assert found.notes == []
    both_ways = inspect(rm.LSTM(3, 4, bidirectional=True), input=torch.randn(9, 2, 3))
    assert both_ways.decay is None
    assert "unidirectional" in both_ways.notes[0]


def test_histograms_count_every_unit_in_round_bins():
    lines = inspect(layer()).histograms()
    assert lines[0] == "layer l0, timescales from biases (steps)"
    counts = {line.split("  ")[-2].strip(): int(line.split()[-1]) for line in lines[1:]}
    assert sum(counts.values()) == 5
    full = "#" * WIDTH
    assert any(line.endswith(f"2 to 5  {full} 2") for line in lines)
    assert any(line.strip().startswith("2,000 to 5,000") for line in lines)
    lines = inspect(power_law()).histograms("█")
    assert lines[0] == "layer l0, exponents p"
    assert lines[2].strip() == f"0.1 to 0.2  {'█' * WIDTH} 2"


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([3.0], [2, 5]),
        ([1.0], [1, 2]),
        ([10.0, 10.0], [10, 20]),
        ([0.7, 3.0], [0.5, 1, 2, 5]),
        ([1.0, math.inf], [1, 2]),
        ([math.inf], [1, 2]),
        ([0.0, 3.0], [0, 2, 5]),
        ([0.5, 3e9], [0.1, *(10.0**power for power in range(11))]),
    ],
)
def test_edges_are_round_and_hold_all_values(values, edges):
    assert round_edges(numpy.array(values)) == pytest.approx(edges)
    lines = histogram(numpy.array(values), round_edges(numpy.array(values)))
    assert sum(int(line.split()[-1]) for line in lines) == len(values)


def test_infinite_values_have_a_line_of_their_own():
    lines = histogram(numpy.array([1.0, math.inf, math.inf]), [1, 2])
    assert lines == ["    1 to 2  " + "#" * 20 + " 1", "  infinite  " + "#" * 40 + " 2"]
    assert tenths(numpy.array([0.3])) == [number / 10 for number in range(11)]
    assert tenths(numpy.array([1.5]))[-1] == 1.5


def test_numbers_are_readable():
    assert [shown(value) for value in (0.12345, 12.345, 1234.5, 3e9, math.inf)] == [
        *("0.123", "12.3", "1,234", "3e+09", "infinite")
    ]


def test_the_figure_has_every_layer_under_one_name():
    model = LanguageModel(9, 4, 5, timescales=[Fixed(3.0), None, None])
    figure = inspect(model, title="a small model").figure()
    assert figure.title == "Units of a small model"
    first, *gates = figure.panels
    assert [one.name for one in first.series] == ["l0", "l1", "l2"]
    assert first.series[0].y == pytest.approx([3.0] * 5, rel=1e-5)
    assert [panel.title.split()[1] for panel in gates] == ["forget", "input", "output"]
    assert [one.name for one in gates[0].series] == ["l0", "l1", "l2"]


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_files_are_written(tmp_path, ending):
    pytest.importorskip("matplotlib")
    if ending == "html":
        pytest.importorskip("jinja2")
    found = inspect(power_law(), title="<b>a model</b>", input=torch.randn(20, 3, 3), driven_by="over noise")
    path = tmp_path / f"units.{ending}"
    save(found, path)
    content = path.read_bytes()
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!DOCTYPE html>"}
    assert content.startswith(starts[ending])
    if ending == "html":
        assert b"<b>a model</b>" not in content
        assert b"exponents p of the power law" in content
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected a file that ends in \.png, \.svg or \.html, got .*units\.pdf"):
        save(inspect(layer()), tmp_path / "units.pdf")


def test_a_model_without_timescales_is_refused():
    with pytest.raises(ValueError, match="expected a layer with a forget gate, got NRU"):
        inspect(rm.NRU(3, 4))
