"""Ranks that train together give the results of one process with the whole batch, and stop and resume together."""

import json
import random
import signal

import pytest
import torch
from ranked import Ranked, trains
from safetensors.torch import load_file
from small_runs import content

pytestmark = pytest.mark.long

KINDS = {
    "one": {},
    "two together with dropout": {"seeds": (1, 2), "dropout": 0.2, "batch": 7},
    "stateful": {"stateful": True, "checkpoint_every": 3, "model": "lstm", "batch": 7},
    "words with averages": {"words": True},
}


def by_hand(*values):
    """A case that CI has no time for."""
    return pytest.param(*values, marks=pytest.mark.slow)


KILLS = 3
"""So often a run is killed, and then goes on to its end."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of two-rank runs that nothing stopped, by kind."""
    found = {}

    def of(kind, **keywords):
        if kind not in found:
            folder = tmp_path_factory.mktemp("undisturbed")
            assert start(folder, **keywords).end() == [0, 0]
            found[kind] = content(folder / "runs")
            assert any(name.endswith("result.json") for name in found[kind])
        return found[kind]

    return of


def start(folder, size=2, **keywords):
    return Ranked(folder / "said", trains, folder / "runs", keywords, size=size)


def expect_equal(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def expect_close(folder, other):
    """Every tensor and every metric within 1e-10, all files there."""
    assert content(folder).keys() == content(other).keys()
    for path in folder.rglob("*.safetensors"):
        one, two = load_file(path), load_file(other / path.relative_to(folder))
        assert any(value.dtype == torch.float64 for value in one.values())
        assert one.keys() == two.keys()
        for name, value in one.items():
            if name == "metrics":  # a text, whose numbers are compared below
                continue
            torch.testing.assert_close(two[name], value, rtol=0, atol=1e-10, msg=f"{path} {name}")
    for path in folder.rglob("metrics.jsonl"):
        lines, others = (file.read_text().splitlines() for file in (path, other / path.relative_to(folder)))
        for line, same in zip(lines, others, strict=True):
            one, two = json.loads(line), json.loads(same)
            assert two == {**one, **{name: two[name] for name in ("train", "validation", "check")}}
            for split in ("train", "validation"):
                assert two[split] == pytest.approx(one[split], rel=1e-10)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("two together with dropout", 2),
        ("stateful", 2),
        ("words with averages", 2),
        by_hand("one", 2),
        by_hand("words with averages", 3),
    ],
)
def test_ranks_do_what_one_process_does(tmp_path, kind, size):
    for ranks in (1, size):
        group = start(tmp_path / str(ranks), size=ranks, float64=True, **KINDS[kind])
        assert group.end() == [0] * ranks, group.said
    expect_close(tmp_path / "1" / "runs", tmp_path / str(size) / "runs")


@pytest.mark.slow  # the compiler takes its time
def test_compiled_models_with_dropout_do_what_they_do_in_one_process(tmp_path):
    for ranks in (1, 2):
        group = start(tmp_path / str(ranks), size=ranks, float64=True, compile=True, dropout=0.2, batch=7, epochs=1)
        assert group.end() == [0] * ranks, group.said
    expect_close(tmp_path / "1" / "runs", tmp_path / "2" / "runs")


@pytest.mark.parametrize("kind", [*map(by_hand, KINDS)])
def test_killed_at_random_moments(tmp_path, kind, undisturbed):
    chance = random.Random(kind)
    for _ in range(KILLS):
        group = start(tmp_path, **KINDS[kind])
        assert group.wait_for_updates(chance.randint(1, 7))
        group.strike(signal.SIGKILL, 0, 1)
        assert group.end() == [-signal.SIGKILL] * 2
    assert start(tmp_path, **KINDS[kind]).end() == [0, 0]
    expect_equal(content(tmp_path / "runs"), undisturbed(kind, **KINDS[kind]))


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["one", by_hand("words with averages")])
def test_a_signal_to_one_rank_stops_all_at_one_update(tmp_path, kind, rank, undisturbed):
    group = start(tmp_path, **KINDS[kind])
    assert group.wait_for_updates(6)
    group.strike(signal.SIGTERM, rank)
    assert group.end() == [143, 143]
    first, second = group.said
    assert "stopped by SIGTERM at update" in first
    assert first == second
    assert list(tmp_path.glob("runs/seed-1/checkpoints/*.safetensors"))
    assert start(tmp_path, **KINDS[kind]).end() == [0, 0]
    expect_equal(content(tmp_path / "runs"), undisturbed(kind, **KINDS[kind]))


def test_a_budget_stops_all(tmp_path, undisturbed):
    group = start(tmp_path, budget=1e-3)
    assert group.end() == [0, 0]
    assert "the budget of 0.001 s is spent" in group.said[0]
    assert not list(tmp_path.glob("runs/seed-1/result.json"))
    assert start(tmp_path).end() == [0, 0]
    expect_equal(content(tmp_path / "runs"), undisturbed("one"))


def test_a_run_resumes_only_with_as_many_ranks_as_it_was_started_with(tmp_path):
    group = start(tmp_path)
    assert group.wait_for_updates(6)
    group.strike(signal.SIGTERM, 0)
    assert group.end() == [143, 143]
    before = content(tmp_path / "runs")
    for size in (1, 3):
        other = start(tmp_path, size=size)
        assert other.end() == [2] * size
        for said in other.said:
            assert said.splitlines()[-1].startswith("expected to resume with 2 processes, as ")
            assert said.splitlines()[-1].endswith(f"got {size}")
    expect_equal(content(tmp_path / "runs"), before)


def test_when_a_rank_dies_the_others_do_not_wait_for_it(tmp_path, undisturbed):
    group = start(tmp_path)
    assert group.wait_for_updates(6)
    group.strike(signal.SIGKILL, 1)
    codes = group.end()
    assert codes[1] == -signal.SIGKILL
    assert codes[0] != 0
    assert start(tmp_path).end() == [0, 0]
    expect_equal(content(tmp_path / "runs"), undisturbed("one"))


def test_a_folder_that_others_hold_is_refused_by_all(tmp_path):
    group = start(tmp_path)
    assert group.wait_for_updates(3)
    group.strike(signal.SIGSTOP, 0, 1)
    second = Ranked(tmp_path / "refused", trains, tmp_path / "runs", {})
    codes = second.end()
    group.strike(signal.SIGCONT, 0, 1)
    assert codes == [2, 2]
    assert all("got a folder in which another process trains" in said for said in second.said)
    assert group.end() == [0, 0]


def test_half_precision_with_its_loss_scale(tmp_path):
    """Gradients are scaled alike on all ranks, so an overflow on one leaves the update out on all."""
    group = start(tmp_path, precision="float16")
    assert group.end() == [0, 0]
    result = json.loads((tmp_path / "runs" / "seed-1" / "result.json").read_text())
    assert result["status"] == "finished"
