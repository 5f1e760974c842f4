"""Training on a GPU: the host never waits for the device, and an update is captured as a CUDA graph."""

import gc
from dataclasses import replace

import pytest
import torch
from small_runs import TASK, content, run, weights, words_run

from remanence.models.states import named
from remanence.tasks import Adding, CopyVariable, Frequency
from remanence.training import Optimiser, Schedule, Silent, train
from remanence.training.loop import Loop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),
]
CASES = {
    "one": ((1,), {}),
    "three": ((1, 2, 3), {}),
    "rmsprop": ((1, 2), {"optimiser": Optimiser("rmsprop", lr=1e-2, smoothing=0.9, clip_norm=1.0)}),
    "sgd": ((1, 2), {"optimiser": Optimiser("sgd", lr=0.1, momentum=0.9, clip_value=0.1)}),
    "adamw": ((1,), {"optimiser": Optimiser("adamw", lr=1e-2)}),
    "float16": ((1, 2), {"precision": "float16"}),
    "bfloat16": ((1, 2), {"precision": "bfloat16"}),
    "dropout": ((1, 2), {"dropout": 0.2}),
    "dropout alone": ((1,), {"dropout": 0.2}),
    "stateful": ((1, 2), {"stateful": True}),
    "schedule": ((1, 2), {"schedule": Schedule("linear", warmup=4)}),
    "loop engine": ((1,), {"model": "nru"}),
    "endless": ((1, 2), {"task": replace(TASK, train_size=None), "epoch_updates": 8}),
    "variable": ((1, 2), {"task": CopyVariable(shortest=2, longest=5, length=2, train_size=64, validation_size=20)}),
    "adding": ((1, 2), {"task": Adding(length=6, validation_size=20), "epoch_updates": 8}),
    "asynchronous": ((1, 2), {"task": Frequency(sampling="async", validation_size=20), "epoch_updates": 8}),
}


def loop(folder, seeds, **keywords):
    device = torch.device("cuda", torch.cuda.current_device())
    return Loop.alone([run(folder, seed, evaluate_every=1000, **keywords) for seed in seeds], device)


@pytest.mark.parametrize("case", CASES)
def test_the_host_never_waits_for_the_device(tmp_path, case, never_waits):
    seeds, keywords = CASES[case]
    made = loop(tmp_path, seeds, **keywords)
    for _ in range(6):
        made.update()
    with never_waits():
        for _ in range(12):  # past the end of a pass
            made.update()
    assert bool(made.graphs and made.graphs.captured) == (case != "dropout")
    assert made.population.losses[:, :18].isfinite().all()


@pytest.mark.parametrize("case", [case for case in CASES if case != "dropout"])
def test_a_captured_update_equals_an_update_that_is_not_captured(tmp_path, case):
    seeds, keywords = CASES[case]
    recorded, plain = (loop(tmp_path / name, seeds, **keywords) for name in ("recorded", "plain"))
    plain.graphs = None
    for _ in range(12):
        recorded.update()
        plain.update()
    assert plain.graphs is None
    assert recorded.graphs is not None
    assert len(recorded.graphs.captured) == 1
    torch.testing.assert_close(recorded.population.losses, plain.population.losses)
    torch.testing.assert_close(recorded.population.parameters, plain.population.parameters)


class Crash(Silent):
    def wants_loss(self):
        return True

    def step(self, update, loss=None):
        if update == 14:
            raise KeyboardInterrupt


@pytest.mark.parametrize("case", CASES)
def test_a_run_resumes_and_replicas_train_as_if_alone(tmp_path, case):
    seeds, keywords = CASES[case]
    whole, broken, alone = (
        [run(tmp_path / name, seed, **keywords) for seed in seeds] for name in ("whole", "broken", "alone")
    )
    expected = train(whole, device="cuda")
    with pytest.raises(KeyboardInterrupt):
        train(broken, device="cuda", progress=Crash())
    found = train(broken, device="cuda")
    separately = [train([one], device="cuda")[0] for one in alone]
    for one, other, third in zip(expected, found, separately, strict=True):
        assert one["last"] == pytest.approx(other["last"], rel=1e-4)
        assert one["last"]["loss"] == pytest.approx(third["last"]["loss"], rel=1e-2)
    for one, other in zip(whole, broken, strict=True):
        for name, value in weights(one).items():
            torch.testing.assert_close(value, weights(other)[name])


