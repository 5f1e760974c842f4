"""Several models of sequences side by side."""

import pytest
import torch

import remanence as rm
from remanence.models import SequenceModel, forward_together, sequence


def test_what_unbind_took_apart_is_put_together_without_a_copy():
    leaf = torch.randn(3, 4, 2, requires_grad=True)
    whole = leaf * 2
    found = sequence._stacked(whole.unbind())
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
    found = sequence._stacked(given)
    assert torch.equal(found, torch.stack(given))
    assert found.requires_grad


@pytest.mark.parametrize("rows", [8, 12])
@pytest.mark.parametrize("parts", [1, 4, 8])
def test_a_read_out_in_parts_is_the_same(rows, parts, monkeypatch):
    monkeypatch.setattr(sequence, "PARTS", parts)
    monkeypatch.setattr(sequence, "_pays", lambda hidden: True)
    tensors = [
        torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((3, rows, 2, 5), (3, 4, 5), (3, 4))
    ]
    hidden, weight, bias = tensors
    found = sequence._read_out(hidden, weight, bias)
    expected = torch.einsum("rtbh,roh->rtbo", hidden, weight) + bias[:, None, None]
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    for slope, other in zip(
        torch.autograd.grad(found, tensors, direction), torch.autograd.grad(expected, tensors, direction), strict=True
    ):
        torch.testing.assert_close(slope, other)


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
