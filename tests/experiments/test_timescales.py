"""Timescales in the file of an experiment."""

import pytest

from remanence.experiments import find
from remanence.experiments.models import build_model, count_frozen, count_parameters
from remanence.experiments.resolve import make_timescales
from remanence.timescales import Chrono, Fixed, InverseGamma, Uniform


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (None, None),
        ({"name": "chrono", "t_max": 50}, Chrono(50.0)),
        ({"name": "uniform", "freeze": True}, Uniform(freeze=True)),
        ({"name": "inverse-gamma", "alpha": 1.5, "freeze": "all"}, InverseGamma(1.5, freeze="all")),
        ({"name": "inverse-gamma", "alpha": "5e-1"}, InverseGamma(0.5)),
        ({"name": "fixed", "values": [3, 4]}, Fixed([3.0, 4.0])),
        ([{"name": "fixed", "values": 3}, None], [Fixed(3.0), None]),
    ],
)
def test_plain_data_becomes_timescales(values, expected):
    assert make_timescales(values, "timescales") == expected


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ("3", "expected models.mts.timescales to be a mapping of names to values, got 3"),
        ("{alpha: 1}", "expected models.mts.timescales.name to be given, got nothing"),
        ("{name: gamma}", "expected models.mts.timescales.name to be one of chrono, uniform, inverse-gamma, fixed,"),
        ("{name: inverse-gamma}", "expected models.mts.timescales.alpha to be given, got nothing"),
        ("{name: inverse-gamma, alpha: x}", "expected models.mts.timescales.alpha to be a number, got 'x'"),
        ("{name: inverse-gamma, alpha: -1}", "expected models.mts.timescales.alpha to be a positive number, got -1.0"),
        (
            "{name: inverse-gamma, alpah: 1}",
            "got models.mts.timescales.alpah; did you mean",
        ),
        ("{name: uniform, freeze: most}", "expected models.mts.timescales.freeze to be true or false or one of all"),
        ("{name: chrono, t_max: 1}", "expected models.mts.timescales.t_max to be a number of at least 2, got 1.0"),
        ("{name: fixed}", "expected models.mts.timescales.values to be given, got nothing"),
        ("{name: fixed, values: -3}", "expected models.mts.timescales.values to be positive and finite, got -3.0"),
        ("[null, {name: chrono, t_max: x}]", "expected models.mts.timescales[1].t_max to be a number, got 'x'"),
    ],
)
def test_a_mistake_is_answered_by_one_sentence_that_names_the_field(values, answer):
    with pytest.raises(ValueError, match="expected") as caught:
        find("mts/dyck2", "paper", [f"models.mts.timescales={values}"])
    assert answer in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_value_can_be_set_for_one_model():
    model = find("mts/dyck2", "smoke", ["models.mts.timescales.alpha=0.6"]).models["mts"]
    assert model.layer["timescales"] == {"name": "inverse-gamma", "alpha": 0.6, "freeze": "all"}
    assert build_model(model).layer.timescales == (InverseGamma(0.6, freeze="all"),)


def test_what_is_frozen_is_not_counted_as_learned():
    layers = "[{name: fixed, values: 3, freeze: true}, null, {name: uniform, freeze: all}]"
    overrides = ["model.num_layers=3", f"models.mts.timescales={layers}"]
    models = find("mts/dyck2", "smoke", overrides).models
    units = models["mts"].hidden_size
    # Two bias vectors: the input and the forget block of layer 1, all four blocks of layer 3.
    assert count_frozen(build_model(models["mts"]).layer) == 2 * (2 + 4) * units
    assert count_parameters(models["baseline"]) - count_parameters(models["mts"]) == 2 * (2 + 4) * units
