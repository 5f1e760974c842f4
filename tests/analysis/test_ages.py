"""Ages, resets and exponents of a power-law LSTM."""

import json
from types import SimpleNamespace

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import remanence as rm
from remanence import analysis
from remanence.models import SequenceModel
from remanence.tasks import Batch, CopyVariable

LENGTH, DELAY = 3, 40
SIGNAL = LENGTH + DELAY + 1


@pytest.fixture
def found(holding, copy_at):
    return analysis.ages_and_resets(holding, copy_at(DELAY, LENGTH), sequences=30, at_once=8)


def test_units_set_to_hold_are_found_the_oldest_first(found, holding, copy_at):
    assert found.later.tolist() == [2, 0]  # never resets, holds until the signal
    assert analysis.later_reset_units(holding, copy_at(DELAY, LENGTH), sequences=30).tolist() == [2, 0]
    assert found.sequences == 30


def test_ages_before_the_signal_of_hand_built_units(found):
    leaking = 0.0
    for _ in range(LENGTH + DELAY):
        leaking = 0.9 * (leaking + 1)
    numpy.testing.assert_allclose(found.age_at_signal, [DELAY, 0, LENGTH + DELAY, leaking], atol=1e-6)
    numpy.testing.assert_allclose(found.share_held, found.age_at_signal / DELAY)


def test_reset_steps_of_hand_built_units(found):
    age, last = 0.0, LENGTH
    for step in range(1, SIGNAL):
        age = 0.9 * (age + 1)
        if step > LENGTH and age >= 0.5 * (step - LENGTH):
            last = step
    # At the signal; right after the symbols; past the end; once it is too young.
    assert found.reset_step.tolist() == [SIGNAL, LENGTH + 1, 2 * LENGTH + DELAY + 1, last + 1]
    assert LENGTH + 5 < last < SIGNAL - 5
    assert found.example_order.tolist() == [1, 3, 0, 2]
    assert found.example_signal == SIGNAL


def test_reference_times_are_constant_between_resets_and_jump_at_them(found):
    steps = numpy.arange(1, 2 * LENGTH + DELAY + 1)
    holds = numpy.minimum(steps, LENGTH)
    holds[SIGNAL - 1 :] = SIGNAL
    numpy.testing.assert_allclose(found.example_k[:, 0], holds, atol=1e-2)
    numpy.testing.assert_allclose(found.example_k[:, 1], steps, atol=1e-2)
    numpy.testing.assert_allclose(found.example_k[:, 2], 0, atol=1e-2)


def test_exponents_and_their_summary(found, holding):
    numpy.testing.assert_allclose(analysis.exponents(holding), [0.1, 0.9, 0.3, 0.6])
    numpy.testing.assert_allclose(found.p, [0.1, 0.9, 0.3, 0.6])
    assert found.p_mean == pytest.approx(0.475)
    assert found.p_later_mean == pytest.approx(0.2)
    assert found.p_below_half == 2
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain
    fixed = SequenceModel(rm.PowerLawLSTM(6, 3, p=1.5), 6)
    assert analysis.exponents(fixed).tolist() == [1.5] * 3


def test_there_may_be_no_later_reset_units(holding, copy_at):
    found = analysis.ages_and_resets(holding, copy_at(DELAY, LENGTH), sequences=5, share=2.0)
    assert found.later.tolist() == []
    assert found.p_later_mean is None


def test_delays_may_differ_from_sequence_to_sequence(holding):
    task = CopyVariable(shortest=10, longest=30, symbols=4, length=LENGTH, train_size=None, validation_size=40)
    found = analysis.ages_and_resets(holding, task, sequences=40)
    (batch,) = analysis.sequences_of(task, 40)
    signals = analysis.signal_steps(batch)
    assert signals.tolist() == (batch.lengths - LENGTH + 1).tolist()
    assert found.later.tolist()[:2] == [2, 0]
    assert found.share_held[0] == pytest.approx(1)
    assert found.reset_step[0] == pytest.approx(float(signals.double().mean()))
    assert found.reset_step[2] == pytest.approx(float(batch.lengths.double().mean()) + 1)


def test_reference_times_follow_the_given_time():
    model = SequenceModel(rm.PowerLawLSTM(2, 3), 2)
    with torch.no_grad():
        model.layer.weight_ih_l0.zero_()
        model.layer.weight_hh_l0.zero_()
        model.layer.bias_ih_l0[:3] = torch.tensor([40.0, -40.0, 0.0])
    dt = torch.rand(7, 2)
    times = analysis.reference_times(model, Batch(torch.randn(7, 2, 2), torch.zeros(7, 2), dt))
    assert times.shape == (7, 2, 3)
    numpy.testing.assert_allclose(times[:, :, 0], dt.cumsum(0), atol=1e-5)
    numpy.testing.assert_allclose(times[:, :, 1], 0, atol=1e-5)


def lets_go(age, signal, shown, share, end):
    """The definition, one unit in one sequence."""
    holds = {step: step > shown and age[step - 1] >= share * (step - shown) for step in range(1, end + 1)}
    if holds[signal - 1]:
        return next((step for step in range(signal, end + 1) if not holds[step]), end + 1)
    return max((step for step in range(1, signal) if holds[step]), default=shown) + 1


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**31))
def test_reset_steps_are_those_of_the_definition(sequences, units, delay, shown, seed):
    generator = torch.Generator().manual_seed(seed)
    steps = 2 * shown + delay
    delays = torch.randint(1, delay + 1, (sequences,), generator=generator)
    signal, lengths = shown + delays + 1, 2 * shown + delays
    age = torch.zeros(steps, sequences, units)
    for step in range(steps):
        reset = torch.rand(sequences, units, generator=generator) < 0.15
        before = age[step - 1] if step else torch.zeros(sequences, units)
        age[step] = torch.where(reset, 0, before + 1)
    found = analysis.reset_steps(age, signal, shown, 0.5, lengths)
    expected = [
        [lets_go(age[:, b, h].tolist(), int(signal[b]), shown, 0.5, int(lengths[b])) for h in range(units)]
        for b in range(sequences)
    ]
    assert found.tolist() == expected


def test_models_without_ages_are_refused(storing, copy_at, holding):
    with pytest.raises(ValueError, match="expected a model with gate power_law, whose units have ages, got sigmoid"):
        analysis.ages_and_resets(storing(), copy_at(5))
    stacked = SequenceModel(rm.PowerLawLSTM(6, 3, 2), 6)
    with pytest.raises(ValueError, match="expected a model with one unidirectional layer, got 2"):
        analysis.exponents(stacked)
    with pytest.raises(ValueError, match="expected a signal on input -1 of every sequence"):
        analysis.signal_steps(Batch(torch.zeros(4, 2, 3), torch.zeros(4, 2)))
    with pytest.raises(ValueError, match="expected signals after 9 steps with symbols and a delay"):
        analysis.ages_and_resets(holding, copy_at(5), sequences=5, shown=9)
    for analyse in (analysis.ages_and_resets, analysis.reset_maps):
        with pytest.raises(ValueError, match=r"expected shown, .* got none: task 'adding' has no length"):
            analyse(holding, SimpleNamespace(name="adding"))
