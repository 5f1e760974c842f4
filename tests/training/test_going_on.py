"""Whatever stops a run, the same call resumes it, and its files equal those of an uninterrupted run."""

import random
import signal

import pytest
from killable import KINDS, Child, posix
from small_runs import CONFIG, content, run

from remanence.training import train

ROUNDS = 60
"""A run is stopped at most so often; each round gets further, or tests would not end."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of runs that nothing stopped, by kind."""
    found = {}

    def of(kind):
        if kind not in found:
            folder = tmp_path_factory.mktemp("undisturbed")
            assert Child(folder, **KINDS[kind]).end() == 0
            found[kind] = content(folder)
            assert any(name.endswith("result.json") for name in found[kind])
        return found[kind]

    return of


def expect_equal(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


SOONER = ("two together with dropout",)
"""What is also tried in CI; killing the others takes longer."""


@posix
@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [kind if kind in SOONER else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_killed_at_random_moments(tmp_path, kind, undisturbed):
    chance = random.Random(kind)
    kills = 0
    for _ in range(ROUNDS):
        child = Child(tmp_path, **KINDS[kind])
        if child.wait_for_updates(chance.choice([0, 3, 12, 12])):
            child.strike(signal.SIGKILL)
        kills += child.end() == -signal.SIGKILL
        if len(list(tmp_path.glob("*/result.json"))) == len(KINDS[kind].get("seeds", (1,))):
            break
    assert Child(tmp_path, **KINDS[kind]).end() == 0
    assert kills > 1
    expect_equal(content(tmp_path), undisturbed(kind))


@posix
@pytest.mark.long
@pytest.mark.parametrize("kind", ["one", pytest.param("two together with dropout", marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", [9, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writes(tmp_path, kind, first, undisturbed):
    deaths = 0
    for number in range(ROUNDS):
        code = Child(tmp_path, die_at=first + 3 * number, **KINDS[kind]).end()
        deaths += code == -signal.SIGKILL
        if code == 0:
            break
    assert deaths > 3
    expect_equal(content(tmp_path), undisturbed(kind))


@posix
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_at_that_very_update(tmp_path, how, undisturbed):
    child = Child(tmp_path)
    assert child.wait_for_updates(6)
    child.strike(how)
    code = child.end()
    assert code in (128 + how, 0)  # it may have been too late
    if code != 0:
        names = content(tmp_path).keys()
        assert not any(name.endswith("result.json") for name in names)
    assert Child(tmp_path).end() == 0
    expect_equal(content(tmp_path), undisturbed("one"))


@posix
@pytest.mark.long
def test_signals_again_and_again(tmp_path, undisturbed):
    kind = "two together with dropout"
    codes = []
    for count in [1, 5, 2]:
        child = Child(tmp_path, **KINDS[kind])
        if child.wait_for_updates(count):
            child.strike(signal.SIGTERM)
        codes.append(child.end())
    assert Child(tmp_path, **KINDS[kind]).end() == 0
    assert 143 in codes
    expect_equal(content(tmp_path), undisturbed(kind))


@posix
def test_a_spent_budget_stops_a_run_and_it_resumes(tmp_path, undisturbed):
    codes = [Child(tmp_path, budget=1e-3).end() for _ in range(3)]
    assert codes == [0, 0, 0]
    assert not (tmp_path / "seed-1" / "result.json").exists()
    assert Child(tmp_path).end() == 0
    expect_equal(content(tmp_path), undisturbed("one"))


@posix
def test_a_second_process_is_refused(tmp_path):
    from small_runs import run

    from remanence.training import RunError, train

    child = Child(tmp_path, epochs=1000)
    assert child.wait_for_updates(1)
    try:
        with pytest.raises(RunError, match=r"^expected .* to be free, got a folder in which another process trains$"):
            train([run(tmp_path, epochs=1000)])
    finally:
        child.strike(signal.SIGKILL)
        child.end()


@pytest.mark.parametrize("update", [1, 4, 7, 11])
def test_a_stop_in_the_middle_saves_that_very_update_and_resumes_to_the_same_bits(tmp_path, train_until_update, update):
    whole, stopped = run(tmp_path / "whole"), run(tmp_path / "stopped")
    train([whole])
    train_until_update(update, [stopped])
    names = {path.name for path in (stopped.directory / "checkpoints").glob("*.safetensors")}
    at_checkpoint = update - 1 if (update - 1) % CONFIG.evaluate_every == 0 and update > 1 else None
    assert ("interrupted.safetensors" in names) == (update > 1 and at_checkpoint is None)
    train([stopped])
    assert content(stopped.directory) == content(whole.directory)
