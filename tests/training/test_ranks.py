"""Collectives of ranks, seen from one of them, and their shares of a batch, which add up to the whole."""

import signal
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import run, words_run

import remanence as rm
from remanence.models import SequenceModel
from remanence.models.states import each
from remanence.nn.dropout import Dropout, part_of_batch
from remanence.tasks import Batch, CopyVariable, Dyck2, GivenData, Pixels, SequenceData, side_by_side
from remanence.training import Budget, Ranks
from remanence.training.interruption import Interruption
from remanence.training.loop import Loop
from remanence.training.ranks import Share, expect_enough, expect_own_dropout

ENVIRONMENT = {
    "WORLD_SIZE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "1",
}


class Others(Ranks):
    """The first of two ranks, of which the other has this number."""

    def __init__(self, number):
        super().__init__(0, 2)
        self.number = number

    def highest(self, number):
        return max(number, self.number)


def test_without_torchrun_there_is_one_process(monkeypatch):
    for size in (None, "1"):
        if size is None:
            monkeypatch.delenv("WORLD_SIZE", raising=False)
        else:
            monkeypatch.setenv("WORLD_SIZE", size)
        ranks = Ranks.join()
        assert (ranks.alone, ranks.first, ranks.size) == (True, True, 1)


def test_one_process_does_everything_by_itself():
    ranks, values = Ranks(), torch.randn(3)
    before = values.clone()
    assert ranks.told(lambda: 3) == ranks.alike(lambda: 3) == ranks.highest(3) == 3
    ranks.add_up(values)
    ranks.spread(values)
    ranks.leave()
    assert torch.equal(values, before)
    assert ranks.joined(values, [3], 0) is values
    with pytest.raises(KeyError):  # as it is, whatever it is
        ranks.told(lambda: {}["nothing"])


@pytest.mark.parametrize("missing", [name for name in ENVIRONMENT if name != "WORLD_SIZE"])
def test_half_of_what_torchrun_sets_is_refused(monkeypatch, missing):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=f"^expected WORLD_SIZE, .* as torchrun sets them, got no {missing}$"):
        Ranks.join()


def test_an_invalid_number_of_processes_is_refused(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match=r"got WORLD_SIZE=two$"):
        Ranks.join()


def test_under_torchrun_a_process_cannot_choose_its_gpu():
    with pytest.raises(ValueError, match=r"^expected cpu or cuda under torchrun, .* got cuda:1$"):
        Ranks(0, 2).device("cuda:1")
    assert Ranks(1, 2).device("cpu") == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_processes_without_gpus_use_the_cpu():
    assert Ranks(1, 2).device(None) == torch.device("cpu")
    with pytest.raises(ValueError, match="torch sees no CUDA device"):
        Ranks(1, 2).device("cuda")


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ValueError, match=r"^expected a GPU for each of 2 processes on a machine, got 1$"):
        Ranks(0, 2).device("cuda")


def test_a_signal_of_another_rank_stops_this_one_as_well():
    interruption = Interruption(Budget(), Others(1 + signal.SIGTERM))
    assert interruption.wanted("update")
    stopped = interruption.stop("here")
    assert stopped.reason.startswith("stopped by SIGTERM here")
    assert stopped.code == 143


def test_a_signal_of_another_rank_is_seen_after_all_runs_ended():
    assert Interruption(Budget(), Others(1 + signal.SIGINT)).signalled()
    assert not Interruption(Budget(), Others(0)).signalled()


def test_a_budget_that_is_spent_on_another_rank_stops_this_one_as_well():
    interruption = Interruption(Budget(1000), Others(1))
    assert interruption.wanted("update")
    assert interruption.stop("here").code == 0


def test_nobody_stops_without_a_reason():
    assert not Interruption(Budget(1000), Others(0)).wanted("update")


