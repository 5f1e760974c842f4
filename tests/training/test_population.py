"""Replicas side by side give what each gives alone."""

import json

import pytest
import torch
from small_runs import run, weights

from remanence.training import Stop, train

CASES = {
    "adam": {},
    "gru": {"model": "gru"},
    "dropout": {"dropout": 0.3},
    "stateful": {"stateful": True},
    "float16": {"precision": "float16"},
    "endless": {"task": "endless"},
}


@pytest.mark.parametrize("case", CASES)
def test_three_together_are_each_alone(tmp_path, case):
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


def test_a_replica_that_converges_leaves_and_the_others_go_on_unchanged(tmp_path):
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


def lines(one):
    return [json.loads(line) for line in (one.directory / "metrics.jsonl").read_text().splitlines()]
