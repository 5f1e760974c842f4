"""Training on a GPU: the host never waits for the device, and an update is captured as a CUDA graph."""

from dataclasses import replace

import pytest
import torch
from small_runs import TASK, content, run, weights, words_run

from remanence.tasks import Adding, CopyVariable, Frequency
from remanence.training import Optimiser, Silent, train
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
    "stateful": ((1, 2), {"stateful": True}),
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
    assert (made.graph is not None) == (case not in ("dropout", "stateful"))
    assert made.population.losses[:, :18].isfinite().all()


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("dropout", "stateful")])
def test_a_captured_update_equals_an_update_that_is_not_captured(tmp_path, case):
    seeds, keywords = CASES[case]
    recorded, plain = (loop(tmp_path / name, seeds, **keywords) for name in ("recorded", "plain"))
    plain.capturable = False
    for _ in range(12):
        recorded.update()
        plain.update()
    assert plain.graph is None
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


def test_captured_models_take_turns_and_keep_their_bits(tmp_path):
    def runs(folder, model):
        return [run(folder / model, seed, model=model) for seed in (1, 2)]

    for model in ("plstm", "lstm"):
        train(runs(tmp_path / "alone", model), device="cuda")
    train([*runs(tmp_path / "turns", "plstm"), *runs(tmp_path / "turns", "lstm")], device="cuda")
    assert content(tmp_path / "turns") == content(tmp_path / "alone")
