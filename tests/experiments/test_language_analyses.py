"""Analyses of trained language models, on small models whose answers are known."""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from scipy import stats

import remanence as rm
from remanence import analysis, language
from remanence.experiments import PRESETS, check, find
from remanence.experiments.analyses import KNOWN, trained
from remanence.experiments.analyses.seeds import ADDITIONS, added
from remanence.experiments.analyses.trained import Trained
from remanence.experiments.analyses.words import corpus_of, rounded
from remanence.models import LanguageModel, SequenceModel
from remanence.tasks import Copy, NextWord, Text
from remanence.timescales import Fixed, InverseGamma

MINE = [
    "mts/fig1-timescales",
    "mts/routing-ptb",
    "mts/routing-wt2",
    "mts/fig4-assigned-vs-estimated",
    "mts/fig5-forget-heatmaps",
    "mts/word-ablation",
]
BOUNDS = [100, 20]
FREQUENT, USUAL, RARE = ("the", "of"), ("cat", "dog", "sat"), ("moon", "tide", "wren", "yew", "zinc")


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run as analyses read it."""

    made: LanguageModel
    folder: str
    model_name: str = "mts"
    seed: int = 1
    need: str = "text"
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def task(self):
        return Text(corpus=self.folder, level="word")

    def language_model(self):
        return self.made


def sentences(generator, words):
    """Lines of ten words, in which some are frequent and others rare."""
    every = [*FREQUENT, *USUAL, *RARE]
    chances = numpy.array([40.0] * len(FREQUENT) + [8.0] * len(USUAL) + [1.0] * len(RARE))
    drawn = generator.choice(every, words, p=chances / chances.sum())
    return "".join(" ".join(line) + "\n" for line in drawn.reshape(-1, 10))


@pytest.fixture
def folder(own, tmp_path):
    generator = numpy.random.default_rng(0)
    path = tmp_path / "texts"
    path.mkdir()
    for name, words in (("train", 700), ("valid", 100), ("test", 600)):
        (path / f"{name}.txt").write_text(sentences(generator, words))
    return str(path)


@pytest.fixture
def corpus(folder):
    return language.load(folder, "word")


def make(corpus, **options):
    torch.manual_seed(0)
    arguments = {"embedding_size": 6, "hidden_size": 8, "initial_range": 1.0, "dtype": torch.float64, **options}
    return LanguageModel(len(corpus.vocabulary), **arguments)


@torch.no_grad()
def saying(corpus, chances):
    """A model with the same word probabilities at every position."""
    model = make(corpus)
    model.embedding.weight.zero_()
    model.decoder.bias.copy_(torch.as_tensor(chances, dtype=torch.float64).log())
    return model


@torch.no_grad()
def unhearing(corpus, assigned, **options):
    """A model with constant forget and input gates; only its candidates depend on the words."""
    model = make(corpus, num_layers=len(assigned), timescales=assigned, tie=False, **options)
    for layer in model.layers:
        units = layer.hidden_size
        layer.weight_hh_l0.zero_()
        layer.weight_ih_l0[: 2 * units] = 0
        layer.weight_ih_l0[3 * units :] = 0
    return model


def analyse(function, runs, **arguments):
    """The findings as in the result file."""
    found = KNOWN[function](runs, **arguments)
    assert found.tables
    for table in found.tables:
        assert table.rows
        assert table.lines()
    text = json.dumps(found.data, allow_nan=False)
    assert json.loads(text) == found.data
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("id", MINE)
def test_files_of_analyses_are_valid(id, preset):
    experiment = find(id, preset)
    assert experiment.kind == "analysis"
    assert set(experiment.cost) == set(PRESETS)
    check(experiment)
    for need in experiment.needs.values():
        assert find(need.experiment, preset).kind == "training"


# Perplexity by frequency.


def test_a_model_that_knows_nothing_is_as_bad_on_all_words_and_one_that_counts_is_better_by_a_known_amount(
    corpus, folder
):
    size = len(corpus.vocabulary)
    chances = (corpus.counts("train") + 1) / (corpus.counts("train") + 1).sum()
    runs = [Run(saying(corpus, [1 / size] * size), folder, "even", seed) for seed in (1, 2)] + [
        Run(saying(corpus, chances), folder, "counting", 1)
    ]
    found = analyse("by_frequency", runs, bounds=BOUNDS, block=20, resamples=200)
    own = found.data["text"]
    assert own["columns"] == [">=100", "20-99", "<20", "all"]
    assert sum(own["tokens"]["train"][:-1]) == own["tokens"]["train"][-1] == len(corpus.test) - 1
    assert own["models"]["even"]["2"]["train"]["perplexity"] == pytest.approx([size] * 4)
    assert own["over_seeds"]["even"]["all"]["standard_error"] == pytest.approx([0] * 4)
    assert own["over_seeds"]["counting"]["all"]["std"] is None

    targets = corpus.test[1:]
    bins = (corpus.counts("train")[:, None] < numpy.array(BOUNDS)).sum(1)[targets]
    by_hand = [numpy.exp(-numpy.log(chances[targets[bins == place]]).mean()) for place in range(3)]
    by_hand.append(numpy.exp(-numpy.log(chances[targets]).mean()))
    assert own["models"]["counting"]["1"]["train"]["perplexity"] == pytest.approx(by_hand, rel=1e-6)

    assert own["reference"] == "even"
    (pair,) = own["comparisons"]
    assert (pair["model"], pair["seed"]) == ("counting", 1)
    blocks = pair["train"]["blocks"]
    assert blocks == (len(targets)) // 20
    assert pair["train"]["difference"][-1] == pytest.approx(
        size - numpy.exp(-numpy.log(chances[targets[: blocks * 20]]).mean()), rel=1e-6
    )
    # Better where words are frequent, worse where they are rare.
    assert pair["train"]["low"][0] > 0 > pair["train"]["high"][2]
    assert pair["train"]["low_999"][-1] <= pair["train"]["low"][-1] < pair["train"]["high"][-1]
    assert pair["all"]["first"] == pytest.approx([size] * 4)
    titles = [table.title for table in found.tables]
    assert len(titles) == 4
    assert "in the training text" in titles[0]
    assert "in training, validation and test text" in titles[2]
    rows = found.tables[1].rows
    assert [row[:3] for row in rows] == [
        ("even - counting", "1", kind) for kind in ("difference", "95 % interval", "99.9 % interval")
    ]
    assert found.tables[0].rows[0][:2] == ("even", "2")


def test_counting_all_parts_moves_words_into_other_bins(corpus, folder):
    size = len(corpus.vocabulary)
    data = analyse("by_frequency", [Run(saying(corpus, [1 / size] * size), folder)], bounds=BOUNDS).data["text"]
    for counting in ("train", "all"):
        counts = corpus.counts(counting)[corpus.test[1:]]
        assert data["tokens"][counting][0] == (counts >= 100).sum()
        assert data["tokens"][counting][2] == (counts < 20).sum()
    assert data["tokens"]["train"] != data["tokens"]["all"]
    assert data["comparisons"] == []


def test_reference_is_the_one_named_and_only_equal_seeds_are_compared(corpus, folder):
    model = make(corpus)
    runs = [Run(model, folder, name, seed) for name, seed in (("fast", 1), ("sigmoid", 1), ("fast", 2), ("refine", 1))]
    options = {"reference": "sigmoid", "bounds": [], "block": 50, "resamples": 10, "length": 201}
    data = analyse("by_frequency", runs, **options).data["text"]
    assert [(one["model"], one["seed"]) for one in data["comparisons"]] == [("fast", 1), ("refine", 1)]
    assert data["comparisons"][0]["all"]["difference"] == [0]
    assert data["tokens"]["all"] == [200]


def test_differences_of_several_seeds_have_an_interval_from_their_spread(corpus, folder):
    chances = [(corpus.counts("train") + count) / (corpus.counts("train") + count).sum() for count in (1, 5, 20)]
    even = [1 / len(corpus.vocabulary)] * len(corpus.vocabulary)
    runs = [Run(saying(corpus, even), folder, "even", seed) for seed in (1, 2, 3)]
    runs += [Run(saying(corpus, each), folder, "counting", seed) for seed, each in enumerate(chances, 1)]
    found = analyse("by_frequency", runs, bounds=[], block=20, resamples=10)
    each = [one["train"]["difference"][0] for one in found.data["text"]["comparisons"]]
    expected = stats.ttest_1samp(each, 0).confidence_interval()
    mean, interval = found.tables[1].rows[-2:]
    assert mean == ("even - counting", "3 seeds", "mean difference", f"{numpy.mean(each):.2f}")
    assert interval[2:] == ("95 % interval over seeds", f"[{expected.low:.2f}, {expected.high:.2f}]")


def test_an_empty_bin_has_neither_a_difference_nor_an_interval(corpus, folder):
    runs = [Run(make(corpus), folder, name, seed) for name in ("even", "other") for seed in (1, 2)]
    bounds = [10**9, 1]  # no word is as frequent as that
    tables = analyse("by_frequency", runs, bounds=bounds, block=20, resamples=10).tables
    assert [row[3] for row in tables[1].rows if row[1] == "2 seeds"] == ["nan", "[nan, nan]"]
    assert {row[2] for row in tables[0].rows} == {"nan"}


def test_models_of_different_texts_are_not_compared(corpus, folder, tmp_path):
    other = tmp_path / "others"
    other.mkdir()
    runs = [Run(make(corpus), folder), Run(make(corpus), str(other), "baseline")]
    with pytest.raises(ValueError, match="expected models of one corpus to compare in text, got 2 corpora"):
        KNOWN["by_frequency"](runs)


# Timescales and forget values.


def test_fits_find_the_distribution_that_units_were_given(corpus, folder):
    narrow = 0.5 + 0.1 * torch.special.ndtri(torch.linspace(0.01, 0.99, 60).double())
    gamma = unhearing(corpus, [InverseGamma(1.4), InverseGamma(1.4)], hidden_size=[150, 150])
    gaussian = unhearing(corpus, [Fixed(narrow.tolist())], hidden_size=60)
    runs = [Run(gamma, folder, "baseline", need="words"), Run(gaussian, folder, "baseline", 3, need="control")]
    found = analyse("fitted_timescales", runs, length=50)
    one, other = found.data["words"]["baseline"]["1"], found.data["control"]["baseline"]["3"]
    assert one["inverse_gamma"]["best"] == 1.4
    assert one["better"] == "inverse gamma"
    assigned = InverseGamma(1.4).timescales(150)
    assert one["range"] == pytest.approx([float(assigned.min()), float(assigned.max())], rel=1e-4)
    assert one["below_10"] == pytest.approx(float((assigned < 10).double().mean()))
    assert len(one["timescales"]) == len(one["gaussian"]["quantiles"]) == 300
    assert [layer["units"] for layer in one["layers"]] == [150, 150]
    assert one["layers"][0]["median"] == pytest.approx(float(assigned.quantile(0.5)), rel=1e-4)
    assert other["gaussian"]["best"] == 0.5
    assert other["better"] == "gaussian"
    assert len(other["gaussian"]["grid"]) == len(other["gaussian"]["statistics"])
    (table,) = found.tables
    assert [row[0] for row in table.rows] == ["words", "control"]


def test_units_without_input_have_their_assigned_timescales(corpus, folder):
    model = unhearing(corpus, [None, InverseGamma(0.56, freeze=True)], hidden_size=[8, 24])
    data = analyse("assigned_vs_estimated", [Run(model, folder)], length=60).data["text"]["mts"]["1"]
    assert data["layer"] == 2
    assert data["assigned"] == pytest.approx(InverseGamma(0.56).timescales(24).tolist(), rel=1e-4)
    assert data["estimated"] == pytest.approx(data["assigned"], rel=1e-4)
    assert (data["spearman"], data["log_pearson"]) == pytest.approx((1, 1))
    with pytest.raises(ValueError, match="expected a layer from 1 to 2, got 3"):
        KNOWN["assigned_vs_estimated"]([Run(model, folder)], layer=3, length=60)


def test_heat_maps_of_constant_forget_values_have_constant_rows_in_the_order_of_timescales(corpus, folder):
    mts = unhearing(corpus, [None, InverseGamma(0.56, freeze=True)], hidden_size=[6, 25])
    baseline = make(corpus)
    runs = [Run(mts, folder), Run(mts, folder, seed=2), Run(baseline, folder, "baseline")]
    found = analyse("forget_heatmaps", runs, number=3, chunk=15, group=10)
    data = found.data["text"]
    shown = data["mts"]
    assert (shown["seed"], shown["offset"]) == (1, 30)
    assert shown["words"] == corpus.vocabulary.decode(corpus.test[30:45])
    first, second = shown["layers"]
    assert first["assigned"] is None
    assert second["units"] == [10, 10, 5]
    assigned = InverseGamma(0.56).timescales(25)
    for values, mean, middle, units in zip(
        second["values"], second["assigned"], second["assigned_median"], assigned.split(10), strict=True
    ):
        assert values == pytest.approx([float((-1 / units).exp().mean())] * 15, abs=1e-4)
        assert mean == pytest.approx(float(units.mean()), rel=1e-4)
        assert middle == pytest.approx(float(units.quantile(0.5)), rel=1e-4)
    assert second["forget"] == sorted(second["forget"], reverse=True)
    assert [layer["assigned"] for layer in data["baseline"]["layers"]] == [None] * 3
    assert len(found.tables[0].rows) == 5
    with pytest.raises(ValueError, match=r"expected a test text of 100 chunks of 70 words, got \d+ words"):
        KNOWN["forget_heatmaps"](runs, number=100)


# Ablations.


def test_ratios_are_those_of_one_analysis_for_each_counting(corpus, folder):
    model = make(corpus, timescales=[None, InverseGamma(0.56, freeze=True), None], hidden_size=10)
    found = analyse("routing", [Run(model, folder)], group=4, bounds=BOUNDS, length=200)
    data = found.data["text"]["mts"]["1"]
    assert data["groups"]["sizes"] == [4, 4, 2]
    for counting in ("train", "all"):
        expected = analysis.routing(model, corpus.test[:200], corpus.counts(counting), group=4, bounds=BOUNDS)
        own = data[counting]
        numpy.testing.assert_allclose(own["ratio"], expected.ratio, rtol=1e-5)
        numpy.testing.assert_allclose(own["perplexity"], expected.perplexity, rtol=1e-5)
        numpy.testing.assert_allclose(own["intact"], expected.intact, rtol=1e-5)
        assert own["tokens"] == expected.tokens.tolist()
        assert own["most"] == expected.ratio.argmax(0).tolist()
        numpy.testing.assert_allclose(data["groups"]["means"], expected.groups.means, rtol=1e-5)
    assert len(found.tables) == 2
    assert len(found.tables[0].rows) == 3


@torch.no_grad()
def test_only_the_group_that_is_read_costs_anything(corpus, folder):
    model = make(corpus, timescales=[None, InverseGamma(0.56, freeze=True), None], hidden_size=9)
    model.layers[2].weight_ih_l0[:, :3] = 0
    model.layers[2].weight_ih_l0[:, 6:] = 0
    data = analyse("routing", [Run(model, folder)], group=3, bounds=[], length=100).data["text"]["mts"]["1"]
    ratios = [row[0] for row in data["train"]["ratio"]]
    assert ratios[0] == ratios[2] == 1
    assert ratios[1] != 1


def test_a_bin_without_words_has_no_ratio(corpus, folder):
    found = analyse("routing", [Run(make(corpus), folder)], group=4, bounds=[10_000], length=50)
    data = found.data["text"]["mts"]["1"]["train"]
    assert data["most"][0] is None
    assert data["ratio"][0][0] is None
    assert found.tables[0].rows[0][2] == "-"


def test_a_word_fades_with_the_timescales_of_units(own, tmp_path):
    """The same word throughout, so that cell states are constant except for the replaced word."""
    path = tmp_path / "one"
    path.mkdir()
    for name in ("train", "valid", "test"):
        (path / f"{name}.txt").write_text("word " * 300)
    corpus = language.load(str(path), "word")
    assigned = Fixed([8.0] * 3 + [4.0] * 3 + [2.0], freeze=True)
    runs = [
        Run(unhearing(corpus, [assigned], hidden_size=7), str(path)),
        Run(unhearing(corpus, [None], hidden_size=7), str(path), "baseline"),
    ]
    options = {"words": 30, "positions": 5, "warm_up": 150, "layer": 1, "group": 3, "length": 250}
    found = analyse("word_ablation", runs, **options)
    data = found.data["text"]["mts"]["1"]
    assert data["steps"] == list(range(31))
    assert data["groups"] == {"means": [8, 4, 2], "longest": [8, 4, 2], "sizes": [3, 3, 1]}
    for curve, timescale in zip(data["by_group"], (8, 4, 2), strict=True):
        numpy.testing.assert_allclose(curve, numpy.exp(-numpy.arange(31) / timescale), rtol=1e-4)
    assert data["faded"]["by_group"] == [19, 10, 5]
    assert data["positions"] == 5
    baseline = found.data["text"]["baseline"]["1"]
    assert (baseline["layer"], baseline["groups"], baseline["by_group"]) == (None, None, [])
    assert len(baseline["by_layer"]) == 1
    layers, groups = found.tables
    assert [row[0] for row in layers.rows] == ["mts, layer 1", "baseline, layer 1"]
    assert [row[0] for row in groups.rows] == [f"mts, timescale {value}" for value in (8, 4, 2)]
    assert layers.headings[2:] == ("k=1", "k=5", "k=20", "below 0.1 from k")


# Sweeps.


def test_validation_decides_which_shape_is_best_and_test_is_reported(corpus, folder):
    def run(alpha, seed, validation, test):
        model = make(corpus, timescales=[None, InverseGamma(alpha, freeze=True), None])
        result = {"best": {"perplexity": validation}, "test": test}
        return Run(model, folder, f"alpha-{alpha}", seed, result=result)

    runs = [
        run(2.0, 1, 90.0, {"perplexity": 10.0}),
        run(0.56, 1, 60.0, {"perplexity": 70.0}),
        run(0.56, 2, 62.0, {"loss": numpy.log(72.0).item()}),
        run(1.0, 1, 61.5, None),
    ]
    (data,) = analyse("shape_sweep", runs).data.values()
    assert data["best"] == 0.56
    assert [one["alpha"] for one in data["shapes"]] == [0.56, 1.0, 2.0]
    first = data["shapes"][0]
    assert (first["validation_mean"], first["model"]) == (61, "alpha-0.56")
    assert first["test"] == pytest.approx({"1": 70, "2": 72})
    assert first["timescales"] == pytest.approx(InverseGamma(0.56).timescales(8).tolist(), rel=1e-4)
    assert data["shapes"][1]["test_mean"] is None
    with pytest.raises(ValueError, match="expected inverse gamma timescales in layer 2 of 'baseline', got None"):
        KNOWN["shape_sweep"]([Run(make(corpus), folder, "baseline")])


def test_layers_are_compared_where_nothing_else_differs(corpus, folder):
    second = InverseGamma(0.56, freeze=True)
    given = {
        "mts": ([Fixed([3.0, 3.0, 4.0, 4.0, 4.0], freeze=True), second, None], 60.0),
        "first-20": ([Fixed(20.0, freeze=True), second, None], 66.0),
        "first-1": ([Fixed(1.0, freeze=True), second, None], 59.0),
        "third-10": ([Fixed([3.0, 3.0, 4.0, 4.0, 4.0], freeze=True), second, Fixed(10.0, freeze=True)], 60.5),
        "both": ([Fixed(20.0), second, Fixed(10.0)], 70.0),
    }
    runs = [
        Run(
            make(corpus, hidden_size=[5, 5, 6], timescales=list(assigned)),
            folder,
            name,
            result={"best": {"perplexity": value}, "test": {"perplexity": value + 1}},
        )
        for name, (assigned, value) in given.items()
    ]
    found = analyse("layer_choice", runs)
    (data,) = found.data.values()
    assert (data["reference"], data["best"]) == ("mts", "first-1")
    words = {name: [layer["words"] for layer in one["layers"]] for name, one in data["models"].items()}
    assert words["mts"] == ["3 and 4", "inverse gamma 0.56", "learned"]
    assert words["both"] == ["20 at the start", "inverse gamma 0.56", "10 at the start"]
    assert data["models"]["first-20"]["layers"][0]["median"] == pytest.approx(20)
    first, second, third = data["by_layer"]
    assert first == {"layer": 1, "models": ["mts", "first-20", "first-1"], "spread": 7, "best": "first-1"}
    assert second == {"layer": 2, "models": ["mts"], "spread": None, "best": "mts"}
    assert third == {"layer": 3, "models": ["mts", "third-10"], "spread": 0.5, "best": "mts"}


# Small things.


def test_a_model_of_markov_text_is_looked_at_on_markov_text(corpus, folder):
    found = corpus_of(SimpleNamespace(task=NextWord(corpus=folder, markov=5)))
    assert found.test.tolist() == language.markov(corpus, 5).test.tolist() != corpus.test.tolist()
    with pytest.raises(ValueError, match="expected models trained on a text, got task 'copy'"):
        corpus_of(SimpleNamespace(task=Copy()))


def test_numbers_are_cut_and_nothing_else():
    assert rounded({"a": [1 / 3, 7, None, "x", True], "b": 123456.789}, 3) == {
        "a": [0.333, 7, None, "x", True],
        "b": 123000.0,
    }


def test_a_run_gives_the_kind_of_model_that_was_trained_and_refuses_the_other(corpus, tmp_path, monkeypatch):
    run = Trained(tmp_path, "text", "mts", 1, {}, torch.device("cpu"))
    words, layer = make(corpus), SequenceModel(rm.LSTM(2, 3), 1)
    monkeypatch.setattr(trained, "load_model", lambda directory, device: words)
    assert run.language_model() is words
    with pytest.raises(ValueError, match="expected a recurrent layer with a read-out, got the language model of"):
        run.model()
    monkeypatch.setattr(trained, "load_model", lambda directory, device: layer)
    assert run.model() is layer
    with pytest.raises(ValueError, match="expected a language model, got a layer with a read-out in"):
        run.language_model()


def test_timescales_of_the_published_model_are_in_the_groups_of_the_paper():
    groups = analysis.groups_of_units(InverseGamma(0.56).timescales(1150), find("mts/word-ablation").arguments["group"])
    assert groups.means.round(1).tolist()[1:4] == [50.6, 18.7, 9.8]


def flat(data):
    """All numbers and words, in order."""
    if isinstance(data, dict):
        return [one for value in data.values() for one in flat(value)]
    return [one for value in data for one in flat(value)] if isinstance(data, list) else [data]


ARGUMENTS: dict[str, dict[str, Any]] = {
    "by_frequency": {"bounds": BOUNDS, "block": 20, "resamples": 50},
    "fitted_timescales": {},
    "routing": {"bounds": BOUNDS, "group": 4},
    "assigned_vs_estimated": {},
    "forget_heatmaps": {"group": 3},
    "word_ablation": {"words": 20, "positions": 30, "group": 4},
    "shape_sweep": {},
    "layer_choice": {},
}


@pytest.mark.parametrize("function", ADDITIONS)
def test_findings_about_seeds_one_at_a_time_add_up_to_those_about_all(corpus, folder, function):
    def model(seed, timescales):
        made = make(corpus, timescales=timescales)
        torch.nn.init.normal_(made.decoder.bias, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            made.layers[0].weight_ih_l0.mul_(seed)
        return made.eval()

    assigned = [Fixed(3.0), InverseGamma(0.56, freeze=True), None]
    runs = [
        Run(model(seed, assigned if name == "mts" else None), folder, name, seed)
        for seed in (2, 10)
        for name in ("baseline", "mts")
    ]
    if function == "assigned_vs_estimated":
        runs = [run for run in runs if run.model_name == "mts"]
    arguments = ARGUMENTS[function]
    whole = KNOWN[function](runs, **arguments)
    parts = [KNOWN[function]([run for run in runs if run.seed == seed], **arguments).data for seed in (2, 10)]
    kept = [{("text", run.model_name, seed) for run in runs} for seed in (2, 10)]
    for first, own, second in ((parts[0], kept[0], parts[1]), (parts[1], kept[1], parts[0])):
        both = added(function, json.loads(json.dumps(first)), own, second)
        assert both is not None
        assert both.data == whole.data
        assert both.tables == whole.tables
    only = added(function, whole.data, kept[0], parts[1])  # seed 10 is also in the data, but is not kept
    assert only is not None
    assert only.data == whole.data
    replaced = added(function, parts[0], set(), parts[1])
    assert replaced is not None
    assert replaced.data == parts[1]


def test_a_new_seed_without_its_reference_leaves_earlier_comparisons_as_they_are(corpus, folder):
    size = len(corpus.vocabulary)
    broken = saying(corpus, [1 / size] * size)
    torch.nn.init.constant_(broken.decoder.bias, math.nan)
    good = [Run(saying(corpus, [1 / size] * size), folder, name, 1) for name in ("baseline", "mts")]
    new = [Run(broken, folder, "baseline", 2), Run(saying(corpus, [1 / size] * size), folder, "mts", 2)]
    before, after = (
        KNOWN["by_frequency"](runs, reference="baseline", **ARGUMENTS["by_frequency"]).data for runs in (good, new)
    )
    assert after["text"]["reference"] == "mts"
    for first, own, second in (
        (before, {("text", "baseline", 1), ("text", "mts", 1)}, after),
        (after, {("text", "baseline", 2), ("text", "mts", 2)}, before),
    ):
        both = added("by_frequency", first, own, second)
        assert both is not None
        found = both.data["text"]
        assert found["reference"] == "baseline"
        assert [(one["model"], one["seed"]) for one in found["comparisons"]] == [("mts", 1)]
        assert found["left_out"] == ["baseline seed 2"]
        assert {name: list(seeds) for name, seeds in found["models"].items()} == {"baseline": ["1"], "mts": ["1", "2"]}


def test_findings_of_other_analyses_cannot_be_added():
    assert added("forget_heatmaps", {}, (), {}) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("function", "arguments"), ARGUMENTS.items())
def test_on_a_gpu_the_same_is_found(corpus, folder, function, arguments):
    model = make(corpus, timescales=[Fixed(3.0), InverseGamma(0.56, freeze=True), None]).eval()
    on_cpu = KNOWN[function]([Run(model, folder)], **arguments).data
    on_gpu = KNOWN[function]([Run(copy.deepcopy(model).cuda(), folder)], **arguments).data
    for one, other in zip(flat(on_cpu), flat(on_gpu), strict=True):
        assert other == (pytest.approx(one, rel=1e-4) if isinstance(one, float) else one)
