"""Frequency discrimination."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import remanence as rm
from remanence.models import SequenceModel
from remanence.tasks import Frequency, generator, side_by_side

CPU = torch.device("cpu")
SAMPLINGS = ["sync-1", "sync-0.1", "async"]


def parts(count=4000, seed=1, **arguments):
    names = ("period", "phase", "times", "lengths")
    return dict(zip(names, Frequency(**arguments).make(count, generator(seed, "train")), strict=True))


@pytest.mark.parametrize(("sampling", "steps"), [("sync-1", 125), ("sync-0.1", 1250), ("async", 125)])
@pytest.mark.parametrize("time_input", [False, True])
def test_shapes(sampling, steps, time_input):
    task = Frequency(sampling=sampling, time_input=time_input, validation_size=6)
    batch = task.source("validation", 1, CPU).pick(torch.arange(6))
    assert task.steps == steps
    assert batch.inputs.shape == (steps, 6, 1 + time_input)
    assert task.input_size == 1 + time_input
    assert batch.dt.shape == (steps, 6)
    assert batch.targets.tolist()[::2] == [1, 1, 1]
    assert (batch.inputs.dtype, batch.dt.dtype, batch.targets.dtype) == (torch.float32, torch.float32, torch.int64)
    assert (task.output_size, task.source("train", 1, CPU).size) == (2, None)


def test_small_example_by_hand():
    task = Frequency(time_input=True)
    times = torch.arange(125.0, dtype=torch.float64).unsqueeze(1).expand(-1, 2) + torch.tensor([2.0, 0.5])
    period, phase = torch.tensor([5.5, 20.0], dtype=torch.float64), torch.tensor([0.3, 1.0], dtype=torch.float64)
    batch = task.show((period, phase, times, torch.tensor([15, 20])))
    assert batch.targets.tolist() == [1, 0]
    assert batch.lengths.tolist() == [15, 20]
    assert batch.inputs[3, 0].tolist() == pytest.approx([math.sin(2 * math.pi * 5 / 5.5 - 0.3), 5.0], abs=1e-6)
    assert batch.inputs[3, 1].tolist() == pytest.approx([math.sin(2 * math.pi * 3.5 / 20 - 1), 3.5], abs=1e-6)
    assert torch.equal(batch.dt, torch.ones(125, 2))
    assert batch.inputs[15:, 0].eq(0).all()
    assert batch.inputs[14, 0].ne(0).all()


@given(
    sampling=st.sampled_from(SAMPLINGS),
    time_input=st.booleans(),
    periods=st.sampled_from(["uniform", "log-uniform"]),
    count=st.integers(1, 8),
    seed=st.integers(0, 3),
)
@settings(deadline=None, max_examples=25)
def test_inputs_dt_and_targets_as_a_plain_program_writes_them(sampling, time_input, periods, count, seed):
    task = Frequency(sampling=sampling, time_input=time_input, time_scale=100.0, periods=periods)
    made = task.make(count, generator(seed, "train"))
    batch = task.show(made)
    for b in range(count):
        period, phase, steps = made[0][b].item(), made[1][b].item(), made[3][b].item()
        times = made[2][:steps, b].tolist()
        assert batch.targets[b] == int(5 <= period <= 6)
        wave = [math.sin(2 * math.pi * t / period - phase) for t in times]
        np.testing.assert_allclose(batch.inputs[:steps, b, 0], wave, atol=1e-6)
        if time_input:
            np.testing.assert_allclose(batch.inputs[:steps, b, 1], np.array(times) / 100, rtol=1e-6)
        np.testing.assert_allclose(batch.dt[:steps, b], [1.0, *np.diff(times)], rtol=1e-6)
        assert (batch.dt[:steps, b] >= 0).all()
        assert batch.inputs[steps:, b].eq(0).all()
        assert batch.dt[steps:, b].eq(1).all()
        assert batch.lengths[b] == steps


@pytest.mark.parametrize(("sampling", "step"), [("sync-1", 1.0), ("sync-0.1", 0.1)])
def test_regular_samples_fill_the_duration(sampling, step):
    made = parts(sampling=sampling)
    lengths, times = made["lengths"], made["times"]
    assert lengths.min() >= round(15 / step)
    assert lengths.max() <= round(125 / step)
    # The number of steps that begin within D ~ U(15, 125), so D lies in the last one.
    assert stats.kstest((lengths * step - step / 2).numpy(), stats.uniform(15, 110).cdf).pvalue > 1e-3
    torch.testing.assert_close(times.diff(dim=0), torch.full_like(times[1:], step))
    last = times.gather(0, (lengths - 1).unsqueeze(0)).squeeze(0)
    assert times[0].min() >= 0
    assert last.max() < 125


def test_random_samples_are_sorted_and_uniform_in_their_interval():
    made = parts(count=3000, sampling="async")
    lengths, times = made["lengths"], made["times"]
    counts = torch.bincount(lengths, minlength=125)
    assert (lengths.min(), lengths.max()) == (15, 124)
    assert stats.chisquare(counts[15:].numpy()).pvalue > 1e-3
    assert (times.diff(dim=0) >= 0).all()
    assert times.min() >= 0
    assert times.max() <= 125
    # Where the interval is [start, start + D], the samples between the first and the last are uniform between them.
    inner = []
    for b in range(300):
        seen = times[: lengths[b], b].numpy()
        inner.extend((seen[1:-1] - seen[0]) / (seen[-1] - seen[0]))
    assert stats.kstest(inner, "uniform").pvalue > 1e-3


def test_durations_and_starts_of_random_samples():
    task = Frequency(sampling="async")
    _, _, times, _ = task.make(4000, generator(2, "train"))
    # Padding goes to the end of the interval: the last of 125 times is start + D, at most 124 of which are samples.
    rng = generator(2, "train")
    duration = torch.empty(4000, dtype=torch.float64).uniform_(15, 125, generator=rng)
    start = torch.rand(4000, dtype=torch.float64, generator=rng) * (125 - duration)
    torch.testing.assert_close(times[-1], start + duration)
    assert (times[0] >= start).all()


def test_half_of_the_sequences_are_special_with_uniform_periods():
    period = parts(count=5000)["period"]
    special = (period >= 5) & (period <= 6)
    assert special.sum() == 2500
    assert special[::2].all()
    assert stats.kstest(period[special].numpy(), stats.uniform(5, 1).cdf).pvalue > 1e-3


def test_other_periods_are_uniform_on_both_sides():
    period = parts(count=10_000)["period"][1::2].numpy()
    below, above = period[period < 5], period[period > 6]
    assert len(below) + len(above) == 5000
    assert stats.binomtest(len(below), 5000, 4 / 98).pvalue > 1e-3
    assert stats.kstest(below, stats.uniform(1, 4).cdf).pvalue > 1e-3
    assert stats.kstest(above, stats.uniform(6, 94).cdf).pvalue > 1e-3


def test_log_uniform_periods_become_special_where_they_fall():
    task = Frequency(periods="log-uniform")
    made = task.make(10_000, generator(1, "train"))
    period, targets = made[0], task.show(made).targets
    other = period[1::2]
    assert stats.kstest(other.log().numpy(), stats.uniform(0, math.log(100)).cdf).pvalue > 1e-3
    assert targets[::2].all()
    assert torch.equal(targets[1::2] == 1, (other >= 5) & (other <= 6))
    assert stats.binomtest(int((other < 5).sum()), 5000, math.log(5) / math.log(100)).pvalue > 1e-3
    share = task.references["accuracy"]
    assert share == pytest.approx(0.5 + 0.5 * math.log(1.2) / math.log(100))
    assert stats.binomtest(int(targets[1::2].sum()), 5000, 2 * share - 1).pvalue > 1e-3


def test_phases_lie_within_the_duration():
    made = parts(sampling="sync-0.1")
    share = made["phase"] / (made["lengths"] * 0.1)
    assert share.min() >= 0
    assert share.max() <= 1
    assert stats.kstest(share.numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("periods", ["uniform", "log-uniform"])
def test_reference_is_the_loss_of_a_model_that_knows_the_shares(periods):
    task = Frequency(periods=periods, validation_size=20_000)
    source = task.source("validation", 1, CPU)
    batch = side_by_side([source.pick(torch.arange(20_000))])
    share = task.references["accuracy"]
    outputs = torch.tensor([math.log(1 - share), math.log(share)]).expand(1, 20_000, 2)
    assert task.loss(outputs, batch).item() == pytest.approx(task.references["loss"], abs=1e-3)
    hits = task.scores(outputs + torch.tensor([0, 1e-3]), batch)["accuracy"]
    assert (hits.total / hits.count).item() == pytest.approx(share, abs=0.01)


def test_padding_after_the_last_sample_has_no_influence():
    task = Frequency(sampling="async", validation_size=7)
    batch = task.source("validation", 1, CPU).pick(torch.arange(7))
    model = SequenceModel(rm.PowerLawLSTM(1, 4, eps=1e-5), 2, readout="last")
    outputs, _ = model(batch.inputs, batch.lengths, batch.dt)
    padding = torch.arange(125).unsqueeze(1) >= batch.lengths
    inputs = torch.where(padding.unsqueeze(-1), 9.0, batch.inputs)
    other, _ = model(inputs, batch.lengths, torch.where(padding, 3.0, batch.dt))
    assert torch.equal(outputs, other)