def text(folder, **keywords):
    device = torch.device("cuda", torch.cuda.current_device())
    return Loop.alone([words_run(folder, epochs=100, evaluate_every=1000, checkpoint_every=1000, **keywords)], device)


@pytest.mark.parametrize("model", ["mts", "baseline", "fast"])
def test_chunks_of_random_lengths_are_captured_by_length_with_their_dropout_and_states(tmp_path, model):
    recorded, plain = (text(tmp_path / name, model=model) for name in ("recorded", "plain"))
    plain.graphs = None
    for number in range(80):  # several passes, so states start from zeros again
        recorded.update()
        plain.update()
        if number in (5, 20, 79):
            for one, other in zip(recorded.population.parameters, plain.population.parameters, strict=True):
                assert torch.equal(one, other)
    assert len(recorded.graphs.captured) > 3
    assert torch.equal(recorded.population.losses, plain.population.losses)
    ours, theirs = (each.population.replicas[0] for each in (recorded, plain))
    assert [torch.equal(a, b) for a, b in zip(ours.noise.states, theirs.noise.states, strict=True)] == [True, True]
    for a, b in zip(named(ours.state).values(), named(theirs.state).values(), strict=True):
        assert torch.equal(a, b)


def test_the_host_never_waits_while_it_captures_chunks(tmp_path, never_waits):
    made = text(tmp_path)
    for _ in range(6):
        made.update()
    with never_waits():
        for _ in range(40):
            made.update()
    assert len(made.graphs.captured) > 3


def test_work_that_cannot_be_captured_goes_on_without_a_graph_and_with_the_same_dropout(tmp_path, monkeypatch):
    said = []
    broken, plain = (text(tmp_path / name) for name in ("broken", "plain"))
    plain.graphs = None
    monkeypatch.setattr(broken.progress, "say", said.append)
    work = broken.graphs.work

    def reads(batch):
        work(batch)
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().synchronize()

    broken.graphs.work = reads
    for _ in range(30):
        broken.update()
        plain.update()
    assert broken.graphs is None
    assert len(said) == 1
    assert said[0].startswith("could not capture an update as a CUDA graph, so training is slower: ")
    assert torch.equal(broken.population.parameters, plain.population.parameters)


def test_a_dead_graph_does_not_break_a_capture(tmp_path):
    made, dead = (text(tmp_path / name) for name in ("made", "dead"))
    while not dead.graphs.captured:
        dead.update()
    work, alive, thresholds = made.graphs.work, [dead], gc.get_threshold()
    del dead

    def makes_garbage(batch):
        if torch.cuda.is_current_stream_capturing():
            alive.clear()
            gc.set_threshold(1)
        work(batch)

    made.graphs.work = makes_garbage
    try:
        for _ in range(40):
            made.update()
    finally:
        gc.set_threshold(*thresholds)
    assert not alive
    assert len(made.graphs.captured) > 3


def test_texts_in_turns_have_streams_of_their_own_and_the_bits_that_they_have_alone(tmp_path):
    streams = set()

    class Noticing(Silent):
        def wants_loss(self):
            return True

        def step(self, update, loss=None):
            streams.add(torch.cuda.current_stream().cuda_stream)

    for seed in (1, 2, 3):
        train([words_run(tmp_path / "alone", seed)], device="cuda", progress=Noticing())
    assert streams == {torch.cuda.default_stream().cuda_stream}
    streams.clear()
    train([words_run(tmp_path / "turns", seed) for seed in (1, 2, 3)], device="cuda", progress=Noticing())
    assert len(streams) == 3
    assert torch.cuda.default_stream().cuda_stream not in streams
    assert content(tmp_path / "turns") == content(tmp_path / "alone")


@pytest.mark.parametrize("at_once", [2, None])
def test_captured_models_take_turns_and_keep_their_bits(tmp_path, at_once):
    models = ("plstm", "lstm", "fast")

    def runs(folder, model):
        return [run(folder / model, seed, model=model) for seed in (1, 2)]

    for model in models:
        train(runs(tmp_path / "alone", model), device="cuda")
    train([one for model in models for one in runs(tmp_path / "turns", model)], device="cuda", at_once=at_once)
    assert content(tmp_path / "turns") == content(tmp_path / "alone")
