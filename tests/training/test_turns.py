"""Runs that take turns: each gives the bits that it gives alone, and all stop and resume."""

import json
import signal
import weakref

import pytest
import torch
from killable import KINDS, Child, posix
from small_runs import content, run, words_run

from remanence.training import Budget, Progress, Silent, Stopped, train
from remanence.training.config import stacks
from remanence.training.interruption import Interruption
from remanence.training.turns import take_turns


def texts(folder, seeds=(1, 2), **keywords):
    return [words_run(folder, seed, **keywords) for seed in seeds]


class Order(Silent):
    """Which run did each update."""

    def __init__(self, found=None):
        self.found, self.name = [] if found is None else found, None

    def another(self):
        return Order(self.found)

    def begin(self, runs, update, total):
        self.name = str(runs[0])

    def wants_loss(self):
        return True

    def step(self, update, loss=None):
        self.found.append((self.name, update))


def test_runs_that_differ_only_in_their_seed_are_stacked(tmp_path):
    runs = [run(tmp_path, seed) for seed in (1, 2)] + [run(tmp_path, 3, model="lstm"), run(tmp_path, 4)]
    assert stacks(runs) == [[0, 1, 3], [2]]
    assert stacks([*runs, run(tmp_path, 5, batch=4)]) == [[0, 1, 3], [2], [4]]


def test_chunks_of_random_lengths_are_not_stacked(tmp_path):
    assert stacks(texts(tmp_path)) == [[0], [1]]


def test_texts_in_turns_give_the_files_that_they_give_alone(tmp_path):
    for one in texts(tmp_path / "alone"):
        train([one])
    order = Order()
    results = train(texts(tmp_path / "turns"), progress=order)
    assert [result["status"] for result in results] == ["finished"] * 2
    assert content(tmp_path / "turns") == content(tmp_path / "alone")
    names = [name for name, _ in order.found]
    assert names[:6] == ["test/words mts seed 1", "test/words mts seed 2"] * 3


def test_different_models_take_turns_while_their_seeds_are_stacked(tmp_path):
    def runs(folder, model):
        return [run(folder / model, seed, model=model) for seed in (1, 2)]

    for model in ("plstm", "lstm"):
        train(runs(tmp_path / "alone", model))
    train([*runs(tmp_path / "turns", "plstm"), *runs(tmp_path / "turns", "lstm")])
    assert content(tmp_path / "turns") == content(tmp_path / "alone")


def test_a_run_that_ends_leaves_and_the_others_continue(tmp_path):
    short, long = words_run(tmp_path, 1, epochs=1), words_run(tmp_path, 2, epochs=3)
    order = Order()
    results = train([short, long], progress=order)
    assert results[1]["updates"] == 3 * results[0]["updates"]
    assert {name for name, _ in order.found[-results[0]["updates"] :]} == {str(long)}


