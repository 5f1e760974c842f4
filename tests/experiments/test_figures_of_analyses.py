"""Figures of analyses, from small runs that are really trained."""

import json
import math
import shutil
from dataclasses import dataclass, field, replace

import numpy
import pytest
import torch

from remanence import language
from remanence.experiments import Way, find, reset_times, run
from remanence.experiments.analyses import KNOWN
from remanence.experiments.collecting import collect
from remanence.experiments.figures import NotYetRun, figures_of
from remanence.experiments.runs_to_do import Line
from remanence.models import LanguageModel
from remanence.tasks.text import Text
from remanence.timescales import InverseGamma


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A folder with results of everything that trains quickly."""
    out = tmp_path_factory.mktemp("runs")
    ids = ("plstm/kt-and-p", "plstm/unit-ablation", "plstm/copy-generalization", "fastgate/timescale-growth")
    for id in (*ids, "plstm/copy-variable-200-500", "mts/dyck2"):
        run(find(id, "smoke"), Way(out, torch.device("cpu")), seeds=() if id in ids else (1,))
    return out


def smoke(id, out):
    return figures_of(find(id, "smoke"), out)


def found(out, id):
    return json.loads((out / id / "smoke/result.json").read_text())["found"]


def test_reference_times_are_sorted_by_reset_and_exponents_are_counted(out):
    (figure,) = smoke("plstm/kt-and-p", out)
    heat, bars, *others = figure.panels
    assert len(others) == 2
    models = found(out, "plstm/kt-and-p")["models"]
    firsts = {one["need"]: one for one in reversed(models)}.values()
    assert [one for one in models if "example_k" in one] == [one for one in models if one in firsts]
    model = models[0]
    k = numpy.array(model["example_k"])
    assert numpy.array_equal(numpy.array(heat.heat.values), k.T[model["example_order"]])
    assert heat.heat.x[0] == 1
    assert (heat.references[0].at, heat.references[0].words) == (model["example_signal"], "signal")
    everything, later = bars.series
    assert sum(everything.y) == len(model["p"])
    assert sum(later.y) == len(model["later"])
    centres = numpy.array(everything.x)
    width = centres[1] - centres[0]
    for place, count in zip(centres, everything.y, strict=True):
        inside = sum(place - width / 2 <= p < place + width / 2 + 1e-12 for p in model["p"])
        assert count == pytest.approx(inside, abs=1)  # one on an edge may be counted on either side


def test_exponents_are_compared_in_a_note_and_models_that_have_not_learned_the_task_are_not_drawn(out, tmp_path):
    (figure,) = smoke("plstm/kt-and-p", out)
    comparison = found(out, "plstm/kt-and-p")["comparisons"][0]
    assert figure.note.startswith(f"Exponents of T=200 and T=500, seed 1: t = {comparison['t']:.1f}, d = ")
    path = tmp_path / "plstm/kt-and-p/smoke/result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"found": {"models": [], "comparisons": [], "left_out": []}}))
    with pytest.raises(NotYetRun, match="that have learned the task, got none; train them longer"):
        smoke("plstm/kt-and-p", tmp_path)


def test_ablation_shows_the_mean_over_orders_and_models(out):
    (figure,) = smoke("plstm/unit-ablation", out)
    curves = found(out, "plstm/unit-ablation")["T=200"]
    assert [panel.title for panel in figure.panels] == ["T=200", "T=500"]
    shown = {one.name: one for one in figure.panels[0].series}
    assert set(shown) == {"lstm", "lstm-chrono", "plstm", "plstm, later-reset first"}
    rows = numpy.concatenate([seed["scores"]["accuracy"] for seed in curves["plstm"].values()])
    assert shown["plstm"].y == pytest.approx(100 * rows.mean(0))
    assert list(shown["plstm"].x) == next(iter(curves["plstm"].values()))["counts"]


def test_generalisation_shows_the_mean_over_models_by_delay(out):
    (figure,) = smoke("plstm/copy-generalization", out)
    model = found(out, "plstm/copy-generalization")["T=500"]["lstm"]
    (one,) = (series for series in figure.panels[1].series if series.name == "lstm")
    assert list(one.x) == model["delays"]
    assert one.y == pytest.approx(100 * numpy.array(model["scores"]["accuracy"]).mean(0))
    assert figure.panels[1].x.log
    assert figure.panels[1].references == []  # 500 is not among the delays of the smoke test


def test_growth_shows_means_and_the_band_of_the_paper(out):
    (figure,) = smoke("fastgate/timescale-growth", out)
    (seed,) = found(out, "fastgate/timescale-growth")["adding"]["chrono"].values()
    means, medians = figure.panels
    (one,) = (series for series in means.series if series.name == "chrono")
    assert one.y == pytest.approx(seed["mean"])
    width = numpy.array(one.high) - numpy.array(one.low)
    assert width == pytest.approx(numpy.array(seed["std"]) / 5)
    (one,) = (series for series in medians.series if series.name == "chrono")
    assert one.y == pytest.approx(seed["percentiles"]["50"])


def test_reference_times_of_a_variable_delay_come_from_the_weights_of_a_plstm(out):
    curves, resets = smoke("plstm/copy-variable-200-500", out)
    assert (curves.id, resets.id) == ("plstm/copy-variable-200-500", "plstm/copy-variable-200-500#resets")
    short, long = resets.panels
    assert len(short.heat.x) < len(long.heat.x)
    assert short.references[0].at < long.references[0].at
    assert "plstm, seed 1" in short.title
    assert (out / resets.made_from[0]).is_dir()
    units = numpy.array(short.heat.values)
    assert (units <= numpy.array(short.heat.x)).all()  # a memory begins before it is looked at


def test_where_weights_were_not_kept_there_are_curves_alone(out, tmp_path):
    target = tmp_path / "plstm/copy-variable-200-500/smoke/plstm/seed-1"
    target.mkdir(parents=True)
    for name in ("metrics.jsonl", "result.json", "config.yaml"):
        source = out / target.relative_to(tmp_path) / name
        (target / name).write_bytes(source.read_bytes())
    assert len(smoke("plstm/copy-variable-200-500", tmp_path)) == 1


def test_reference_times_outlive_the_weights(out, tmp_path):
    experiment = find("plstm/copy-variable-200-500", "smoke")
    collect(out, tmp_path, [Line(experiment.id, 1, seeds=[1], preset="smoke")])
    assert not list(tmp_path.rglob("*.safetensors"))
    _, resets = smoke(experiment.id, out)
    _, kept = smoke(experiment.id, tmp_path)
    assert (kept.id, kept.made_from, kept.note) == (resets.id, resets.made_from, resets.note)
    for one, other in zip(kept.panels, resets.panels, strict=True):
        assert one.heat.values == [[round(k) for k in unit] for unit in other.heat.values]
        assert (one.title, one.references) == (other.title, other.references)


def test_reference_times_of_an_earlier_seed_are_kept(out, tmp_path):
    experiment, line = find("plstm/copy-variable-200-500", "smoke"), Line("plstm/copy-variable-200-500", 1, seeds=[1])
    collect(out, tmp_path / "kept", [replace(line, preset="smoke")])
    folder = tmp_path / "kept" / line.id / "smoke"
    kept = json.loads((folder / reset_times.FILE).read_text())
    assert not reset_times.is_later(kept, experiment, tmp_path / "kept")
    assert reset_times.is_later({**kept, "seed": 2}, experiment, tmp_path / "kept")
    assert not reset_times.is_later({**kept, "seed": 2}, experiment, tmp_path / "none")
    (folder / reset_times.FILE).write_text(json.dumps({**kept, "update": -1}))  # its run was replaced
    assert not reset_times.is_later({**kept, "seed": 2}, experiment, tmp_path / "kept")


def test_reference_times_are_not_those_of_a_run_that_failed(out, tmp_path):
    source, experiment = "plstm/copy-variable-200-500/smoke", find("plstm/copy-variable-200-500", "smoke")
    shutil.copytree(out / source, tmp_path / source)
    assert reset_times.reset_maps(experiment, tmp_path)["seed"] == 1
    path = tmp_path / source / "plstm/seed-1/result.json"
    (path.parent / "SHA256SUMS").unlink()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "failed"}))
    assert reset_times.reset_maps(experiment, tmp_path) is None


def test_accuracy_by_dependency_is_at_the_end_of_each_bin_and_shares_of_pairs_sum_to_one(out):
    bins, curves, pairs = smoke("mts/dyck2", out)
    assert curves.id == "mts/dyck2#curves"
    (one,) = (series for series in bins.panels[0].series if series.name == "mts")
    result = json.loads((out / "mts/dyck2/smoke/mts/seed-1/result.json").read_text())["test"]
    by_end = {int(name.split("_")[-1]): value for name, value in result.items() if name.startswith("accuracy_")}
    by_end = {end: value for end, value in by_end.items() if value is not None}
    assert dict(zip(one.x, one.y, strict=True)) == pytest.approx({end: 100 * by_end[end] for end in sorted(by_end)})
    (shares,) = pairs.panels[0].series
    assert sum(share for share in shares.y if not math.isnan(share)) == pytest.approx(1)
    assert shares.x[0] == 2


# Language models: small ones, not trained.


@dataclass(frozen=True, eq=False)
class Given:
    """A run as analyses read it."""

    made: LanguageModel
    folder: str
    model_name: str
    need: str = "Penn Treebank"
    seed: int = 1
    result: dict = field(default_factory=dict)

    @property
    def task(self):
        return Text(corpus=self.folder, level="word")

    def language_model(self):
        return self.made


@pytest.fixture
def runs(own, tmp_path):
    """A baseline, and models with assigned timescales, by shape."""
    folder = tmp_path / "texts"
    folder.mkdir()
    generator = numpy.random.default_rng(0)
    for name, words in (("train", 600), ("valid", 100), ("test", 300)):
        lines = generator.choice(["the", "of", "cat", "dog", "moon"], (words // 10, 10), p=[0.5, 0.2, 0.15, 0.1, 0.05])
        (folder / f"{name}.txt").write_text("".join(" ".join(line) + "\n" for line in lines))
    size = len(language.load(str(folder), "word").vocabulary)

    def make(name, alpha=None, validation=100.0):
        torch.manual_seed(0)
        timescales = None if alpha is None else [None, InverseGamma(alpha), None]
        made = LanguageModel(size, embedding_size=6, hidden_size=8, initial_range=1.0, timescales=timescales)
        result = {"best": {"perplexity": validation}, "test": {"perplexity": validation - 1}}
        return Given(made, str(folder), name, result=result)

    return make


@pytest.fixture
def made(tmp_path):
    """The figures of the findings of an analysis."""

    def figures(id, function, runs, **arguments):
        data = KNOWN[function](runs, **arguments).data
        path = tmp_path / "runs" / id / "short/result.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"found": data}, allow_nan=False))
        return data, figures_of(find(id, "short"), tmp_path / "runs")

    return figures


def test_fitted_timescales_are_drawn_with_their_fits(runs, made):
    data, (figure,) = made("mts/fig1-timescales", "fitted_timescales", [runs("baseline")], length=100)
    own = data["Penn Treebank"]["baseline"]["1"]
    units, statistics = figure.panels
    assert [series.y for series in units.series if series.name == "units of the model"] == [own["timescales"]]
    assert {series.name: series.dashed for series in units.series} == {
        "units of the model": False,
        "inverse gamma": True,
        "Gaussian": True,
    }
    assert [series.y for series in statistics.series] == [
        own[kind]["statistics"] for kind in ("inverse_gamma", "gaussian")
    ]
    assert f"inverse gamma alpha = {own['inverse_gamma']['best']:.2f}" in units.note


@pytest.mark.parametrize("id", ["mts/routing-ptb", "mts/routing-wt2"])
def test_routing_shows_the_ratio_of_every_group_and_bin(runs, made, id):
    data, (figure,) = made(id, "routing", [runs("mts", 0.56)], group=4, length=100, bounds=[100, 50])
    own = data["Penn Treebank"]["mts"]["1"]
    train, _ = figure.panels
    assert [tick for tick, _ in train.x.ticks] == [0, 1]
    assert len(train.series) == len(own["train"]["columns"])
    for place, series in enumerate(train.series):
        expected = [row[place] for row in own["train"]["ratio"]]
        assert [None if math.isnan(value) else value for value in series.y] == expected
    assert [series.dashed for series in train.series][-1]


def test_assigned_and_estimated_timescales_are_of_the_same_units(runs, made):
    data, (figure,) = made("mts/fig4-assigned-vs-estimated", "assigned_vs_estimated", [runs("mts", 0.56)], length=100)
    own = data["Penn Treebank"]["mts"]["1"]
    (panel,) = figure.panels
    assert {series.name: list(series.y) for series in panel.series} == {
        name: own[name] for name in ("assigned", "estimated")
    }
    assert f"Rank correlation {own['spearman']:.3f}" in panel.note


def test_forget_maps_are_labelled_with_timescales_where_these_were_set(runs, made):
    models = [runs("baseline"), runs("mts", 0.56)]
    data, (figure,) = made("mts/fig5-forget-heatmaps", "forget_heatmaps", models, number=2, chunk=20, group=2)
    assert len(figure.panels) == 6
    assert figure.columns == 3
    own = data["Penn Treebank"]["mts"]["layers"][1]
    panel = figure.panels[4]
    assert panel.title == "Penn Treebank, mts: layer 2"
    assert panel.heat.values == own["values"]
    assert panel.heat.rows[0] != figure.panels[1].heat.rows[0] == "1"
    assert panel.y.title == "mean assigned timescale (words)"
    assert len(panel.heat.columns) == 20
    assert (panel.heat.low, panel.heat.high) == (0, 1)


def test_traces_of_a_word_are_by_layer_and_by_group_where_timescales_were_set(runs, made):
    models = [runs("baseline"), runs("mts", 0.56)]
    arguments = {"words": 10, "positions": 4, "warm_up": 5, "group": 4}
    data, (layers, groups) = made("mts/word-ablation", "word_ablation", models, **arguments)
    assert (layers.id, groups.id) == ("mts/word-ablation#layers", "mts/word-ablation#groups")
    own = data["Penn Treebank"]["mts"]["1"]
    assert [panel.title for panel in layers.panels] == ["Penn Treebank, baseline", "Penn Treebank, mts"]
    assert [list(series.y) for series in layers.panels[1].series] == [row[1:] for row in own["by_layer"]]
    assert list(layers.panels[1].series[0].x) == list(range(1, 11))
    (panel,) = groups.panels
    *shaded, whole = panel.series
    assert [series.shade for series in shaded] == [0, 1]
    assert [list(series.y) for series in shaded] == [row[1:] for row in own["by_group"]]
    assert (whole.name, list(whole.y)) == ("all units", own["by_layer"][1][1:])


def test_a_sweep_over_shapes_shows_timescales_and_perplexity_with_the_best(runs, made):
    models = [runs(f"mts-{alpha}", alpha, 100 + 10 * abs(alpha - 0.56)) for alpha in (1.0, 0.56, 0.2)]
    data, (figure,) = made("mts/shape-sweep", "shape_sweep", models)
    (own,) = data.values()
    timescales, perplexity = figure.panels
    assert [series.name for series in timescales.series] == ["alpha = 0.2", "alpha = 0.56", "alpha = 1"]
    assert timescales.series[0].y == own["shapes"][0]["timescales"]
    assert perplexity.references[0].at == 0.56
    assert perplexity.series[0].y == pytest.approx([103.6, 100, 104.4])


def test_a_choice_of_layers_has_a_point_for_every_model(runs, made):
    models = [runs("mts", 0.56, 100.0), runs("steep", 1.0, 104.0)]
    _, (figure,) = made("mts/layer-choice", "layer_choice", models)
    (panel,) = figure.panels
    assert panel.x.ticks == [(0, "mts"), (1, "steep")]
    assert [series.y for series in panel.series] == [[100, 104], [99, 103]]
