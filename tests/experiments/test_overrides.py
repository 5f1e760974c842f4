"""Presets and `--set` overrides."""

import pytest

from remanence.experiments import find
from remanence.experiments.merge import merge


def test_merging_goes_into_mappings_and_replaces_the_rest():
    below = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merge(below, {"a": {"c": [3]}, "e": None}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": None}
    assert below == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


def training(*overrides):
    return find("plstm/copy-200", "short", overrides).models["plstm"].training


@pytest.mark.parametrize("path", ["training.optimiser.lr", "train.optimiser.lr", "training.lr", "train.lr"])
def test_the_learning_rate_has_a_long_and_a_short_name(path):
    assert training(f"{path}=3e-4").optimiser.lr == 3e-4


def test_fields_of_the_training_itself_and_of_its_parts():
    changed = training(
        "train.epochs=7", "train.patience=3", "training.stop.reached.accuracy=0.5", "train.clip_norm=null"
    )
    assert (changed.epochs, changed.stop.patience, changed.optimiser.clip_norm) == (7, 3, None)
    assert changed.stop.reached["accuracy"] == 0.5
    assert changed.batch == 128


def test_task_and_model():
    experiment = find("plstm/copy-200", "paper", ["task.delay=50", "model.hidden_size=64", "models.plstm.p=0.3"])
    assert {model.task.delay for model in experiment.models.values()} == {50}
    assert {model.hidden_size for model in experiment.models.values()} == {64}
    assert [model.layer.get("p") for model in experiment.models.values()] == [None, None, 0.3]


def test_what_is_set_for_all_holds_for_all():
    experiment = find("plstm/imdb", "paper", ["train.lr=2e-3", "model.hidden_size=20"])
    assert {model.training.optimiser.lr for model in experiment.models.values()} == {2e-3}
    assert {model.hidden_size for model in experiment.models.values()} == {20}
    experiment = find("plstm/freq-async", "paper", ["task.time_input=true"])
    assert {model.task.time_input for model in experiment.models.values()} == {True}


def test_what_is_set_for_one_holds_for_one():
    experiment = find("plstm/imdb", "paper", ["models.lstm.training.lr=2e-3"])
    assert [model.training.optimiser.lr for model in experiment.models.values()] == [2e-3, 1e-3, 5e-4]


def test_a_model_with_a_dot_in_its_name_is_found():
    experiment = find("plstm/fixed-p", "paper", ["models.p-0.05.p=0.06"])
    assert experiment.models["p-0.05"].layer == {"p": 0.06}


def test_arguments_of_an_analysis():
    assert find("plstm/kt-and-p", "paper", ["arguments.sequences=7"]).arguments["sequences"] == 7


def test_later_overrides_win():
    assert training("train.lr=1", "train.lr=2").optimiser.lr == 2


def test_overrides_leave_no_trace():
    training("train.lr=1")
    assert training().optimiser.lr == 1e-3


@pytest.mark.parametrize(
    ("assignment", "answer"),
    [
        ("train.lr", "expected --set to be given PATH=VALUE, such as train.lr=3e-4, got 'train.lr'"),
        ("=3", "expected --set to be given PATH=VALUE, such as train.lr=3e-4, got '=3'"),
        ("train.lr=[1", "expected the value of train.lr to be YAML, got '[1'"),
        ("training=3", "expected --set to name a field of training, got 'training'"),
        ("trian.lr=3", "got trian; did you mean training?"),
        (
            "arguments.x=3",
            "expected the configuration to have fields among task, model, models, training, report to set",
        ),
        ("train.lrr=3", "got training.lrr"),
        ("train.optimiser.lrr=3", "got training.optimiser.lrr; did you mean training.optimiser.lr?"),
        ("train.epochs=many", "expected training.epochs to be a whole number, got 'many'"),
        ("train.optimiser.name=adma", "expected training.optimiser.name to be one of adam,"),
        ("task.delya=3", "got task.delya; did you mean task.delay?"),
        ("task.delay=short", "expected task.delay to be a whole number, got 'short'"),
        ("task.delay=0", "expected task.delay to be"),
        ("task.name=copi", "expected task.name to be one of copy,"),
        ("model.hiden_size=3", "got model.hiden_size; did you mean model.hidden_size?"),
        ("model.hidden_size=big", "expected model.hidden_size to be a whole number, got 'big'"),
        ("models.plstm.q=3", "got models.plstm.q"),
        ("models.plstm.hidden_size=x", "expected models.plstm.hidden_size to be a whole number, got 'x'"),
        ("models.plstm.make=plstn", "expected models.plstm.make to be one of lstm,"),
        ("models.lsmt.p=3", "expected models.lsmt.make to be one of lstm,"),
        ("report.digits=x", "expected report.digits to be a whole number, got 'x'"),
    ],
)
def test_a_wrong_override_is_answered_by_one_sentence_that_names_the_field(assignment, answer):
    with pytest.raises(ValueError, match="expected") as caught:
        find("plstm/copy-200", "short", [assignment])
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_analysis_has_nothing_to_train():
    with pytest.raises(ValueError, match="among arguments to set, got training"):
        find("plstm/kt-and-p", "short", ["train.lr=1"])
