"""Stacking several tasks into one, with their number in front of every shape."""

from dataclasses import replace

import pytest
import torch

from remanence import engines
from remanence.cells import GRUCell, LSTMCell
from remanence.engines import side_by_side
from remanence.gates import Fast, PowerLaw

COUNT = 3


def make_tasks(cell, unequal=False, state=True):
    def one(seed):
        made = torch.Generator().manual_seed(seed)

        def new(*shape):
            return torch.randn(*shape, generator=made, dtype=torch.float64).requires_grad_()

        widths = cell.widths(5, 5)
        return engines.EngineTask(
            cell,
            {name: new(*shape) for name, shape in cell.shapes(4, 5, 5, bias=True).items()},
            new(6, 2, 4),
            tuple(new(2, width).abs() for width in widths.values()) if state else engines.Zeros(tuple(widths.values())),
            dt=torch.rand(6, 2, generator=made, dtype=torch.float64) + 0.5 if cell.takes_dt else None,
            lengths=torch.tensor([4, 6]) if unequal else None,
        )

    return [one(seed) for seed in range(COUNT)]


CELLS = pytest.mark.parametrize("cell", [LSTMCell(PowerLaw()), GRUCell(Fast())], ids=str)


@CELLS
@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_stacked_tasks_give_what_each_gives_alone(cell, unequal, state, engine):
    tasks = make_tasks(cell, unequal, state)
    whole = engines.run_stacked(engine, engines.stacked(tasks))
    each = [engines.run(engine, [task])[0] for task in tasks]
    for part, *others in zip((whole.output, *whole.state), *((one.output, *one.state) for one in each), strict=True):
        torch.testing.assert_close(part, torch.stack(others))
    leaves = [leaf for task in tasks for leaf in (task.inputs, *task.weights.values())]
    slopes = torch.autograd.grad(whole.output.square().sum(), leaves)
    expected = torch.autograd.grad(sum(one.output.square().sum() for one in each), leaves)
    for slope, other in zip(slopes, expected, strict=True):
        torch.testing.assert_close(slope, other)


@CELLS
def test_a_task_comes_out_of_a_stack_as_it_went_in(cell):
    tasks = make_tasks(cell, unequal=True)
    stacked = engines.stacked(tasks)
    assert stacked.width == tasks[0].width
    for task, found in zip(tasks, side_by_side.each(stacked), strict=True):
        assert torch.equal(found.inputs, task.inputs)
        assert torch.equal(found.lengths, task.lengths)
        assert all(map(torch.equal, found.state, task.state))
        assert found.weights.keys() == task.weights.keys()
        assert all(torch.equal(found.weights[name], weight) for name, weight in task.weights.items())


def test_missing_states_dt_and_lengths_get_defaults():
    tasks = make_tasks(LSTMCell(PowerLaw()), unequal=True)
    tasks[0] = replace(tasks[0], state=engines.Zeros((5, 5, 5)), dt=None, lengths=None)
    for given in (tasks, tasks[::-1]):
        whole = engines.run_stacked("loop", engines.stacked(given))
        each = [engines.loop.run(task) for task in given]
        torch.testing.assert_close(whole.output, torch.stack([one.output for one in each]))


def test_the_first_of_a_stack_is_its_first():
    tasks = make_tasks(GRUCell(Fast()), unequal=True)
    found = side_by_side.first(engines.stacked(tasks))
    assert torch.equal(found.inputs, tasks[0].inputs)
    assert torch.equal(found.weights["weight_hh"], tasks[0].weights["weight_hh"])
    assert torch.equal(found.lengths, tasks[0].lengths)


def test_results_are_unstacked_and_stacked():
    parts = [engines.EngineResult(torch.randn(4, 2, 3), (torch.randn(2, 3), torch.randn(2, 3))) for _ in range(COUNT)]
    whole = side_by_side.put_together(parts)
    assert whole.output.shape == (COUNT, 4, 2, 3)
    for part, found in zip(parts, side_by_side.taken_apart(whole), strict=True):
        assert torch.equal(part.output, found.output)
        assert all(map(torch.equal, part.state, found.state))


def test_a_first_state_of_zeros_has_the_tasks_in_front():
    stacked = engines.stacked(make_tasks(LSTMCell(PowerLaw()), state=False))
    assert [part.shape for part in stacked.first_state] == [(COUNT, 2, 5)] * 3
