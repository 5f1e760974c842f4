"""Every experiment of the specification is there, once, and its file says what it must."""

from importlib.resources import files

import pytest

from remanence import experiments
from remanence.experiments import IDS, PRESETS, check, find
from remanence.experiments.models import build_model, count_parameters, describe, from_description
from remanence.experiments.registry import file, written
from remanence.experiments.runs import plan

SPECIFIED = [
    "plstm/fig1-decay",
    "plstm/copy-200",
    "plstm/copy-500",
    "plstm/copy-1000",
    "plstm/copy-variable-200-500",
    "plstm/copy-variable-200-1000",
    "plstm/copy-generalization",
    "plstm/fixed-p",
    "plstm/kt-and-p",
    "plstm/unit-ablation",
    "plstm/mnist-256",
    "plstm/mnist-512",
    "plstm/pmnist-256",
    "plstm/pmnist-512",
    "plstm/charptb-150",
    "plstm/charptb-500",
    "plstm/text8-500",
    "plstm/imdb",
    "plstm/freq-sync1",
    "plstm/freq-sync0.1",
    "plstm/freq-async",
    "fastgate/fig1-functions",
    "fastgate/fig2-toy",
    "fastgate/adding-5000",
    "fastgate/copy-500",
    "fastgate/timescale-growth",
    "fastgate/smnist",
    "fastgate/psmnist",
    "fastgate/scifar",
    "fastgate/ptb",
    "mts/ptb",
    "mts/wt2",
    "mts/markov-ptb",
    "mts/fig1-timescales",
    "mts/dyck2",
    "mts/routing-ptb",
    "mts/routing-wt2",
    "mts/fig4-assigned-vs-estimated",
    "mts/fig5-forget-heatmaps",
    "mts/word-ablation",
    "mts/shape-sweep",
    "mts/layer-choice",
]
TRAINED = [id for id in IDS if find(id).kind == "training"]


def test_every_id_is_there_once_in_order_and_two_are_our_own():
    assert [*SPECIFIED, "own/digits", "own/demo", "own/attractors"] == list(IDS)
    assert len(set(IDS)) == len(IDS)


def test_every_file_is_listed():
    specs = files("remanence.experiments") / "specs"
    found = {
        f"{paper.name}/{one.name.removesuffix('.yaml')}"
        for paper in specs.iterdir()
        for one in paper.iterdir()
        if not one.name.startswith("_")
    }
    assert found == set(IDS)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("id", IDS)
def test_an_experiment_is_valid_in_every_preset(id, preset):
    experiment = find(id, preset)
    assert (experiment.id, experiment.preset) == (id, preset)
    assert experiment.title
    assert experiment.reproduces
    assert experiment.claims or experiment.is_own
    check(experiment)
    assert set(experiment.cost) == set(PRESETS)


@pytest.mark.parametrize("id", TRAINED)
def test_short_has_three_seeds_where_the_paper_has_and_smoke_is_small(id):
    paper, smoke = find(id, "paper"), find(id, "smoke")
    assert len(find(id, "short").seeds) >= min(3, len(paper.seeds))
    assert all(model.hidden_size <= 16 for model in smoke.models.values())
    assert {*smoke.models, *smoke.left_out} == set(paper.models)


@pytest.mark.parametrize("id", TRAINED)
def test_a_published_number_of_the_report_belongs_to_a_model_or_is_quoted(id):
    experiment = find(id, "paper")
    for quantity, numbers in experiment.published.items():
        for name in numbers if quantity.startswith(experiment.report.score) else ():
            assert name in experiment.models or "quoted" in name, (quantity, name)


