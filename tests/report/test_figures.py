"""Figures made from result files show the numbers in the files."""

import json
import math
import statistics
from pathlib import Path

import pytest

from remanence.experiments import IDS, find
from remanence.experiments.figures import figures_of, latest, statement_of, with_results
from remanence.report.figure import Series
from remanence.report.figures import KNOWN
from remanence.report.figures.learning_curves import ENDED, SEEDS, WITHOUT, shades_of
from remanence.report.figures.shared import few, in_sight, mean, mean_and_band, mean_curve, short
from remanence.report.files import NotYetRun, ResultFiles

RESULTS = Path(__file__).parents[2] / "results"


def write(root, id, preset, model, seed, lines=(), result=None):
    """The folder of a run."""
    folder = root / id / preset / model / f"seed-{seed}"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def curve(*values, score="accuracy", every=10):
    return [
        {"update": every * number, "epoch": number / 2, "train": {"loss": 1.0}, "validation": {score: value}}
        for number, value in enumerate(values, 1)
    ]


def named(figure, name):
    """The thick series of a name, in all panels."""
    return [one for panel in figure.panels for one in panel.series if one.name == name]


# Every experiment.


def test_every_experiment_has_figures_and_no_other_has():
    assert set(KNOWN) == set(IDS)


@pytest.mark.parametrize("id", IDS)
def test_without_results_one_sentence_says_what_to_run(tmp_path, id):
    with pytest.raises(
        NotYetRun, match=rf"expected results of {id} in .*; `remanence run {id} --preset smoke"
    ) as found:
        figures_of(find(id, "smoke"), tmp_path)
    assert isinstance(found.value, ValueError)
    with pytest.raises(NotYetRun, match=f"expected results of {id} in"):
        latest(id, tmp_path)


def committed():
    return with_results(RESULTS)