@pytest.mark.parametrize("update", [1, 2, 5, 8, 13])
def test_a_stop_saves_every_run_at_its_own_update(tmp_path, train_until_update, update):
    train(texts(tmp_path / "whole"))
    train_until_update(update, texts(tmp_path / "stopped"))
    order = Order()
    train(texts(tmp_path / "stopped"), progress=order)
    first = {}
    for name, number in order.found:
        first.setdefault(name, number)
    done = [update // 2, (update - 1) // 2]  # it is asked once before the first update
    assert list(first.values()) == [1 + count for count in done]
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


@posix
@pytest.mark.long
def test_a_signal_stops_all(tmp_path):
    kind = KINDS["two texts in turns"]
    assert Child(tmp_path / "whole", **kind).end() == 0
    for attempt in range(4):  # on a busy machine the signal may come too late
        stopped = tmp_path / f"stopped {attempt}"
        child = Child(stopped, **kind)
        assert child.wait_for_updates(3)
        child.strike(signal.SIGTERM)
        code = child.end()
        if code == 143:
            break
    assert code == 143
    assert len(list(stopped.glob("*/checkpoints/interrupted.safetensors"))) == 2
    assert Child(stopped, **kind).end() == 0
    assert content(stopped) == content(tmp_path / "whole")


def test_a_run_that_has_ended_is_not_trained_again_beside_one_that_has_not(tmp_path):
    first, second = texts(tmp_path)
    train([first])
    before = content(first.directory)
    order = Order()
    train([first, second], progress=order)
    assert {name for name, _ in order.found} == {str(second)}
    assert content(first.directory) == before


def test_time_to_save_is_reserved_for_every_loop():
    interruption = Interruption(Budget(100.0))
    interruption._lately["saving"] = 30.0
    assert not interruption.wanted("update")
    interruption.loops = 3
    assert interruption.wanted("update")


def test_every_loop_has_a_progress_bar(tmp_path, terminal):
    with Progress() as progress:
        train(texts(tmp_path, epochs=1), progress=progress)
    last = terminal.getvalue().rpartition("updates/s")[0].splitlines()[-2:]
    bars = [line for line in last if "━" in line]
    assert [seed for seed in (1, 2) for line in bars if f"test/words mts seed {seed} " in line] == [1, 2], last


def test_an_error_in_one_ends_all_and_frees_their_folders(tmp_path):
    class Breaks(Order):
        def step(self, update, loss=None):
            super().step(update, loss)
            if len(self.found) == 5:
                raise RuntimeError("broken")

        def another(self):
            return Breaks(self.found)

    with pytest.raises(RuntimeError, match=r"^broken$"):
        train(texts(tmp_path / "broken"), progress=Breaks())
    train(texts(tmp_path / "whole"))
    train(texts(tmp_path / "broken"))
    assert content(tmp_path / "broken") == content(tmp_path / "whole")


def test_metrics_of_runs_in_turns_are_their_own(tmp_path):
    runs = texts(tmp_path)
    train(runs)
    one, other = (
        [json.loads(line) for line in (each.directory / "metrics.jsonl").read_text().splitlines()] for each in runs
    )
    assert [line["update"] for line in one] == [line["update"] for line in other]
    assert all(a["train"]["loss"] != b["train"]["loss"] for a, b in zip(one, other, strict=True))


def test_a_cpu_needs_no_cuda_and_no_other_accelerator(tmp_path, monkeypatch):
    def initialised():
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.cuda, "_lazy_init", initialised)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    train(texts(tmp_path, epochs=1))


def before_evaluation(work):
    return work == "evaluation"


def test_all_runs_have_begun_before_one_is_evaluated(tmp_path, train_until):
    train_until(before_evaluation, texts(tmp_path))
    seen = []

    class Noting(Silent):
        def begin(self, runs, update, total):
            seen.append("begin")

        def evaluated(self, run, line):
            seen.append("evaluated")

    train(texts(tmp_path), progress=Noting())
    assert seen[:3] == ["begin", "begin", "evaluated"]


def test_every_run_resumes_with_the_threads_it_was_started_with(tmp_path, train_until):
    first, second = texts(tmp_path)
    torch.set_num_threads(2)
    train_until(before_evaluation, [second])
    torch.set_num_threads(1)
    counts = {}

    class Counting(Silent):
        def evaluated(self, run, line):
            counts.setdefault(run.seed, set()).add(torch.get_num_threads())

    train([first, second], progress=Counting())
    assert counts == {1: {1}, 2: {2}}
    assert torch.get_num_threads() == 1


def test_a_display_of_its_own_kind_shows_every_run(tmp_path):
    seen = []

    class Own(Progress):
        def evaluated(self, run, line):
            seen.append(run.seed)

    with Own() as progress:
        train(texts(tmp_path, epochs=1), progress=progress)
    assert sorted(seen) == [1, 2]


class Stopping:
    """A loop that counts how often it is stopped."""

    def __init__(self, error=None, fails=None):
        self.error, self.fails, self.stopped = error, fails, 0

    def updates(self):
        yield
        if self.error is not None:
            raise self.error

    def stop(self):
        self.stopped += 1
        if self.fails is not None:
            raise self.fails


