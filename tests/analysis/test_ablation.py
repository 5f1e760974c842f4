"""Ablation of units."""

import json
from dataclasses import replace

import numpy
import pytest
import torch

import remanence as rm
from remanence import analysis
from remanence.analysis.ablation import without
from remanence.models import SequenceModel
from remanence.tasks import Frequency, Score, side_by_side

MAKERS = {
    "lstm": lambda: rm.LSTM(6, 9, dtype=torch.float64),
    "refine": lambda: rm.LSTM(6, 9, gate="refine", dtype=torch.float64),
    "plstm": lambda: rm.PowerLawLSTM(6, 9, dtype=torch.float64),
    "gru": lambda: rm.GRU(6, 9, dtype=torch.float64),
    "janet": lambda: rm.JANET(6, 9, dtype=torch.float64),
    "nru": lambda: rm.NRU(6, 9, dtype=torch.float64),
    "phased": lambda: rm.PhasedLSTM(6, 9, dtype=torch.float64),
    "two layers": lambda: rm.LSTM(6, 9, 2, dtype=torch.float64),
}


def step_by_step(model, inputs, kept):
    """Outputs of a model whose hidden values are set to zero after every step, by a plain loop."""
    layer = model.layer
    if layer.num_layers == 2:
        lower = rm.LSTM(6, 9, dtype=inputs.dtype)
        lower.load_state_dict({name: value for name, value in layer.state_dict().items() if name.endswith("_l0")})
        inputs = lower(inputs)[0]
    cell, place = layer._cell_now(), layer.places[-1]
    weights = layer._weights(place, inputs.dtype)
    state = tuple(inputs.new_zeros(inputs.shape[1], width) for width in cell.widths(9, 9).values())
    outputs = []
    for projected in cell.project(inputs, weights):
        hidden, *rest = cell.step(projected, state, weights, inputs.new_ones(1, 1) if cell.takes_dt else None).state
        hidden = hidden * kept
        outputs.append(hidden)
        state = (hidden, *rest)
    return model.head(torch.stack(outputs))


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "nru"])
def test_ablated_models_equal_a_loop_that_zeroes_hidden_values(name):
    model = SequenceModel(MAKERS[name](), 6).eval()
    inputs = torch.randn(12, 4, 6, dtype=torch.float64)
    for units in ((), (3,), (0, 2, 7, 8), range(9)):
        kept = torch.ones(9, dtype=torch.bool)
        kept[list(units)] = False
        torch.testing.assert_close(without(model, kept)(inputs)[0], step_by_step(model, inputs, kept))
    assert not torch.equal(without(model, kept)(inputs)[0], model(inputs)[0])


@torch.no_grad()
def test_ablated_units_do_not_write_the_memory_of_an_nru():
    """It is written from the hidden values of the same step, before a loop over steps could zero them."""
    model = SequenceModel(MAKERS["nru"](), 6).eval()
    kept = torch.ones(9, dtype=torch.bool)
    kept[[1, 4]] = False
    other = without(model, kept)
    inputs = torch.randn(8, 3, 6, dtype=torch.float64)
    expected = other(inputs)[0]
    other.layer.weight_ih_l0[[1, 4]] += 1  # now the ablated units do something else
    torch.testing.assert_close(other(inputs)[0], expected)


def test_each_ablated_unit_of_a_hand_built_model_costs_its_symbol(storing, copy_at):
    model, task = storing(units=8), copy_at(6)
    order = [5, 2, 0, 7, 1, 3]
    found = analysis.unit_ablation(model, task, orders=[order], step=1, sequences=120)
    (batch,) = analysis.sequences_of(task, 120)
    symbols = batch.targets[-1]
    expected = [
        float((~torch.isin(symbols, torch.tensor(order[:count]))).double().mean()) for count in range(len(order) + 1)
    ]
    assert found.counts.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert expected[0] == expected[1] == 1
    assert expected[-1] == 0
    assert found.goal == "accuracy"
    assert found.mean == pytest.approx(expected)


def test_units_passed_as_first_are_ablated_first_and_cost_the_most(storing, copy_at):
    model = storing(units=24)
    arguments = {"orders": 6, "ablated": 12, "step": 4, "sequences": 60, "seed": 1}
    random = analysis.unit_ablation(model, copy_at(4), **arguments)
    first = analysis.unit_ablation(model, copy_at(4), first=[3, 0, 2, 1], **arguments)
    assert (first.orders[:, :4] == [3, 0, 2, 1]).all()
    assert first.mean.tolist() == [1, 0, 0, 0]
    assert first.std.tolist() == [0, 0, 0, 0]
    assert random.mean[1] > 0.3
    assert random.std[1] > 0
    assert random.mean == pytest.approx(random.scores["accuracy"].mean(0))
    plain = random.plain()
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize("where", ["everywhere", "head"])
@pytest.mark.parametrize("name", MAKERS)
def test_variants_in_batches_equal_variants_one_by_one(name, where, copy_at):
    model, task = SequenceModel(MAKERS[name](), 6), copy_at(4, length=2)
    arguments = {"orders": 3, "ablated": 7, "step": 3, "sequences": 20, "where": where}
    one = analysis.unit_ablation(model, task, variants=1, **arguments)
    many = analysis.unit_ablation(model, task, variants=4, at_once=7, **arguments)
    assert one.counts.tolist() == [0, 3, 6, 7]
    for score, values in one.scores.items():
        assert values.shape == (3, 4)
        numpy.testing.assert_allclose(many.scores[score], values, rtol=1e-9)
    assert model.training