@pytest.mark.parametrize("id", committed())
def test_figures_of_the_results_here_have_titles_units_and_what_was_published(id):
    experiment = latest(id, RESULTS)
    figures = figures_of(experiment, RESULTS)
    assert len({figure.id for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.id.partition("#")[0] == id  # each of several figures has a name after it
        assert figure.statement == statement_of(experiment)
        assert bool(figure.statement) is not experiment.is_own
        assert experiment.title in figure.title
        for place in figure.made_from:
            assert (RESULTS / place).exists()
        for panel in figure.panels:
            assert panel.x.title
            assert panel.y.title
            assert panel.heat is not None or any(not one.faint for one in panel.series)
            for one in panel.series:
                assert len(one.x) == len(one.y) > 0


def test_the_preset_nearest_to_the_paper_is_taken(tmp_path):
    for preset in ("smoke", "short"):
        write(tmp_path, "plstm/copy-200", preset, "lstm", 1, curve(0.5))
    assert latest("plstm/copy-200", tmp_path).preset == "short"
    assert with_results(tmp_path) == ["plstm/copy-200"]


# Files.


def test_runs_come_in_the_order_of_the_experiment_and_of_seeds(tmp_path):
    for model, seed in (("plstm", 10), ("plstm", 9), ("lstm", 1), ("another", 1)):
        write(tmp_path, "plstm/copy-200", "short", model, seed, curve(0.5))
    (tmp_path / "plstm/copy-200/short/plstm/seed-x").mkdir()
    (tmp_path / "plstm/copy-200/short/plstm/seed-11").mkdir()  # begun, nothing written yet
    files = ResultFiles(tmp_path, "plstm/copy-200", "short", models=["lstm", "lstm-chrono", "plstm"])
    assert {name: [run.seed for run in runs] for name, runs in files.runs.items()} == {
        "lstm": [1],
        "plstm": [9, 10],
        "another": [1],
    }


def test_a_last_line_that_was_cut_off_is_passed_over_and_another_damaged_one_is_not(tmp_path):
    folder = write(tmp_path, "plstm/copy-200", "short", "lstm", 1, curve(0.5, 0.6))
    whole = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(whole[:-20])
    files = ResultFiles(tmp_path, "plstm/copy-200", "short")
    assert files.runs["lstm"][0].curve("accuracy") == {10: 0.5}
    (folder / "metrics.jsonl").write_text("{" + whole)
    with pytest.raises(ValueError, match=r"^expected intact JSON lines in .*metrics\.jsonl, got a damaged line 1; "):
        figures_of(find("plstm/copy-200"), tmp_path)


def test_a_damaged_result_and_one_of_another_form_are_answered(tmp_path):
    path = tmp_path / "plstm/fig1-decay/short/result.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"found": {"steps"')
    with pytest.raises(ValueError, match=r"^expected a result in .*result\.json, got a file that cannot be read"):
        figures_of(find("plstm/fig1-decay"), tmp_path)
    path.write_text('{"found": {"steps": [0]}}')
    with pytest.raises(ValueError, match=r"expected 'crossing' in the results under .*; remove them and run it again"):
        figures_of(find("plstm/fig1-decay"), tmp_path)


# Learning curves.


def test_the_thick_line_is_the_mean_of_the_runs_in_the_files():
    (figure,) = figures_of(find("fastgate/copy-500", "paper"), RESULTS)
    accuracy, loss = named(figure, "fast")
    folder = RESULTS / "fastgate/copy-500/paper/fast"
    runs = [
        {line["update"]: line["validation"] for line in map(json.loads, path.read_text().splitlines())}
        for path in folder.glob("seed-*/metrics.jsonl")
    ]
    assert len(runs) == 3
    assert list(accuracy.x) == list(loss.x) == sorted(runs[0])
    assert accuracy.y == pytest.approx([100 * statistics.fmean(run[at]["accuracy"] for run in runs) for at in runs[0]])
    assert loss.y == pytest.approx([statistics.fmean(run[at]["loss"] for run in runs) for at in runs[0]])
    assert [one.like for one in figure.panels[0].series if one.faint].count("fast") == 3
    assert figure.panels[0].y.title == "validation accuracy (%)"
    assert figure.panels[0].references[0].at == pytest.approx(12.5)
    assert figure.panels[1].y.log
    drawn = dict.fromkeys(one.like or one.name for one in figure.panels[0].series)
    assert list(drawn) == ["softsign", "sigmoid", "refine", "fast", "chrono", "janet", "nru", "nru-clip"]
    assert figure.note.endswith("Runs without an evaluation are left out.")  # one of NRU


def test_models_with_time_as_an_input_have_panels_of_their_own_and_the_same_names():
    (figure,) = figures_of(find("plstm/freq-async", "paper"), RESULTS)
    assert [(panel.title, panel.y.title) for panel in figure.panels] == [
        ("without time as an input", "training loss"),
        ("without time as an input", "validation accuracy (%)"),
        ("with time as an input", "training loss"),
        ("with time as an input", "validation accuracy (%)"),
    ]
    assert len(named(figure, "plstm")) == 4
    assert max(named(figure, "plstm")[1].y) > 90 > max(named(figure, "lstm")[1].y)


def test_half_finished_runs_are_drawn_as_far_as_they_are(tmp_path):
    write(tmp_path, "plstm/copy-200", "short", "lstm", 1, curve(0.1, 0.3, 0.5))
    write(tmp_path, "plstm/copy-200", "short", "lstm", 2, curve(0.2))
    write(tmp_path, "plstm/copy-200", "short", "plstm", 1)
    (figure,) = figures_of(find("plstm/copy-200"), tmp_path)
    (panel,) = figure.panels  # no loss was written down
    (thick,) = (one for one in panel.series if not one.faint)
    assert (list(thick.x), thick.y) == ([10, 20, 30], pytest.approx([15, 25, 35]))
    assert panel.references == []
    assert figure.note == f"{SEEDS} {ENDED} {WITHOUT}"


def test_what_means_of_runs_are_is_said_where_it_matters(tmp_path):
    write(tmp_path, "plstm/copy-200", "short", "plstm", 1, curve(0.1, 0.3))
    write(tmp_path, "plstm/copy-200", "short", "lstm", 1, curve(0.1))
    (alone,) = figures_of(find("plstm/copy-200"), tmp_path)
    assert alone.note == ""
    write(tmp_path, "plstm/copy-200", "short", "plstm", 2, curve(0.2, 0.4))
    (both,) = figures_of(find("plstm/copy-200"), tmp_path)
    assert both.note == SEEDS


def test_psmnist_is_drawn_over_epochs(tmp_path):
    write(tmp_path, "fastgate/psmnist", "short", "fast", 1, curve(0.1, 0.3))
    (figure,) = figures_of(find("fastgate/psmnist"), tmp_path)
    (fast,) = named(figure, "fast")
    assert (figure.panels[0].x.title, list(fast.x), fast.y) == ("epochs", [0.5, 1.0], [10, 30])


def test_a_mean_begins_where_all_have_begun():
    assert mean_curve([{1: 1.0, 2: 3.0}, {2: 5.0, 3: 7.0}]) == {2: 4.0, 3: 5.0}


def test_a_band_is_one_sample_deviation_wide_and_ends_where_percentages_do():
    middle, low, high = mean_and_band([[10, 99, 1], [14, 100, 0]])
    assert middle == [12, 99.5, 0.5]
    spread = math.sqrt(8)
    assert low == pytest.approx([12 - spread, 99.5 - math.sqrt(0.5), 0])
    assert high == pytest.approx([12 + spread, 100, 0.5 + math.sqrt(0.5)])


# By exponent, length and dependency.


def test_exponents_are_shades_in_order_and_updates_to_learn_are_those_of_runs_that_did(tmp_path):
    for model, values in (("p-1.5", (0.2, 0.3)), ("p-0.3", (0.5, 0.995)), ("p-0.1", (0.991, 1.0))):
        write(tmp_path, "plstm/fixed-p", "short", model, 1, curve(*values))
    (figure,) = figures_of(find("plstm/fixed-p"), tmp_path)
    curves, learned = figure.panels
    assert [(one.name, one.shade) for one in curves.series] == [("p = 0.1", 0), ("p = 0.3", 0.5), ("p = 1.5", 1)]
    (points,) = learned.series
    assert list(zip(points.x, points.y, strict=True)) == [(0.1, 10), (0.3, 20)]
    assert learned.y.title == "updates to 99 %"
    assert figure.note == "1 of 3 runs have not reached 99 %."


def test_many_values_of_a_quantity_are_shades_and_many_other_models_are_not():
    values = [f"p-{number / 10}" for number in range(1, 10)]
    assert shades_of(values) == [number / 8 for number in range(9)]
    assert shades_of(values[:8]) == [None] * 8
    assert shades_of([*values, "lstm"]) == shades_of([*values, "q-1"]) == [None] * 10


def test_where_no_run_learned_it_there_is_no_empty_panel(tmp_path):
    write(tmp_path, "plstm/fixed-p", "short", "p-1.5", 1, curve(0.2))
    (figure,) = figures_of(find("plstm/fixed-p"), tmp_path)
    assert len(figure.panels) == 1


def test_bins_of_length_come_in_order_with_mean_and_deviation(tmp_path):
    for seed, shift in ((1, 0.0), (2, 0.1)):
        test = {"accuracy": 0.5, "loss": 1.0, "accuracy_over_100": 0.9 - shift, "accuracy_51_100": 0.6 + shift}
        test["accuracy_1_50"] = 0.3
        write(tmp_path, "plstm/imdb", "short", "plstm", seed, curve(0.5), {"test": test, "best": test})
    figure, curves = figures_of(find("plstm/imdb"), tmp_path)
    (panel,) = figure.panels
    assert panel.x.ticks == [(0, "1-50"), (1, "51-100"), (2, "over 100")]
    (one,) = panel.series
    assert one.y == pytest.approx([30, 65, 85])
    assert one.high == pytest.approx([30, 65 + 10 / math.sqrt(2), 85 + 10 / math.sqrt(2)])
    assert curves.id == "plstm/imdb#curves"


def test_a_run_without_a_test_has_curves_only(tmp_path):
    write(tmp_path, "plstm/imdb", "short", "plstm", 1, curve(0.5))
    (figure,) = figures_of(find("plstm/imdb"), tmp_path)
    assert figure.id == "plstm/imdb"


# Simulations.


def test_decay_is_that_of_the_formulas():
    (figure,) = figures_of(find("plstm/fig1-decay", "paper"), RESULTS)
    (exponential,), (power_law,) = named(figure, "exponential"), named(figure, "power law")
    assert exponential.y[:4] == pytest.approx([0.97**n for n in range(4)])
    assert power_law.y[-1] == pytest.approx(201**-0.3)
    (reference,) = figure.panels[0].references
    assert 0.97**reference.at == pytest.approx((reference.at + 1) ** -0.3)


def test_slopes_of_the_toy_problem_end_near_the_powers_of_theory():
    (figure,) = figures_of(find("fastgate/fig2-toy", "paper"), RESULTS)
    distance, slopes = figure.panels
    assert {one.mark for one in distance.series} == {"line", "points"}
    last = {one.name: one.y[-1] for one in slopes.series if not one.dashed}
    assert last["softsign"] == pytest.approx(-1 / 3, abs=0.01)
    assert last["sigmoid"] == pytest.approx(-1, abs=0.001)
    assert last["fast"] < last["refine"] - 0.05


def test_gate_functions_have_their_tails_in_powers_of_ten():
    (figure,) = figures_of(find("fastgate/fig1-functions", "paper"), RESULTS)
    gate, slope, tail = figure.panels
    sigmoid = next(one for one in gate.series if one.name == "sigmoid")
    middle = len(sigmoid.x) // 2
    assert (sigmoid.x[middle], sigmoid.y[middle]) == pytest.approx((0, 0.5))
    assert next(one for one in slope.series if one.name == "sigmoid").y[middle] == pytest.approx(0.25)
    end = next(one for one in tail.series if one.name == "sigmoid")
    assert end.y[-1] == pytest.approx(math.log10(1 / (1 + math.exp(8))))
    assert (tail.y.ticks[0], tail.y.ticks[-1]) == ((-16, "10⁻¹⁶"), (0, "10⁰"))


# Pieces.


def test_few_keeps_both_ends_and_no_more_than_asked():
    assert few(3, 5) == [0, 1, 2]
    found = few(1000, 7)
    assert len(found) == 7
    assert (found[0], found[-1]) == (0, 999)


def test_a_mean_over_seeds_has_a_gap_where_one_has_none():
    assert mean([1.0, 3.0]) == 2
    assert math.isnan(mean([1.0, None]))
    assert math.isnan(mean([]))


def test_timescales_are_short_labels():
    assert [short(value) for value in (13285.0, 175.0, 65.94, 5.34, 0.31, None)] == [
        *("13.3K", "175", "65.9", "5.34", "0.31", "∞")
    ]


def test_a_level_far_from_all_curves_is_left_out():
    curves = [Series("a", [1, 2], [80.0, 320.0]), Series("b", [1, 2], [90.0, math.nan])]
    assert in_sight(500, curves)
    assert in_sight(0, curves)
    assert not in_sight(10_000, curves)
    assert in_sight(1200, curves, log=True)
    assert not in_sight(1300, curves, log=True)
    assert not in_sight(0, curves, log=True)
    assert not in_sight(1, [])
    (figure,) = figures_of(find("mts/ptb", "short"), RESULTS)
    assert not any(panel.references for panel in figure.panels)
