"""Replicas side by side give the same results as each alone."""

import json

import pytest
import torch
from small_runs import run, weights

from remanence.training import Optimiser, Stop, Training, train
from remanence.training.directory import Directory
from remanence.training.population import Population, Replica

CPU = torch.device("cpu")

CASES = {
    "adam": {},
    "gru": {"model": "gru"},
    "dropout": {"dropout": 0.3},
    "stateful": {"stateful": True},
    "float16": {"precision": "float16"},
    "endless": {"task": "endless"},
}


@pytest.mark.parametrize("case", CASES)
def test_three_replicas_together_train_as_if_alone(tmp_path, case):
    from dataclasses import replace

    from small_runs import TASK

    keywords = dict(CASES[case])
    if keywords.pop("task", None):
        keywords |= {"task": replace(TASK, train_size=None), "epoch_updates": 8}
    together = [run(tmp_path / "together", seed, **keywords) for seed in (1, 2, 3)]
    alone = [run(tmp_path / "alone", seed, **keywords) for seed in (1, 2, 3)]
    results = train(together)
    for one, other, result in zip(together, alone, results, strict=True):
        (result_alone,) = train([other])
        assert result["best"] == pytest.approx(result_alone["best"], rel=1e-3)
        assert result["test"] == pytest.approx(result_alone["test"], rel=1e-3)
        expected = weights(other)
        for name, value in weights(one).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=1e-5)
    assert not torch.equal(weights(together[0])["head.weight"], weights(together[1])["head.weight"])


def test_a_replica_that_converges_leaves_and_the_others_continue_unchanged(tmp_path):
    free = [run(tmp_path / "free", seed) for seed in (1, 2, 3)]
    train(free)
    losses = [[line["validation"]["loss"] for line in lines(one)] for one in free]
    level = sorted(row[2] for row in losses)[0] + 1e-9  # at the third evaluation exactly one is below
    bound = [run(tmp_path / "bound", seed, stop=Stop(reached={"loss": level})) for seed in (1, 2, 3)]
    results = train(bound)
    ends = [result["updates"] for result in results]
    assert len(set(ends)) > 1
    for one, other, result in zip(free, bound, results, strict=True):
        assert result["status"] == ("converged" if result["last"]["loss"] <= level else "not converged")
        for line, expected in zip(lines(other), lines(one), strict=False):
            assert line["validation"] == pytest.approx(expected["validation"], rel=1e-4)
        assert len(lines(other)) == result["updates"] // 4


def test_a_factor_of_the_learning_rate_is_that_of_a_group_of_parameters(tmp_path):
    """Against torch's own groups of parameters, from the same gradients."""
    config = Training(optimiser=Optimiser("adamw", lr=0.1, weight_decay=0.3, lr_factors={"weight_hh": 0.1}))
    one = run(tmp_path, 1)
    population = Population([Replica(one, Directory(tmp_path), CPU, one.task.source("train", 1, CPU))], config, CPU, 1)
    (model,) = population.models
    mine = dict(model.named_parameters())
    theirs = {name: value.detach().clone().requires_grad_() for name, value in mine.items()}
    slow = [name for name in mine if "weight_hh" in name]
    assert slow
    groups = [
        {"params": [theirs[name] for name in mine if name not in slow]},
        {"params": [theirs[name] for name in slow], "lr": 0.01},
    ]
    optimiser = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.3)
    for _ in range(3):
        gradients = torch.randn_like(population.parameters)
        population.parameters.grad.copy_(gradients)
        for name, part in population.layout.split(gradients[0]).items():
            theirs[name].grad = part.clone()
        population.step_optimiser()
        optimiser.step()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-5, atol=1e-6)


def test_learning_rate_factors_of_unknown_parameters_are_refused(tmp_path):
    wrong = run(tmp_path, 1, optimiser=Optimiser(lr_factors={"skew": 0.1}))
    with pytest.raises(ValueError, match=r"expected training\.optimiser\.lr_factors for parameters .*, got 'skew'"):
        train([wrong])
    with pytest.raises(ValueError, match=r"lr_factors\.skew to be at least 0, and finite, got -1"):
        Optimiser(lr_factors={"skew": -1})


def lines(one):
    return [json.loads(line) for line in (one.directory / "metrics.jsonl").read_text().splitlines()]