@torch.no_grad()
@pytest.mark.parametrize("readout", ["every", "last"])
def test_ablation_at_the_head_leaves_the_recurrence_unchanged(readout, copy_at):
    model = SequenceModel(rm.PowerLawLSTM(6, 9), 6, readout=readout)
    inner = copy_at(4, length=2)

    class Watching:
        """The sequences of the copy task, with the mean output as their score."""

        name, goal = "watching", "mean"

        def source(self, split, seed, device):
            return inner.source(split, seed, device)

        def scores(self, outputs, batch):
            flat = outputs.flatten(1).double()
            return {"mean": Score(flat.sum(1), torch.full((len(flat),), float(flat.shape[1])))}

    found = analysis.unit_ablation(model, Watching(), orders=[[4, 1, 8]], step=2, sequences=15, where="head")
    (batch,) = analysis.sequences_of(inner, 15)
    for count, value in zip(found.counts, found.mean, strict=True):
        hidden = model.layer(batch.inputs)[0].clone()
        hidden[..., [4, 1, 8][:count]] = 0
        outputs = model.head(hidden if readout == "every" else hidden[-1])
        assert value == pytest.approx(float(outputs.double().mean()), rel=1e-5)


@torch.no_grad()
def test_read_out_after_the_last_step_of_every_sequence(copy_at):
    """With lengths, what comes after them has no influence."""
    model, task = SequenceModel(rm.LSTM(6, 5), 6, readout="last"), copy_at(4)
    (batch,) = analysis.sequences_of(task, 6)
    lengths = torch.tensor([6, 3, 4, 5, 6, 2])
    batch = replace(batch, lengths=lengths)
    kept = torch.tensor([[True, False, True, True, False]])
    said = {}

    class Watching:
        def scores(self, outputs, batch):
            said["outputs"] = outputs
            return {}

    for where in ("everywhere", "head"):
        analysis.scores_without(model, Watching(), [batch], kept, where=where)
        hidden = (without(model, kept[0]) if where == "everywhere" else model).layer(batch.inputs)[0]
        expected = model.head(hidden[lengths - 1, torch.arange(6)] * kept[0])
        torch.testing.assert_close(said["outputs"][0], expected)


def test_paper_numbers_are_the_defaults():
    orders = analysis.random_orders(128, 20, 100)
    assert orders.shape == (20, 100)
    assert all(len(set(row)) == 100 for row in orders.tolist())
    assert len({tuple(row) for row in orders.tolist()}) == 20
    again = analysis.random_orders(128, 20, 100)
    assert (orders == again).all()
    assert (analysis.random_orders(128, 20, 100, seed=1) != orders).any()


def test_a_hundred_of_128_units_or_the_same_share_are_ablated(copy_at):
    model = SequenceModel(rm.LSTM(6, 32), 6)
    found = analysis.unit_ablation(model, copy_at(2), orders=1, sequences=2)
    assert found.counts.tolist() == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"where": "nowhere"}, "expected where to be 'everywhere' or 'head', got 'nowhere'"),
        ({"ablated": 9}, "expected to ablate between 1 and 8 units, got 9"),
        ({"first": [0, 0]}, "expected every order to have distinct units from 0 to 7"),
        ({"first": [8]}, "expected every order to have distinct units from 0 to 7"),
        ({"orders": []}, "expected at least one order, and all orders of the same length"),
        ({"orders": [[1], [2, 3]]}, "expected at least one order, and all orders of the same length"),
        ({"orders": [[1]], "first": [2]}, "expected either orders of units, or their number"),
        ({"step": 0}, "expected step to be at least 1, got 0"),
        ({"variants": 0}, "expected variants to be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_refused(storing, copy_at, arguments, message):
    with pytest.raises(ValueError, match=message):
        analysis.unit_ablation(storing(), copy_at(3), sequences=2, **arguments)


def test_bidirectional_and_projected_models_are_refused(copy_at):
    both = SequenceModel(rm.LSTM(6, 4, bidirectional=True), 6)
    with pytest.raises(ValueError, match="expected a unidirectional model without projection"):
        analysis.unit_ablation(both, copy_at(3))


@torch.no_grad()
@pytest.mark.parametrize("where", ["everywhere", "head"])
@pytest.mark.parametrize("layer", [rm.PowerLawLSTM, rm.LSTM])
def test_times_between_steps_reach_the_models_that_use_them(layer, where):
    task = Frequency(sampling="async", validation_size=30)
    model = SequenceModel(layer(task.input_size, 6), task.output_size, readout=task.readout)
    found = analysis.unit_ablation(model, task, orders=2, step=3, sequences=30, where=where, variants=2)
    (batch,) = analysis.sequences_of(task, 30)
    outputs, _ = model(batch.inputs, batch.lengths, batch.dt if layer is rm.PowerLawLSTM else None)
    total, count = task.scores(outputs.unsqueeze(0), side_by_side([batch]))["loss"]
    numpy.testing.assert_allclose(found.scores["loss"][:, 0], float(total / count), rtol=1e-5)