def test_extra_models_run_where_they_are_named(tmp_path):
    experiment = find("plstm/pmnist-256", "smoke")
    assert experiment.usual == ["lstm", "plstm"]
    assert list(plan(experiment, tmp_path)) == experiment.usual
    assert list(plan(experiment, tmp_path, ["sru", "exprnn"])) == ["exprnn", "sru"]
    assert [experiment.published_of(name) for name in ("lstm", "exprnn", "urnn", "sru")] == [
        "lstm",
        *("expRNN (quoted)", "uRNN (quoted)", "SRU (quoted)"),
    ]
    exprnn = experiment.models["exprnn"].training.optimiser
    assert (exprnn.name, exprnn.lr_factors) == ("rmsprop", {"skew": 0.1})
    assert "lr_factors" not in describe(experiment, experiment.models["lstm"], 1)["training"]["optimiser"]


# Counts as the specification prints them; fast-gate LSTMs with two bias vectors, which it counts with one.
PARAMETERS = {
    "plstm/copy-200": {"lstm": 72_970, "lstm-chrono": 72_970, "plstm": 54_794},
    "plstm/copy-1000": {"lstm": 72_970, "plstm": 54_794},
    "plstm/mnist-256": {"lstm": 267_786, "plstm": 200_970},
    "plstm/pmnist-512": {"lstm": 1_059_850, "plstm": 795_146},
    "plstm/imdb": {"lstm": 117_889, "lstm-chrono": 117_889, "plstm": 118_119},
    "plstm/freq-async": {"lstm": 49_942, "lstm-time": 50_382, "plstm": 37_292, "plstm-time": 37_622},
    "mts/dyck2": {"baseline": 268_802, "mts": 268_802},  # 2048 of mts are frozen
    "fastgate/psmnist": {
        "fast": 1_057_802 + 4 * 512,
        "sigmoid": 1_057_802 + 4 * 512,
        "refine": 1_320_970 + 5 * 512,
        "janet": 531_466,
        "nru": 410_354,
    },
}


@pytest.mark.parametrize("id", PARAMETERS)
def test_models_have_as_many_parameters_as_published(id):
    models = find(id, "paper").models
    for name, count in PARAMETERS[id].items():
        assert sum(weight.numel() for weight in build_model(models[name]).parameters()) == count, name


@pytest.mark.parametrize("id", TRAINED)
def test_parameter_counts_in_the_files_are_right(id):
    for model in find(id, "paper").models.values():
        assert model.parameters in (None, count_parameters(model)), model.name


@pytest.mark.parametrize("id", TRAINED)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_description_gives_the_model_back(id, preset):
    experiment = find(id, preset)
    for model in experiment.models.values():
        again = from_description(describe(experiment, model, 1))
        assert (again.make, again.hidden_size, again.layer) == (model.make, model.hidden_size, model.layer)
        assert (again.task, again.training) == (model.task, model.training)


def test_the_settings_of_the_paper():
    copy = find("plstm/copy-500", "paper")
    assert copy.seeds == [1, 2, 3, 4, 5]
    model = copy.models["lstm-chrono"]
    assert (model.task.delay, model.hidden_size, model.layer["t_max"], model.training.batch) == (500, 128, 750, 128)
    optimiser = model.training.optimiser
    assert (optimiser.name, optimiser.lr, optimiser.smoothing, optimiser.clip_norm) == ("rmsprop", 1e-3, 0.9, 1.0)
    imdb = find("plstm/imdb", "paper").models
    assert [imdb[name].training.optimiser.lr for name in ("lstm", "lstm-chrono", "plstm")] == [1e-3, 1e-3, 5e-4]
    assert imdb["plstm"].output_dropout == 0.2
    assert find("plstm/freq-sync0.1", "paper").models["lstm-chrono-time"].layer["t_max"] == 1250
    assert find("plstm/freq-async", "paper").models["plstm"].layer["eps"] == 1e-5
    for id in ("plstm/copy-200", "plstm/copy-500", "plstm/copy-1000", "plstm/copy-variable-200-1000"):
        training = find(id, "paper").models["plstm"].training
        assert (training.epochs, training.stop.failed_after) == (300, 200), id  # else nothing could ever fail
    assert find("plstm/fixed-p", "paper").models["p-0.1"].training.epochs == 1000
    frequency = find("plstm/freq-async", "paper").models
    assert {name: model.task.periods for name, model in frequency.items() if model.task.periods == "uniform"} == {
        f"{name}-uniform": "uniform" for name in ("lstm", "lstm-chrono", "plstm")
    }
    assert find("plstm/freq-sync1", "paper").models["lstm-time"].task.periods == "log-uniform"
    characters = find("plstm/charptb-500", "paper").models["plstm"].training
    assert (characters.evaluate_batch, characters.test_batch, characters.evaluate_warm) == (128, 8, 1)
    clipped = find("fastgate/copy-500", "paper").models
    assert [clipped[name].training.optimiser.clip_norm for name in ("nru", "nru-clip")] == [1.0, 0.1]
    assert find("fastgate/adding-5000", "paper").models["sigmoid"].layer == {"forget_bias": 1}
    assert find("fastgate/scifar", "paper").models["nru"].layer == {"memory_size": 144, "heads": 4}


