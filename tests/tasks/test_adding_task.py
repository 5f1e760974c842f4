"""Adding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from remanence.tasks import Adding, generator, side_by_side

CPU = torch.device("cpu")


def test_small_example_by_hand():
    values = torch.tensor([[0.1, 0.5], [0.2, 0.6], [0.3, 0.7], [0.4, 0.8]])
    batch = Adding(length=4).show((values, torch.tensor([[0, 1], [3, 2]])))
    assert batch.inputs.shape == (4, 2, 2)
    assert batch.inputs[:, 0].tolist() == torch.tensor([[0.1, 1], [0.2, 0], [0.3, 0], [0.4, 1]]).tolist()
    assert batch.inputs[:, 1, 1].tolist() == [0, 1, 1, 0]
    assert batch.targets.tolist() == pytest.approx([0.5, 1.3])
    assert batch.inputs.is_contiguous()


@given(length=st.integers(2, 41), count=st.integers(1, 20), seed=st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_one_marker_in_each_half_and_the_sum_of_what_they_mark(length, count, seed):
    batch = Adding(length=length).source("train", seed, CPU).draw(count, generator(seed, "train"))
    for b in range(count):
        values, markers = batch.inputs[:, b].t().tolist()
        marked = [step for step, marker in enumerate(markers) if marker]
        assert len(marked) == 2
        assert marked[0] < length // 2 <= marked[1]
        assert set(markers) <= {0.0, 1.0}
        assert all(0 <= value < 1 for value in values)
        assert batch.targets[b].item() == pytest.approx(values[marked[0]] + values[marked[1]])


def test_values_and_markers_are_uniform():
    values, marked = Adding(length=20).make(5000, generator(1, "train"))
    assert stats.kstest(values[7].numpy(), "uniform").pvalue > 1e-3
    assert stats.chisquare(torch.bincount(marked[0]).numpy()).pvalue > 1e-3
    assert stats.chisquare(torch.bincount(marked[1] - 10).numpy()).pvalue > 1e-3
    assert (marked[0].max(), marked[1].min(), marked[1].max()) == (9, 10, 19)


def test_training_is_endless_and_validation_a_fixed_set():
    task = Adding(length=30, validation_size=40)
    train, validation = task.source("train", 1, CPU), task.source("validation", 1, CPU)
    assert (train.size, validation.size) == (None, 40)
    rng = generator(1, "train")
    assert not torch.equal(train.draw(3, rng).inputs, train.draw(3, rng).inputs)
    numbers = torch.tensor([5, 3])
    assert torch.equal(validation.pick(numbers).inputs, validation.pick(numbers).inputs)
    assert not task.higher_is_better
    assert task.goal == "loss"


def test_a_source_refuses_a_method_it_does_not_support():
    task = Adding(length=30, validation_size=40)
    with pytest.raises(TypeError, match=r"expected draw\(\) because this source makes new sequences, got pick\(\)"):
        task.source("train", 1, CPU).pick(torch.arange(2))
    with pytest.raises(TypeError, match=r"expected pick\(\) because .* fixed number of sequences, got draw\(\)"):
        task.source("validation", 1, CPU).draw(2, generator(1, "train"))


def test_loss_is_the_mean_squared_error():
    task = Adding(length=6)
    batch = side_by_side([task.source("train", 1, CPU).draw(5, generator(1, "train"))])
    outputs = torch.randn(1, 5, 1)
    naive = sum((outputs[0, b, 0].item() - batch.targets[0, b].item()) ** 2 for b in range(5))
    assert task.loss(outputs, batch).item() == pytest.approx(naive / 5)
    (score,) = task.scores(outputs, batch).values()
    assert score.total.item() == pytest.approx(naive)
    assert score.count.item() == 5


def test_reference_is_the_loss_of_always_predicting_one():
    task = Adding(length=10, validation_size=50_000)
    batch = side_by_side([task.source("validation", 1, CPU).pick(torch.arange(50_000))])
    loss = task.loss(torch.ones(1, 50_000, 1), batch).item()
    assert task.references["loss"] == pytest.approx(1 / 6)
    assert loss == pytest.approx(1 / 6, abs=4 * 0.197 / 50_000**0.5)  # four standard errors
