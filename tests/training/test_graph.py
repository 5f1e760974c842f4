"""Which updates are captured, and where graphs find carried states; on a GPU test_gpu.py compares the results."""

import gc
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from small_runs import run, words_run

from remanence.training import Optimiser, Schedule, Training, graph
from remanence.training.batches import Drawn
from remanence.training.graph import WARM, Graphs, can_capture, has_constant_lr, uncollected
from remanence.training.loop import Loop

CPU = torch.device("cpu")


class Replayed:
    """Stands in for a captured graph: adds the batch to the states in their places."""

    def __init__(self, graphs):
        self.graphs = graphs

    def replay(self, drawn):
        for place in self.graphs._places:
            place[0].add_(drawn.parts[0].sum())


@pytest.fixture
def graphs(monkeypatch):
    """Graphs over one stateful replica, whose captures are counted and take a hundred bytes each."""
    reserved = [0]

    def capture(self, drawn):
        reserved[0] += 100
        return Replayed(self)

    monkeypatch.setattr(Graphs, "_capture", capture)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved[0])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1600))
    replica = SimpleNamespace(state=None, run=SimpleNamespace(config=Training(stateful=True)))
    return Graphs(lambda batch: None, [replica], CPU)


def drawn(length):
    return Drawn((torch.ones(length, 2),), lambda parts: parts)


def warmed_up(graphs, length=1):
    for _ in range(WARM):
        assert not graphs.replay(drawn(length))
        graphs.replicas[0].state = (torch.ones(2),)
    return graphs


def test_a_shape_is_captured_when_it_is_met_again(graphs):
    warmed_up(graphs)
    assert graphs.replay(drawn(1))
    assert not graphs.replay(drawn(5))
    assert graphs.replay(drawn(5))
    assert len(graphs.captured) == 2
    assert graphs.replay(drawn(1))
    assert len(graphs.captured) == 2


def test_graphs_continue_from_the_state_of_an_update_that_was_not_captured(graphs):
    warmed_up(graphs)
    replica = graphs.replicas[0]
    replica.state = (torch.full((2,), 3.0),)
    assert graphs.replay(drawn(1))
    assert replica.state[0].tolist() == [5.0, 5.0]
    assert graphs.replay(drawn(1))
    assert replica.state[0].tolist() == [7.0, 7.0]
    place = replica.state[0]
    replica.state = (torch.full((2,), 10.0),)  # an update of a new length
    assert graphs.replay(drawn(1))
    assert replica.state[0] is place
    assert place.tolist() == [12.0, 12.0]


def test_a_model_starts_a_pass_itself(graphs):
    warmed_up(graphs)
    assert graphs.replay(drawn(1))
    graphs.replicas[0].state = None
    assert not graphs.replay(drawn(1))
    graphs.replicas[0].state = (torch.full((2,), 3.0),)
    assert graphs.replay(drawn(1))
    assert graphs.replicas[0].state[0].tolist() == [5.0, 5.0]


def test_a_lack_of_memory_keeps_what_is_captured(graphs, monkeypatch):
    warmed_up(graphs)
    assert graphs.replay(drawn(1))
    emptied, works = [], Graphs._capture

    def lacks(self, drawn):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    monkeypatch.setattr(Graphs, "_capture", lacks)
    for _ in range(4):
        assert not graphs.replay(drawn(2))
    assert len(emptied) == graph.PATIENCE
    monkeypatch.setattr(Graphs, "_capture", works)
    assert not graphs.replay(drawn(2))
    assert graphs.replay(drawn(1))


def test_nothing_is_captured_before_there_is_a_state_to_carry(graphs):
    for _ in range(WARM + 3):
        assert not graphs.replay(drawn(1))
    graphs.replicas[0].state = (torch.ones(2),)
    assert graphs.replay(drawn(1))


def test_graphs_take_a_part_of_the_memory_and_no_more(graphs):
    warmed_up(graphs)
    for length in range(1, 9):
        graphs.replay(drawn(length))
        graphs.replay(drawn(length))
    assert len(graphs.captured) == 1600 // graph.MOST // 100 + 1
    assert graphs.replay(drawn(1))


@pytest.mark.parametrize(
    ("keywords", "constant"),
    [
        ({}, True),
        ({"schedule": Schedule("linear")}, False),
        ({"schedule": Schedule(warmup=2)}, False),
        ({"jitter": True, "stateful": True}, False),
    ],
)
def test_the_optimiser_step_is_captured_if_the_learning_rate_is_constant(keywords, constant):
    assert has_constant_lr(Training(**keywords)) == constant


@pytest.mark.parametrize(
    ("change", "captured"),
    [
        ({}, True),
        ({"seeds": (1, 2)}, True),
        ({"dropout": 0.2}, True),
        ({"dropout": 0.2, "seeds": (1, 2)}, False),
        ({"stateful": True}, True),
        ({"stateful": True, "restart": 0.1}, False),
        ({"schedule": Schedule("linear")}, True),
        ({"optimiser": Optimiser("sgd", average="when stalled")}, True),
    ],
    ids=str,
)
def test_what_is_captured_on_a_gpu(tmp_path, change, captured):
    keywords = {name: value for name, value in change.items() if name != "seeds"}
    runs = [run(tmp_path, seed, **keywords) for seed in change.get("seeds", (1,))]
    population = Loop.alone(runs, CPU).population
    assert not can_capture(population.config, population)
    population.device = torch.device("cuda", 0)
    assert can_capture(population.config, population) == captured


def test_chunks_of_random_lengths_are_captured_on_a_gpu(tmp_path):
    population = Loop.alone([words_run(tmp_path)], CPU).population
    population.device = torch.device("cuda", 0)
    assert can_capture(population.config, population)


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_during_a_capture_and_then_as_before(collects):
    try:
        if not collects:
            gc.disable()
        with suppress(KeyError), uncollected():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == collects
    finally:
        gc.enable()
