"""What holds for every task: seeds, splits, replicas, dtypes."""

import pytest
import torch

import remanence as rm
from remanence.models import SequenceModel, forward_together
from remanence.tasks import (
    IMDB,
    Adding,
    Batch,
    Copy,
    CopyVariable,
    Dyck2,
    Frequency,
    Pixels,
    generator,
    side_by_side,
)
from remanence.tasks.sources import Synthetic

CPU = torch.device("cpu")
SIZES = {"train_size": 30, "validation_size": 20, "test_size": 10}
SYNTHETIC = {
    "copy": Copy(delay=5, length=3, **SIZES),
    "copy-cues": Copy(delay=5, length=3, form="cues", **SIZES),
    "copy-variable": CopyVariable(shortest=2, longest=9, length=3, **SIZES),
    "adding": Adding(length=12, **SIZES),
    "frequency-sync": Frequency(**SIZES),
    "frequency-async": Frequency(sampling="async", time_input=True, **SIZES),
}
every_synthetic = pytest.mark.parametrize("task", SYNTHETIC.values(), ids=SYNTHETIC)


def whole(source):
    return source.pick(torch.arange(source.size))


def made_up(task, seed):
    """A batch of 6 sequences of any task."""
    if isinstance(task, IMDB):
        rng = generator(seed, "made up")
        lengths = torch.randint(1, 9, (6,), generator=rng)
        targets = torch.randint(2, (6,), generator=rng)
        return Batch(torch.randn(8, 6, 100, generator=rng), targets, lengths=lengths, groups=lengths % 9)
    source = task.source("train", seed, CPU)
    return source.pick(torch.arange(6) + seed)


ALL = {**SYNTHETIC, "pixels": Pixels(data="digits"), "imdb": IMDB(), "dyck2": Dyck2(longest=20, **SIZES)}
every_task = pytest.mark.parametrize("task", ALL.values(), ids=ALL)


@every_synthetic
def test_same_seed_same_sequences(task):
    for split in ("train", "validation", "test"):
        first, again = (whole(task.source(split, 3, CPU)) for _ in range(2))
        for name in ("inputs", "targets", "dt", "lengths", "counts"):
            one, other = getattr(first, name), getattr(again, name)
            assert (one is None and other is None) or torch.equal(one, other)


@every_synthetic
def test_other_seed_or_split_other_sequences(task):
    sets = [whole(task.source(split, seed, CPU)) for seed in (1, 2) for split in ("train", "validation", "test")]
    for n, one in enumerate(sets):
        for other in sets[:n]:
            assert not torch.equal(one.inputs[:, :10], other.inputs[:, :10])


@every_synthetic
def test_picking_is_by_number(task):
    source = task.source("train", 1, CPU)
    numbers = torch.tensor([29, 0, 7, 7])
    some, everything = source.pick(numbers), whole(source)
    for name in ("inputs", "targets", "dt", "lengths", "counts"):
        one, other = getattr(some, name), getattr(everything, name)
        if one is not None:
            dimension = one.dim() - 1 if name != "inputs" else 1
            assert torch.equal(one, other.index_select(dimension, numbers))


@every_synthetic
def test_drawing_depends_on_the_generator_alone(task):
    endless = type(task)(**{**vars(task), "train_size": None}).source("train", 1, CPU)
    assert endless.size is None
    first, second = generator(1, "train"), generator(1, "train")
    assert torch.equal(endless.draw(4, first).inputs, endless.draw(4, second).inputs)
    state = first.get_state()
    after = endless.draw(4, first)
    second.set_state(state)
    assert torch.equal(after.inputs, endless.draw(4, second).inputs)


@every_task
def test_losses_and_scores_of_stacked_replicas_equal_those_of_single_replicas(task):
    batches = [made_up(task, seed) for seed in (1, 2, 3)]
    steps = (batches[0].inputs.shape[0],) if task.readout == "every" else ()
    outputs = torch.randn(3, *steps, 6, task.output_size)
    together = side_by_side(batches)
    loss, scores = task.loss(outputs, together), task.scores(outputs, together)
    assert loss.shape == (3,)
    assert {"loss", task.goal} <= scores.keys()
    for r, batch in enumerate(batches):
        alone = side_by_side([batch])
        torch.testing.assert_close(loss[r : r + 1], task.loss(outputs[r : r + 1], alone))
        for name, score in task.scores(outputs[r : r + 1], alone).items():
            assert score.total.dtype == score.count.dtype == torch.float64
            torch.testing.assert_close(scores[name].total[r : r + 1], score.total)
            assert torch.equal(scores[name].count[r : r + 1], score.count)
    mean = scores["loss"].total / scores["loss"].count
    torch.testing.assert_close(mean.float(), loss)


