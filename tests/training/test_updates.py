"""An update equals the same steps written with plain torch."""

import pytest
import torch
from small_runs import CONFIG, TASK, run, weights
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from remanence.tasks.base import side_by_side
from remanence.training import Optimiser, Schedule, train
from remanence.training.batches import Order
from remanence.training.loop import Loop

CPU = torch.device("cpu")
OPTIMISERS = {
    "adam": (
        Optimiser("adam", lr=3e-2, betas=(0.8, 0.99), eps=1e-6, weight_decay=1e-2),
        lambda p: torch.optim.Adam(p, 3e-2, (0.8, 0.99), 1e-6, 1e-2),
    ),
    "adamw": (
        Optimiser("adamw", lr=3e-2, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 3e-2, weight_decay=0.1),
    ),
    "rmsprop": (
        Optimiser("rmsprop", lr=1e-2, smoothing=0.9, momentum=0.5),
        lambda p: torch.optim.RMSprop(p, 1e-2, 0.9, 1e-8, momentum=0.5),
    ),
    "sgd": (
        Optimiser("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3),
        lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=1e-3),
    ),
    "sgd without momentum": (Optimiser("sgd", lr=0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "clipped by norm": (Optimiser("sgd", lr=1.0, clip_norm=0.05), lambda p: torch.optim.SGD(p, 1.0)),
    "clipped by value": (Optimiser("sgd", lr=1.0, clip_value=0.01), lambda p: torch.optim.SGD(p, 1.0)),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_updates_are_those_of_torch(tmp_path, name):
    config, theirs = OPTIMISERS[name]
    schedule = Schedule("linear", warmup=3)
    ours = run(tmp_path, optimiser=config, schedule=schedule)
    train([ours])
    torch.manual_seed(ours.seed)
    model = ours.make_model()
    optimiser = theirs(model.parameters())
    rate = optimiser.param_groups[0]["lr"]
    order = Order(TASK.source("train", ours.seed, CPU), CONFIG.batch, ours.seed, CPU)
    for update in range(24):
        batch = order.next()
        outputs, _ = model(batch.inputs)
        functional.cross_entropy(outputs.flatten(0, 1), batch.targets.flatten()).backward()
        if config.clip_norm:
            clip_grad_norm_(model.parameters(), config.clip_norm)
        if config.clip_value:
            clip_grad_value_(model.parameters(), config.clip_value)
        optimiser.param_groups[0]["lr"] = rate * ((update + 1) / 3 if update < 3 else 1 - (update - 3) / 21)
        optimiser.step()
        optimiser.zero_grad()
    found = weights(ours)
    assert found.keys() == model.state_dict().keys()
    for parameter, value in model.state_dict().items():
        torch.testing.assert_close(found[parameter], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1e3, 1e25, 1e34])
def test_gradients_of_any_finite_size_are_clipped(tmp_path, size):
    # torch.nn.utils.clip_grad_norm_ turns those of 1e25 into zeros, because squares overflow.
    loop = Loop.alone([run(tmp_path, optimiser=Optimiser("sgd", lr=1.0, clip_norm=0.5))], CPU)
    population = loop.population
    before = population.parameters.data.clone()
    direction = torch.linspace(-1, 1, before.numel()).view_as(before)
    population.gradients.copy_(direction * size)
    population.step()
    norm = min(0.5, direction.norm().item() * size)
    moved = functional.normalize(direction, dim=1) * norm
    torch.testing.assert_close(before - population.parameters.data, moved, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("model", ["lstm", "gru", "plstm"])
def test_stateful_training_carries_the_state_and_cuts_the_gradient(tmp_path, model):
    ours = run(tmp_path, model=model, stateful=True, epochs=2, optimiser=Optimiser("sgd", lr=0.5))
    train([ours])
    torch.manual_seed(ours.seed)
    made = ours.make_model()
    optimiser = torch.optim.SGD(made.parameters(), 0.5)
    source = TASK.source("train", ours.seed, CPU)
    for _ in range(2):
        state = None
        for step in range(8):  # 64 sequences along a stream, in 8 lanes of 8
            batch = source.pick(torch.arange(8) * 8 + step)
            outputs, state = made(batch.inputs, state=state)
            state = tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
            TASK.loss(outputs.unsqueeze(0), side_by_side([batch])).sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    found = weights(ours)
    for parameter, value in made.state_dict().items():
        torch.testing.assert_close(found[parameter], value, rtol=1e-4, atol=1e-6)


def test_an_unknown_optimiser_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^expected optimiser.name to be adam, adamw, rmsprop or sgd, got 'lion'$"):
        train([run(tmp_path, optimiser=Optimiser("lion"))])
