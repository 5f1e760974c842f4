"""The learning rate follows from the number of updates."""

import pytest
import torch

from remanence.training import Schedule
from remanence.training.schedule import lr_factor


def factors(schedule, total=20, epoch=4):
    return [lr_factor(schedule, update, total, epoch) for update in range(total)]


def by_torch(make, total=20):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimiser)
    found = []
    for _ in range(total):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (Schedule(), lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0)),
        (Schedule("linear", final=0.1), lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, 20)),
        (Schedule("cosine", final=0.2), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20, 0.2)),
        (Schedule("steps", every=2, factor=0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 8, 0.5)),
    ],
    ids=["constant", "linear", "cosine", "steps"],
)
def test_schedule_is_that_of_torch(schedule, theirs):
    assert factors(schedule) == pytest.approx(by_torch(theirs))


def test_warmup_rises_linearly_to_the_schedule():
    found = factors(Schedule("linear", warmup=5))
    assert found[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert found[5] == 1.0
    assert found[-1] == pytest.approx(1 / 15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "steps"}, "expected training.schedule.every to be at least 1 epoch"),
        ({"warmup": -1}, "expected training.schedule.warmup to be at least 0"),
        ({"name": "wave"}, "expected schedule.name to be constant"),
    ],
    ids=["no epochs", "warmup", "unknown"],
)
def test_a_wrong_schedule_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        lr_factor(Schedule(**arguments), 0, 10, 5)
