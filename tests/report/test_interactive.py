"""Figures for plotly: valid, small, and free of markup injection."""

import json
import math

import pytest

from remanence.report.figure import Axis, Figure, Heat, Panel, Reference, Series
from remanence.report.interactive import MOST, interactive, library, thinned
from remanence.report.look import KNOWN as THEMES

X, Y = Axis("updates"), Axis("loss")


def figure(*series, x=X, y=Y, **keywords):
    return Figure("test/one", "One", [Panel("", x, y, list(series), **keywords)], "")


def traces(*series, **keywords):
    return interactive(figure(*series, **keywords))["panels"][0]["data"]


EVERYTHING = [
    figure(Series("line", [0, 1], [1, 2], [0, 1], [2, 3]), Series("dashed", [0, 1], [2, 1], dashed=True)),
    figure(Series("points", [0, 1], [1, 2], [0, 1], [2, 3], mark="points"), Series("area", [0], [1], mark="area")),
    figure(Series("both", [0, 1], [1, 2], mark="line and points"), Series("thin", [0], [1], like="both", faint=True)),
    figure(Series("bars", [0, 1], [1, 2], [0, 1], [2, 3], mark="bars"), Series("more", [0.4], [1], mark="bars")),
    figure(Series("shade", [1, 2], [1, 2], shade=0.3), x=Axis("x", log=True, low=1), y=Axis("y", log=True, high=10)),
    figure(
        Series("s", [0], [1]), x=Axis("x", ticks=[(0, "zero")]), references=[Reference(1, "a"), Reference(0, "b", "x")]
    ),
    figure(heat=Heat([[0.0, 1.0], [2.0, 3.0]], "forget", 0, 1, rows=["first", ""], columns=["a", "b"])),
]


@pytest.mark.parametrize("one", EVERYTHING)
def test_every_kind_of_figure_is_valid_and_plain_data(one):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for panel in interactive(one)["panels"]:
        graph_objects.Figure(json.loads(json.dumps(panel, allow_nan=False)))


def test_a_series_has_the_colours_of_both_themes_and_so_have_its_single_seeds():
    spec = interactive(figure(Series("plstm", [0], [1]), Series("one seed", [0], [2], like="plstm", faint=True)))
    (entry,) = spec["legend"]
    assert entry["name"] == "plstm"
    assert entry["colours"].keys() == THEMES.keys()
    thick, thin = spec["panels"][0]["data"]
    assert thick["meta"] == thin["meta"] == {"series": "plstm", "colours": entry["colours"]}
    assert thin["line"]["width"] < thick["line"]["width"]


def test_long_curves_are_thinned_and_keep_their_ends():
    (trace,) = traces(Series("long", range(50_000), range(50_000)))
    assert len(trace["x"]) == len(trace["y"]) == MOST
    assert (trace["x"][0], trace["x"][-1]) == (0, 49_999)
    assert trace["x"] == sorted(set(trace["x"]))


@pytest.mark.parametrize("count", [0, 1, 2, MOST, MOST + 1])
def test_thinning_keeps_all_there_is_up_to_a_limit(count):
    kept = thinned(count)
    assert len(set(kept)) == len(kept) == min(count, MOST)
    assert kept == sorted(kept)


def test_nan_and_values_without_a_logarithm_are_gaps():
    (trace,) = traces(Series("gaps", [0, 1, 2, 3, 4], [1.0, math.nan, math.inf, None, 0.0]), y=Axis("y", log=True))
    assert trace["y"] == [1, None, None, None, None]


def test_a_band_is_under_the_lines_and_goes_there_and_back():
    band, line = traces(Series("band", [0, 1], [1.0, 2.0], [0.5, math.nan], [1.5, 2.5]))
    assert (band["x"], band["y"]) == ([0, 0], [1.5, 0.5])
    assert line["y"] == [1, 2]


def test_error_bars_are_lengths():
    (trace,) = traces(Series("points", [0], [1.0], [0.75], [1.5], mark="points"))
    assert (trace["error_y"]["arrayminus"], trace["error_y"]["array"]) == ([0.25], [0.5])


def test_bounds_of_a_logarithmic_axis_are_logarithms():
    panel = interactive(figure(Series("s", [1], [1]), x=Axis("x", log=True, low=10, high=1000)))["panels"][0]
    assert panel["layout"]["xaxis"]["range"] == [1, 3]
    panel = interactive(figure(Series("s", [1], [1]), x=Axis("x", log=True, low=10)))["panels"][0]
    assert panel["layout"]["xaxis"]["autorangeoptions"] == {"minallowed": 1}


def test_rows_of_a_matrix_go_from_top_to_bottom_with_the_labels_there_are():
    heat = Heat([[1.0], [2.0], [3.0]], "forget", rows=["first", "", "last"])
    panel = interactive(figure(heat=heat))["panels"][0]
    assert panel["data"][0]["z"] == [[1], [2], [3]]
    axis = panel["layout"]["yaxis"]
    assert (axis["autorange"], axis["tickvals"], axis["ticktext"]) == ("reversed", [0, 2], ["first", "last"])


def test_names_are_no_markup():
    name = '<a href="https://example.org">%{x}</a>'
    one = figure(Series(name, [0], [1]), x=Axis(name), references=[Reference(1, name)])
    panel = interactive(one)["panels"][0]
    del panel["data"][0]["meta"]  # looked up, never shown
    assert "<a" not in json.dumps(panel)
    assert panel["data"][0]["hovertemplate"].count("%{") == 2


def test_the_program_that_draws_is_plotly():
    pytest.importorskip("plotly")
    assert "plotly.js" in library()[:200]
