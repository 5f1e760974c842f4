"""Padding has no influence on models, in either direction, nor on losses, scores and analyses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import remanence as rm
from remanence import analysis
from remanence.analysis.ages import reference_times, signal_steps
from remanence.analysis.dependency import longest_dependencies
from remanence.analysis.sequences import sequences_of
from remanence.models import SequenceModel, forward_together
from remanence.tasks import CopyVariable, Dyck2, Frequency
from remanence.tasks.base import Batch, side_by_side

STEPS, ROWS, INPUTS, UNITS = 7, 4, 3, 5
LENGTHS = torch.tensor([3, 7, 1, 5])
LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    "LSTM fast": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", **more),
    "LSTM projected": lambda *sizes, **more: rm.LSTM(*sizes, proj_size=2, **more),
    "PowerLawLSTM": rm.PowerLawLSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "ExpRNN": rm.ExpRNN,
    "SRU": rm.SRU,
}
RUBBISH = [0.0, 1.0, -1e30, math.nan, math.inf]
directions = pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
layers = pytest.mark.parametrize("name", LAYERS)


def padding(steps: int, lengths: Tensor) -> Tensor:
    return torch.arange(steps).unsqueeze(1) >= lengths


def spoilt(values: Tensor, rubbish: float, lengths: Tensor = LENGTHS) -> Tensor:
    beyond = padding(len(values), lengths)
    return values.masked_fill(beyond.unsqueeze(-1) if values.dim() == 3 else beyond, rubbish)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(STEPS, ROWS, INPUTS, dtype=dtype, generator=torch.Generator().manual_seed(1))


@layers
@directions
def test_lengths_give_what_a_packed_sequence_gives(name: str, bidirectional: bool) -> None:
    torch.manual_seed(2)
    layer = LAYERS[name](INPUTS, UNITS, 2, bidirectional=bidirectional, dtype=torch.float64)
    given = inputs()
    output, state = layer(given, lengths=LENGTHS)
    packed, expected = layer(pack_padded_sequence(given, LENGTHS, enforce_sorted=False))
    torch.testing.assert_close(output, pad_packed_sequence(packed)[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(state, expected, rtol=0, atol=1e-12)


@layers
@directions
@pytest.mark.parametrize("readout", ["every", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_model_does_not_read_padding(name: str, bidirectional: bool, readout: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    layer = LAYERS[name](INPUTS, UNITS, 2, bidirectional=bidirectional, dtype=dtype)
    model = SequenceModel(layer, 2, readout=readout)
    dt = inputs(dtype)[..., 0].abs() if layer.cell.takes_dt else None
    found = []
    for rubbish in RUBBISH:
        times = None if dt is None else spoilt(dt, rubbish)
        outputs, state = model(spoilt(inputs(dtype), rubbish), LENGTHS, times)
        counted = outputs if readout == "last" else outputs.masked_fill(padding(STEPS, LENGTHS).unsqueeze(-1), 0)
        gradients = torch.autograd.grad(counted.square().sum(), list(model.parameters()))
        found.append((outputs.detach(), state, gradients))
    assert found[0][0].isfinite().all()
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)


@directions
@pytest.mark.parametrize("name", ["LSTM", "NRU"])
def test_what_a_model_says_of_a_sequence_is_what_it_says_of_it_alone(name: str, bidirectional: bool) -> None:
    torch.manual_seed(2)
    model = SequenceModel(LAYERS[name](INPUTS, UNITS, bidirectional=bidirectional, dtype=torch.float64), 2)
    outputs, _ = model(spoilt(inputs(), math.nan), LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, _ = model(inputs()[:length, row : row + 1])
        torch.testing.assert_close(outputs[:length, row : row + 1], alone, rtol=0, atol=1e-12)


@directions
@pytest.mark.parametrize("readout", ["every", "last"])
def test_models_side_by_side_do_not_read_padding(bidirectional: bool, readout: Any) -> None:
    torch.manual_seed(2)
    models = [SequenceModel(rm.GRU(INPUTS, UNITS, bidirectional=bidirectional), 2, readout=readout) for _ in range(3)]
    lengths = torch.stack((LENGTHS, LENGTHS.flip(0), LENGTHS.roll(1)))
    clean = [spoilt(inputs(torch.float32), 0.0, own) for own in lengths]
    dirty = [spoilt(inputs(torch.float32), math.nan, own) for own in lengths]
    expected = forward_together(models, torch.stack(clean), lengths)
    torch.testing.assert_close(forward_together(models, torch.stack(dirty), lengths), expected, rtol=0, atol=0)


@directions
def test_symbols_in_the_padding_have_no_influence(bidirectional: bool) -> None:
    torch.manual_seed(2)
    model = SequenceModel(rm.LSTM(INPUTS, UNITS, bidirectional=bidirectional), 2, symbols=4)
    symbols = torch.randint(4, (STEPS, ROWS))
    beyond = padding(STEPS, LENGTHS)
    found = [model(symbols.masked_fill(beyond, symbol), LENGTHS) for symbol in range(4)]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)


def test_batch_first_layers_take_lengths() -> None:
    layer = rm.LSTM(INPUTS, UNITS, bidirectional=True, batch_first=True, dtype=torch.float64)
    output, _ = layer(spoilt(inputs(), math.nan).transpose(0, 1), lengths=LENGTHS)
    layer.batch_first = False
    torch.testing.assert_close(output.transpose(0, 1), layer(inputs(), lengths=LENGTHS)[0])


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        (torch.tensor([1.0, 2, 3, 4]), "expected lengths to be integers, got torch.float32"),
        (torch.tensor([1, 2, 3]), "expected lengths of shape (4,), one for each sequence, got (3,)"),
        (torch.tensor([0, 2, 3, 4]), "expected lengths from 1 to 7, got values from 0 to 4"),
        ([1, 2, 3, 8], "expected lengths from 1 to 7, got values from 1 to 8"),
    ],
)
def test_wrong_lengths_are_refused(lengths: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        rm.LSTM(INPUTS, UNITS, dtype=torch.float64)(inputs(), lengths=lengths)
    assert str(raised.value) == said


def test_lengths_of_what_has_none_are_refused() -> None:
    layer = rm.LSTM(INPUTS, UNITS, dtype=torch.float64)
    with pytest.raises(ValueError, match="got lengths with a single sequence"):
        layer(inputs()[:, 0], lengths=LENGTHS[:1])
    with pytest.raises(ValueError, match="expected no lengths with a PackedSequence"):
        layer(pack_padded_sequence(inputs(), LENGTHS, enforce_sorted=False), lengths=LENGTHS)


# Tasks and analyses.

TASKS = {
    "copy-variable": CopyVariable(shortest=3, longest=9, length=2, train_size=8, validation_size=8),
    "dyck": Dyck2(longest=20, train_size=8, validation_size=8, test_size=8),
    "frequency": Frequency(sampling="sync-1", train_size=8, validation_size=8, test_size=8),
}


def batch_of(task: Any) -> Batch:
    (batch,) = sequences_of(task, 8)
    assert batch.lengths is not None
    return batch


def dirtied(batch: Batch, rubbish: float = math.nan) -> Batch:
    assert batch.lengths is not None
    dt = None if batch.dt is None else spoilt(batch.dt, rubbish, batch.lengths)
    return replace(batch, inputs=spoilt(batch.inputs, rubbish, batch.lengths), dt=dt)


@directions
@pytest.mark.parametrize("name", TASKS)
def test_losses_and_scores_do_not_read_padding(name: str, bidirectional: bool) -> None:
    task: Any = TASKS[name]
    torch.manual_seed(2)
    model = SequenceModel(
        rm.PowerLawLSTM(task.input_size, UNITS, bidirectional=bidirectional), task.output_size, readout=task.readout
    )
    found = []
    for batch in (batch_of(task), dirtied(batch_of(task)), dirtied(batch_of(task), 3.0)):
        together = side_by_side([batch])
        outputs, _ = forward_together([model], together.inputs, together.lengths, together.dt)
        loss = task.loss(outputs, together)
        gradients = torch.autograd.grad(loss.sum(), list(model.parameters()))
        found.append((loss.detach(), gradients, [tuple(score) for score in task.scores(outputs, together).values()]))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0, equal_nan=True)


def test_analyses_do_not_read_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    task: Any = TASKS["copy-variable"]
    torch.manual_seed(2)
    model = SequenceModel(rm.PowerLawLSTM(task.input_size, UNITS), task.output_size)
    clean = batch_of(task)
    measures: dict[str, Callable[[Batch], Any]] = {
        "signals": signal_steps,
        "reference times": lambda batch: reference_times(model, batch),
        "distribution": lambda batch: analysis.timescale_distribution(model, batch).layers[0].from_gates,
        "forget maps": lambda batch: analysis.forget_maps(model, batch).layers[0].values,
        "free decay": lambda batch: analysis.free_decay(model, batch, steps=5).layers[0].remaining,
    }
    for name, measure in measures.items():
        expected = torch.as_tensor(measure(clean))
        for rubbish in (math.nan, 1.0):
            found = torch.as_tensor(measure(dirtied(clean, rubbish)))
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, msg=name)

    kept = torch.ones(2, UNITS)
    kept[1, :2] = 0
    for where in ("head", "everywhere"):
        expected = analysis.scores_without(model, task, [clean], kept, where=where)
        assert analysis.scores_without(model, task, [dirtied(clean)], kept, where=where) == expected
    expected = analysis.scores_of_sequences(model, task, sequences=8)
    monkeypatch.setattr("remanence.analysis.by_length.sequences_of", lambda *_, **__: [dirtied(clean)])
    assert repr(analysis.scores_of_sequences(model, task, sequences=8)) == repr(expected)


def test_brackets_in_the_padding_are_no_dependency() -> None:
    clean = batch_of(TASKS["dyck"])
    torch.testing.assert_close(
        torch.from_numpy(longest_dependencies(dirtied(clean, 1.0))), torch.from_numpy(longest_dependencies(clean))
    )