def test_all_others_save_even_if_one_of_them_cannot():
    full = OSError("disk full")
    loops = [Stopping(Stopped("", 0)), Stopping(fails=full), Stopping()]
    with pytest.raises(OSError, match="disk full"):
        take_turns([lambda loop=loop: loop for loop in loops], torch.device("cpu"))
    assert [loop.stopped for loop in loops] == [0, 1, 1]


def test_an_error_in_one_saves_the_others():
    loops = [Stopping(RuntimeError("broken")), Stopping()]
    with pytest.raises(RuntimeError, match=r"^broken$"):
        take_turns([lambda loop=loop: loop for loop in loops], torch.device("cpu"))
    assert [loop.stopped for loop in loops] == [0, 1]


def test_the_next_loop_starts_when_one_ends():
    seen = []

    class Loop:
        def __init__(self, name, count):
            self.name, self.count = name, count
            seen.append(f"{name} starts")

        def updates(self):
            for number in range(self.count):
                seen.append(f"{self.name}{number}")
                yield

    counts = {"a": 1, "b": 3, "c": 1, "d": 1}
    starts = [lambda name=name, count=count: Loop(name, count) for name, count in counts.items()]
    take_turns(starts, torch.device("cpu"), 2)
    assert seen == ["a starts", "a0", "b starts", "b0", "c starts", "c0", "b1", "d starts", "d0", "b2"]


def test_a_stop_before_all_have_started_resumes_with_them(tmp_path, train_until_update):
    seeds = (1, 2, 3)
    train(texts(tmp_path / "whole", seeds, epochs=1))
    stopped = texts(tmp_path / "stopped", seeds, epochs=1)
    train_until_update(3, stopped, at_once=1)
    assert [any((run.directory / "checkpoints").glob("*")) for run in stopped] == [True, False, False]
    train(stopped, at_once=2)
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


def test_the_memory_of_a_loop_that_has_ended_is_free_before_the_next_starts():
    ended, seen = [], []

    class Loop:
        def __init__(self):
            self.itself = self  # a cycle, which only the collector of garbage frees
            seen.append([loop() for loop in ended])
            ended.append(weakref.ref(self))

        def updates(self):
            yield

    take_turns([Loop] * 3, torch.device("cpu"), 1)
    assert seen == [[], [None], [None, None]]


@pytest.mark.parametrize("most", [0, -1])
def test_at_least_one_is_trained_at_once(tmp_path, most):
    with pytest.raises(ValueError, match=f"^expected at_once to be at least 1, got {most}$"):
        train(texts(tmp_path), at_once=most)


def test_all_that_began_save_if_one_cannot_start():
    def fails():
        raise RuntimeError("no memory")

    loops = [Stopping(), Stopping()]
    with pytest.raises(RuntimeError, match=r"^no memory$"):
        take_turns([*(lambda loop=loop: loop for loop in loops), fails], torch.device("cpu"))
    assert [loop.stopped for loop in loops] == [1, 1]


def test_two_at_once_give_the_files_that_all_at_once_give(tmp_path):
    seeds = (1, 2, 3)
    order = Order()
    train(texts(tmp_path / "two", seeds, epochs=1), progress=order, at_once=2)
    train(texts(tmp_path / "all", seeds, epochs=1))
    assert content(tmp_path / "two") == content(tmp_path / "all")
    assert len({name for name, _ in order.found[:10]}) == 2
    turns = [json.loads((tmp_path / name / "seed-1/machine.json").read_text())["turns"] for name in ("two", "all")]
    assert turns == [2, 3]


def test_loops_take_turns_until_the_last_has_ended():
    done = []

    class Loop:
        def __init__(self, name, count):
            self.name, self.count = name, count

        def updates(self):
            for number in range(self.count):
                done.append((self.name, number))
                yield

    take_turns([lambda: Loop("a", 1), lambda: Loop("b", 3), lambda: Loop("c", 0)], torch.device("cpu"))
    assert done == [("a", 0), ("b", 0), ("b", 1), ("b", 2)]