CPU = torch.device("cpu")
SIZES = {"train_size": 30, "validation_size": 20, "test_size": 10}
WAVES = torch.arange(90.0).sin().view(9, 5, 2)
MISSING = SequenceData(torch.where(WAVES > 0.4, float("nan"), WAVES), mask="nan", dt=WAVES[..., 0].abs())
RAGGED = SequenceData([wave[: 1 + number % 4] for number, wave in enumerate(WAVES)], WAVES[:, 0, 0])
TASKS = {
    "steps that count": CopyVariable(shortest=2, longest=9, length=3, **SIZES),
    "targets with outputs, groups": Dyck2(longest=20, **SIZES),
    "a read-out at the end": Pixels(data="digits"),
    "custom data with missing values": GivenData({"train": MISSING}),
    "custom data": GivenData({"train": SequenceData([torch.randn(1 + n % 4, 2) for n in range(9)], torch.rand(9))}),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def shares(size, batch):
    return [Share(Ranks(rank, size), batch) for rank in range(size)]


def two_batches(task, batch):
    source = task.source("train", 1, CPU)
    return side_by_side([source.pick(torch.arange(batch) + replica) for replica in range(2)])


@given(size=st.integers(1, 9), more=st.integers(0, 40))
def test_every_sequence_is_on_one_rank_and_shares_differ_by_at_most_one(size, more):
    parts = shares(size, size + more)
    found = [number for part in parts for number in range(part.start, part.start + part.size)]
    assert found == list(range(size + more))
    assert all(part.sizes == [other.size for other in parts] for part in parts)
    assert max(parts[0].sizes) - min(parts[0].sizes) <= 1 <= min(parts[0].sizes)


@pytest.mark.parametrize("size", [2, 3])
@every_task
def test_parts_are_the_whole_batch_once(task, size):
    batch = two_batches(task, 7)
    parts = [share.of(batch, task) for share in shares(size, 7)]
    for field in fields(Batch):
        whole, found = getattr(batch, field.name), [getattr(part, field.name) for part in parts]
        if whole is None:
            assert found == [None] * size
            continue
        once = ("lengths", "groups") if task.readout == "every" else ("lengths", "groups", "targets")
        assert torch.equal(torch.cat(found, 1 if field.name in once else 2), whole)


@pytest.mark.parametrize("size", [2, 3])
@every_task
def test_losses_and_gradients_of_parts_add_up_to_those_of_the_whole(task, size):
    batch = two_batches(task, 7)
    steps = batch.inputs.shape[1:2] if task.readout == "every" else ()
    outputs = torch.randn(2, *steps, 7, task.output_size, dtype=torch.float64, requires_grad=True)
    penalties = outputs.flatten(1).square().mean(1)
    (expected,) = torch.autograd.grad((task.loss(outputs, batch) + penalties).sum(), outputs)
    losses, slopes = torch.zeros(2, dtype=torch.float64), torch.zeros_like(outputs)
    for share in shares(size, 7):
        part = share.of(batch, task)
        own = outputs.narrow(-2, share.start, share.size)
        loss, minimised = share.weighted(task.loss(own, part), own.flatten(1).square().mean(1), task, batch)
        losses += loss.detach()
        slopes += torch.autograd.grad(minimised.sum(), outputs)[0]
    torch.testing.assert_close(losses, task.loss(outputs, batch).detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(slopes, expected, rtol=1e-12, atol=1e-16)


def test_a_share_in_which_nothing_counts_adds_nothing():
    task = TASKS["steps that count"]
    batch = two_batches(task, 4)
    batch.counts[:, :, :2] = False
    outputs = torch.randn(2, batch.inputs.shape[1], 4, task.output_size, requires_grad=True)
    first, second = shares(2, 4)
    own = outputs.narrow(-2, 0, 2)
    loss, minimised = first.weighted(task.loss(own, first.of(batch, task)), None, task, batch)
    assert torch.equal(loss, torch.zeros(2))
    assert not torch.autograd.grad(minimised.sum(), outputs)[0].any()
    loss, _ = second.weighted(task.loss(outputs.narrow(-2, 2, 2), second.of(batch, task)), None, task, batch)
    torch.testing.assert_close(loss, task.loss(outputs, batch))


DROPPING = {
    "dropout": (lambda: Dropout(0.4), 1),
    "locked dropout": (lambda: rm.LockedDropout(0.4), 1),
    "locked dropout, batch first": (lambda: rm.LockedDropout(0.4, batch_first=True), 0),
    "between layers": (lambda: rm.LSTM(5, 8, 2, dropout=0.4, dtype=torch.float64), 1),
    "of weights": (lambda: rm.LSTM(5, 8, weight_drop=0.4, dtype=torch.float64), 1),
    "before a read-out": (lambda: SequenceModel(rm.LSTM(5, 8, dtype=torch.float64), 3, dropout=0.4), 1),
    "a read-out at the end": (
        lambda: SequenceModel(rm.LSTM(5, 8, dtype=torch.float64), 3, dropout=0.4, readout="last"),
        1,
    ),
}


@pytest.mark.parametrize("kind", DROPPING)
def test_noise_of_parts_is_that_of_the_whole_batch(kind):
    make, dimension = DROPPING[kind]
    module = make()
    values = torch.randn(7, 7, 5, dtype=torch.float64)

    def given(values):
        torch.manual_seed(3)
        found = module(values)
        return found if isinstance(found, torch.Tensor) else found[0]

    whole = given(values)
    state = torch.get_rng_state()
    parts = []
    for share in shares(3, 7):
        with part_of_batch(share.start, 7):
            parts.append(given(values.narrow(dimension, share.start, share.size)))
        assert torch.equal(torch.get_rng_state(), state)
    sequences = 0 if kind == "a read-out at the end" else dimension
    torch.testing.assert_close(torch.cat(parts, sequences), whole, rtol=1e-13, atol=1e-15)
    assert torch.equal(given(values), whole)  # and afterwards all is as before


@pytest.mark.parametrize("make", [lambda folder: run(folder, dropout=0.3, batch=7), words_run], ids=["copy", "words"])
def test_gradients_of_ranks_add_up_to_those_of_one_process(tmp_path, monkeypatch, make):
    sums = []
    monkeypatch.setattr(Ranks, "add_up", lambda ranks, *tensors: sums.append([one.detach().clone() for one in tensors]))
    loop = Loop.alone([make(tmp_path)], CPU)
    batch, replica = loop.batches.next().shown(), loop.population.replicas[0]
    noise, weights = replica.noise.states, loop.population.parameters.data.clone()
    found = {1: [], 3: []}
    for size in found:
        for rank in range(size):
            replica.noise.states, replica.state = noise, None
            loop.population.parameters.data.copy_(weights)
            loop.population.share = Share(Ranks(rank, size), loop.config.batch)
            sums.clear()
            loop.learn(batch)
            found[size].append([tensor for call in sums for tensor in call])
    for whole, *parts in zip(found[1][0], *found[3], strict=True):
        torch.testing.assert_close(sum(parts), whole, rtol=1e-4, atol=1e-6)
        assert whole.any()


def test_states_are_split_by_lanes():
    state = tuple((torch.randn(1, 7, 4), torch.randn(1, 7, 4)) for _ in range(2))
    parts = [share.of_state(state) for share in shares(3, 7)]
    assert [part[0][0].shape[1] for part in parts] == [3, 2, 2]
    assert torch.equal(torch.cat([part[1][0] for part in parts], 1), state[1][0])
    assert all(each(lambda one: one.is_contiguous(), part) == ((True, True), (True, True)) for part in parts)
    assert shares(3, 7)[0].of_state(None) is None


def test_fewer_sequences_than_ranks_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^expected training\.batch to be at least .* processes \(9\), got 8$"):
        expect_enough([run(tmp_path).config], Ranks(0, 9))


def test_dropout_inside_torch_nn_layers_is_refused_with_several_ranks():
    model = SequenceModel(torch.nn.LSTM(2, 3, 2, dropout=0.1), 1)
    expect_own_dropout(model, Ranks())
    expect_own_dropout(SequenceModel(rm.LSTM(2, 3, 2, dropout=0.1), 1), Ranks(0, 2))
    with pytest.raises(ValueError, match=r"for dropout between layers, got 2 processes and torch\.nn\.LSTM"):
        expect_own_dropout(model, Ranks(0, 2))