def test_published_numbers():
    numbers = find("fastgate/psmnist").published["accuracy"]
    assert (numbers["fast"].mean, numbers["fast"].std) == (96.18, 0.14)
    assert find("plstm/pmnist-512").published["accuracy"]["plstm"].mean == 95.6
    assert find("plstm/freq-async").published["accuracy"]["plstm"].std == 0.5


def test_one_extends_another_but_has_its_own_title_and_numbers():
    parent, child = written("plstm/copy-200"), written("plstm/copy-500")
    assert child["training"] == parent["training"]
    assert child["task"] == {**parent["task"], "delay": 500}
    assert child["title"] != parent["title"]
    assert "published" not in file("fastgate/_seven")
    assert written("fastgate/psmnist")["published"] != written("fastgate/smnist")["published"]


def test_a_preset_may_leave_models_out_and_says_so():
    experiment = find("fastgate/smnist", "short")
    assert "nru" in experiment.left_out
    assert not set(experiment.left_out) & set(experiment.models)
    assert {*experiment.left_out, *experiment.models} == set(find("fastgate/smnist", "paper").models)
    with pytest.raises(ValueError, match="expected models of preset short, got 'nru', which it leaves out"):
        check(experiment, ["nru"])
    left_out = ["p-0.05", "p-0.1", "p-0.2", "p-0.3", "p-0.7", "p-0.9", "p-1.5"]  # no lstm-chrono, which it never had
    assert find("plstm/fixed-p", "smoke").left_out == left_out


@pytest.mark.parametrize(
    ("id", "preset", "answer"),
    [
        ("plstm/copy200", "short", "did you mean 'plstm/copy-200'"),
        ("copy-200", "short", "expected experiment to be one of plstm/fig1-decay,"),
        ("plstm/_copy", "short", "expected experiment to be one of"),
        ("../../etc", "short", "expected experiment to be one of"),
        (
            "plstm/copy-200",
            "papr",
            "expected preset to be one of smoke, short, paper, got 'papr'; did you mean 'paper'?",
        ),
    ],
)
def test_an_unknown_name_suggests_the_closest_one(id, preset, answer):
    with pytest.raises(ValueError, match="expected") as caught:
        find(id, preset)
    assert answer in str(caught.value)


def test_an_unknown_model_suggests_the_closest_one():
    with pytest.raises(
        ValueError, match=r"expected model of plstm/copy-200 to be one of lstm, .* did you mean 'plstm'"
    ):
        check(find("plstm/copy-200"), ["pltsm"])


def test_an_unknown_argument_of_an_analysis_is_answered():
    with pytest.raises(ValueError, match=r"got arguments\.sequence; did you mean arguments\.sequences\?"):
        check(find("plstm/kt-and-p", "short", ["arguments.sequence=3"]))


def test_whatever_is_announced_exists():
    assert [name for name in experiments.__all__ if not hasattr(experiments, name)] == []
