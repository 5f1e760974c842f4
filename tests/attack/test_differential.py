"""The differential fuzzer: a few of its cases, and that it finds what is wrong."""

import pytest
import torch
from differential import KINKED, ULPS, Case, attack, attacked, difference, moved, numbers_of, reproducer, run

from remanence.engines import KNOWN


def test_random_layers_agree_with_the_loop():
    said = []
    counts = attack(range(25), say=said.append)
    assert said == []
    assert counts == {"agreed": 25}


@pytest.mark.long
@pytest.mark.slow
def test_two_thousand_random_layers_agree_with_the_loop():
    said = []
    attack(range(10_000, 12_000), say=said.append)
    assert said == []


def test_a_case_is_its_seed():
    assert Case.drawn(7, "cpu") == Case.drawn(7, "cpu")
    assert len({Case.drawn(seed, "cpu") for seed in range(200)}) == 200
    assert reproducer(7, "cpu").endswith("--seed 7 --cases 1")


def test_a_wrong_engine_is_found_and_told_in_a_line(monkeypatch):
    cases = (Case.drawn(n, "cpu") for n in range(1000))
    exact = (case for case in cases if case.engine == "cpu" and case.cell not in KINKED)
    seed = next(case.seed for case in exact if attacked(case, "cpu") is None)
    right = KNOWN["cpu"].run

    def wrong(task):
        result = right(task)
        return result._replace(output=result.output * 1.01)

    monkeypatch.setattr(KNOWN["cpu"], "run", wrong)
    said = []
    assert attack(range(seed, seed + 1), say=said.append)["failed"] == 1
    assert "is off by " in said[0]
    assert said[0].endswith(reproducer(seed, "cpu"))


def test_numbers_that_are_not_finite_or_of_another_shape_are_differences():
    truth = {"output": torch.ones(3)}
    assert difference({"output": torch.ones(3)}, truth, 1e-6) is None
    assert "not finite" in difference({"output": torch.tensor([1, 1, torch.nan])}, truth, 1e-6)
    assert "shape" in difference({"output": torch.ones(2)}, truth, 1e-6)
    assert "got" in difference({}, truth, 1e-6)


def condition(seed, ulp):
    """How far a case of the GPU moves if its weights are rounded."""
    case = Case.drawn(seed, "cuda")
    torch.manual_seed(seed)
    layer = case.layer("loop")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(case.scale)
    numbers = numbers_of(case, layer)
    truth = run(case, layer, {name: value.double() for name, value in numbers.items()}, "plain")
    return moved(case, layer, numbers, truth, ulp)


def test_rounding_moves_an_ill_conditioned_case_far_and_others_little():
    """Three layers of NRUs in both directions over 58 steps, a case that is beyond the tolerance in float32."""
    assert condition(605, ULPS["float32"]) > 5e-3
    assert condition(1048, ULPS["float32"]) < 1e-4
    assert condition(1048, ULPS["tf32"]) > 5e-3
