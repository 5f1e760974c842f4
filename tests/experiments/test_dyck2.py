"""Brackets of two kinds: the models and the training are those of the paper."""

import json

import pytest
import torch

from remanence import timescales
from remanence.experiments import Way, find, load_model, results, run
from remanence.experiments.models import build_model, count_parameters
from remanence.training.forward import seed_globally


def test_models_of_the_paper():
    models = find("mts/dyck2", "paper").models
    assert {name: count_parameters(model) for name, model in models.items()} == {
        "baseline": 268_802,
        "mts": 266_754,
    }
    for model in models.values():
        assert sum(weight.numel() for weight in build_model(model).parameters()) == 268_802


def test_timescales_are_set_and_every_bias_is_fixed():
    model = build_model(find("mts/dyck2", "paper").models["mts"])
    (found,) = timescales.of(model.layer)
    expected = timescales.InverseGamma(1.5).timescales(256)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=0)
    assert found[0].item() == pytest.approx(33, abs=0.1)
    outputs, _ = model(torch.randn(5, 3, 4))
    biases = [weight for name, weight in model.layer.named_parameters() if "bias" in name]
    assert all(slope.eq(0).all() for slope in torch.autograd.grad(outputs.sum(), biases, materialize_grads=True))


def test_training_as_published():
    experiment = find("mts/dyck2", "paper")
    assert experiment.seeds == list(range(1, 21))
    training = experiment.models["mts"].training
    assert (training.batch, training.epochs, training.report, training.stop.reached) == (
        32,
        2000,
        "last",
        {"loss": 1e-4},
    )
    optimiser = training.optimiser
    assert (optimiser.name, optimiser.lr, optimiser.betas, optimiser.eps, optimiser.clip_norm) == (
        "adam",
        1e-4,
        (0.9, 0.999),
        1e-8,
        1.0,
    )


def test_accuracy_by_longest_dependency_is_in_the_result_of_every_run(tmp_path):
    experiment = find("mts/dyck2", "smoke")
    (table,) = run(experiment, Way(tmp_path, torch.device("cpu")), ["mts"], [1])
    assert "test accuracy of the last weights" in table.title
    result = json.loads((tmp_path / "mts" / "dyck2" / "smoke" / "mts" / "seed-1" / "result.json").read_text())
    task = experiment.models["mts"].task
    assert {"accuracy", "step_accuracy", *map(task.bin_name, range(9))} <= result["test"].keys()


def test_biases_are_where_they_were_after_training(tmp_path):
    experiment = find("mts/dyck2", "smoke")
    run(experiment, Way(tmp_path, torch.device("cpu")), ["mts"], [1])
    trained = load_model(results.run_folder(tmp_path, experiment, "mts", 1))
    seed_globally(1, torch.device("cpu"))
    fresh = build_model(experiment.models["mts"])
    for name, value in fresh.state_dict().items():
        assert torch.equal(trained.state_dict()[name], value) == ("bias" in name and "layer" in name), name
