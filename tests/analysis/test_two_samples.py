"""Two samples compared."""

import json
import math

import numpy
import pytest
import torch

from remanence.analysis import two_samples


def test_numbers_are_those_computed_by_hand():
    found = two_samples([1, 2, 3], torch.tensor([2.0, 4.0, 6.0]))
    assert found.counts == (3, 3)
    assert found.means == (2, 4)
    assert found.stds == (1, 2)
    assert found.degrees_of_freedom == 4
    assert found.cohens_d == pytest.approx(-2 / math.sqrt(2.5))
    assert found.t == pytest.approx(-2 / math.sqrt(2.5 * 2 / 3))
    scaled = found.t**2 / 4  # Student's distribution with four degrees of freedom in closed form
    below = 0.5 + 3 / 8 * (-found.t) / math.sqrt(1 + scaled) * (1 - scaled / (3 * (1 + scaled)))
    assert found.p_value == pytest.approx(2 * (1 - below))


def test_effect_and_t_of_equal_counts_belong_together_as_in_the_paper():
    """The paper gives t = 6.9 and d = 0.87 for 128 units each: d = t sqrt(2 / 128)."""
    generator = numpy.random.default_rng(0)
    found = two_samples(generator.normal(0.41, 0.25, 128), generator.normal(0.19, 0.25, 128))
    assert found.cohens_d == pytest.approx(found.t * math.sqrt(2 / 128))
    assert found.p_value < 0.001
    assert json.loads(json.dumps(found.plain()))["counts"] == [128, 128]


@pytest.mark.parametrize("samples", [([1], [1, 2]), ([1, 2], [1, math.nan]), ([1, 1], [2, 2])])
def test_degenerate_samples_are_refused(samples):
    with pytest.raises(ValueError, match=r"^expected "):
        two_samples(*samples)
