"""Several sequence models side by side."""

import pytest
import torch

import remanence as rm
from remanence.engines.side_by_side import all_inputs, rejoined
from remanence.models import SequenceModel, forward_together


def test_what_unbind_took_apart_is_put_together_without_a_copy():
    leaf = torch.randn(3, 4, 2, requires_grad=True)
    whole = leaf * 2
    found = rejoined(whole.unbind())
    assert found is whole
    found.sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(leaf, 2))


@pytest.mark.parametrize(
    "parts",
    [
        lambda whole: whole.flip(0).unbind(),
        lambda whole: whole.unbind()[::-1],
        lambda whole: [part.mT for part in whole.unbind()],
        lambda whole: [part.clone() for part in whole.unbind()],
        lambda whole: whole.unbind()[:2],
        lambda whole: [whole[0]] * 3,
        lambda whole: [whole[0], whole[1], whole.clone()[2]],
    ],
    ids=["other", "backwards", "transposed", "copied", "fewer", "thrice", "one-elsewhere"],
)
def test_anything_else_is_stacked(parts):
    given = list(parts(torch.randn(3, 4, 4, requires_grad=True) * 2))
    found = rejoined(given)
    assert torch.equal(found, torch.stack(given))
    assert found.requires_grad


def test_inputs_that_were_taken_apart_are_not_copied():
    whole = torch.randn(3, 4, 2, 5)
    assert all_inputs(list(whole)).data_ptr() == whole.data_ptr()


def test_a_derivative_by_inputs_is_that_by_each():
    whole = torch.randn(3, 4, 2, 5)
    leaves = [part.detach().requires_grad_() for part in whole]
    all_inputs(leaves).square().sum().backward()
    for leaf in leaves:
        torch.testing.assert_close(leaf.grad, 2 * leaf.detach())


def test_nothing_is_derived_by_inputs_that_were_detached():
    whole = torch.randn(3, 4, 2, 5, requires_grad=True)
    assert not all_inputs([part.detach() for part in whole]).requires_grad


@pytest.mark.parametrize("readout", ["every", "last"])
def test_models_side_by_side_give_what_each_gives_alone(readout):
    models = [SequenceModel(rm.PowerLawLSTM(3, 5), 4, readout=readout) for _ in range(2)]
    inputs = torch.randn(2, 6, 8, 3)
    lengths = torch.tensor([[6, 1, 2, 3, 4, 5, 6, 6], [1, 1, 6, 6, 5, 4, 3, 2]])
    outputs, states = forward_together(models, inputs, lengths)
    for model, given, length, output, state in zip(models, inputs, lengths, outputs, states, strict=True):
        alone, expected = model(given, length)
        torch.testing.assert_close(output, alone)
        for part, other in zip(state, expected, strict=True):
            torch.testing.assert_close(part, other)