@every_task
def test_gradient_of_the_summed_losses_equals_that_of_single_replicas(task):
    batches = [made_up(task, seed) for seed in (1, 2)]
    steps = (batches[0].inputs.shape[0],) if task.readout == "every" else ()
    outputs = torch.randn(2, *steps, 6, task.output_size, requires_grad=True)
    (slopes,) = torch.autograd.grad(task.loss(outputs, side_by_side(batches)).sum(), outputs)
    for r, batch in enumerate(batches):
        alone = outputs[r : r + 1].detach().requires_grad_()
        (slope,) = torch.autograd.grad(task.loss(alone, side_by_side([batch])).sum(), alone)
        torch.testing.assert_close(slopes[r : r + 1], slope)


@every_task
def test_scores_of_two_batches_add_up(task):
    batch = made_up(task, 1)
    cut = {
        name: (value[:, :2], value[:, 2:]) if value.dim() > 1 else (value[:2], value[2:])
        for name, value in vars(batch).items()
        if value is not None
    }
    steps = (batch.inputs.shape[0],) if task.readout == "every" else ()
    outputs = torch.randn(1, *steps, 6, task.output_size)
    scores = task.scores(outputs, side_by_side([batch]))
    halves = [
        task.scores(part, side_by_side([Batch(**{name: pair[n] for name, pair in cut.items()})]))
        for n, part in enumerate((outputs[..., :2, :], outputs[..., 2:, :]))
    ]
    for name, score in scores.items():
        torch.testing.assert_close(halves[0][name].total + halves[1][name].total, score.total)
        assert torch.equal(halves[0][name].count + halves[1][name].count, score.count)


@every_task
def test_half_precision_outputs_are_scored_in_float32(task):
    batch = side_by_side([made_up(task, 1)])
    steps = (batch.inputs.shape[1],) if task.readout == "every" else ()
    outputs = torch.randn(1, *steps, 6, task.output_size).bfloat16()
    assert task.loss(outputs, batch).dtype == torch.float32
    torch.testing.assert_close(task.loss(outputs, batch), task.loss(outputs.float(), batch))


@every_task
def test_models_of_the_task_run_and_learn(task):
    batches = [made_up(task, seed) for seed in (1, 2)]
    batch = side_by_side(batches)
    torch.manual_seed(1)
    models = [
        SequenceModel(rm.PowerLawLSTM(task.input_size, 5), task.output_size, readout=task.readout) for _ in batches
    ]
    parameters = [parameter for model in models for parameter in model.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.02)
    losses = []
    for _ in range(6):
        optimiser.zero_grad()
        outputs, _ = forward_together(models, batch.inputs, batch.lengths, batch.dt)
        loss = task.loss(outputs, batch)
        loss.sum().backward()
        optimiser.step()
        losses.append(loss.detach())
    assert (losses[-1] < losses[0]).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@every_task
def test_nothing_synchronises_with_the_device(task, never_waits):
    device = torch.device("cuda")
    fixed = made_up(task, 1)
    there = Batch(**{name: value.to(device) for name, value in vars(fixed).items() if value is not None})
    sources = [] if isinstance(task, IMDB) else [task.source("train", 1, device)]
    if isinstance(task, Synthetic):
        sources.append(type(task)(**{**vars(task), "train_size": None}).source("train", 1, device))
    numbers, rng = torch.arange(6, device=device), generator(1, "train", device)

    def step():
        batches = [source.draw(6, rng) if source.size is None else source.pick(numbers) for source in sources]
        batch = side_by_side([there, *batches])
        steps = (batch.inputs.shape[1],) if task.readout == "every" else ()
        outputs = torch.zeros(len(batches) + 1, *steps, 6, task.output_size, device=device, requires_grad=True)
        task.loss(outputs, batch).sum().backward()
        task.scores(outputs.detach(), batch)

    step()  # The first time, libraries load what they need.
    with never_waits():
        step()


@every_task
def test_the_loss_of_a_batch_is_the_mean_of_its_parts(task):
    batch = side_by_side([made_up(task, seed) for seed in (1, 2)])
    steps = batch.inputs.shape[1:2] if task.readout == "every" else ()
    outputs = torch.randn(2, *steps, 6, task.output_size, dtype=torch.float64)
    total, weights = torch.zeros(2), torch.zeros(2)
    for rows in (slice(0, 1), slice(1, 4), slice(4, 6)):
        parts = {"inputs": batch.inputs[:, :, rows]}
        for name in ("targets", "dt", "lengths", "counts", "groups"):
            value = getattr(batch, name)
            per_step = name in ("dt", "counts") or (name == "targets" and task.readout == "every")
            parts[name] = None if value is None else value[:, :, rows] if per_step else value[:, rows]
        part = Batch(**parts)
        weight = task.counted(part)
        total, weights = total + weight * task.loss(outputs[..., rows, :], part), weights + weight
    assert torch.equal(weights, task.counted(batch))
    torch.testing.assert_close(total / weights, task.loss(outputs, batch))
