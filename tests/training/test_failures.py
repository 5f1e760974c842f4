"""Errors are one sentence, and nothing that was saved is lost."""

import errno
import json
import os
from contextlib import nullcontext
from dataclasses import dataclass, fields

import pytest
import torch
from killable import posix, processes
from small_runs import TASK, content, run, weights

from remanence.engines import KNOWN
from remanence.tasks.copy import Copy
from remanence.training import Optimiser, Quiet, RunError, Silent, Stop, checkpoint, files, loop, train


class Crash(Silent):
    """Ends the process' work at an update, as a crash would, and keeps what was said."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.said: list[str] = []

    def wants_loss(self) -> bool:
        return self.at is not None

    def step(self, update, loss=None):
        if update == self.at:
            raise KeyboardInterrupt

    def say(self, message):
        self.said.append(message)


def crash(one, at):
    with pytest.raises(KeyboardInterrupt):
        train([one], progress=Crash(at))


@pytest.fixture
def whole(tmp_path):
    """The files of a run that nothing stopped."""
    train([run(tmp_path / "whole")])
    return content(tmp_path / "whole")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


# A damaged checkpoint.


def test_a_damaged_checkpoint_is_ignored_and_the_previous_one_used(tmp_path, whole):
    one = run(tmp_path / "one")
    crash(one, 14)
    first, second = sorted((one.directory / "checkpoints").glob("step-*"))
    assert (first.name, second.name) == ("step-00000008.safetensors", "step-00000012.safetensors")
    damage(second)
    progress = Crash()
    train([one], progress=progress)
    (said,) = progress.said
    assert "step-00000012.safetensors" in said
    assert "resuming from an earlier one" in said
    assert content(tmp_path / "one") == whole


def test_a_run_with_only_damaged_checkpoints_is_refused(tmp_path):
    one = run(tmp_path)
    crash(one, 14)
    for path in (one.directory / "checkpoints").glob("step-*"):
        path.write_bytes(path.read_bytes()[:1000])
    before = content(tmp_path)
    with pytest.raises(RunError, match=r"^expected an intact checkpoint in .*, got only damaged ones; remove .*again$"):
        train([one])
    assert content(tmp_path) == before


def emptied(path):
    path.write_text("")


@pytest.mark.parametrize("name", ["metrics.jsonl", "times.jsonl", "machine.json", "config.yaml"])
@pytest.mark.parametrize("harm", [damage, emptied, os.unlink])
def test_files_damaged_while_a_run_is_stopped_are_restored(tmp_path, whole, name, harm):
    one = run(tmp_path / "one")
    crash(one, 14)
    harm(one.directory / name)
    train([one])
    assert content(tmp_path / "one") == whole
    listed = files.known_digests(one.directory)
    assert {*listed} > {"config.yaml", "machine.json", "metrics.jsonl", "times.jsonl", "result.json"}
    for name in listed:
        assert files.read(one.directory, name)


def test_a_damaged_machine_does_not_change_the_number_of_threads(tmp_path, monkeypatch):
    one, used = run(tmp_path), []
    crash(one, 14)
    path = one.directory / "machine.json"
    path.write_text(path.read_text().replace('"threads": 1,', '"threads": 7,'))
    monkeypatch.setattr(loop.machine, "threads", lambda count: used.append(count) or nullcontext())
    train([one])
    assert used == [1]


@pytest.mark.parametrize("name", ["result.json", "SHA256SUMS"])
def test_a_damaged_result_is_refused_and_made_again_once_it_is_removed(tmp_path, whole, name):
    one = run(tmp_path / "one")
    train([one])
    with (one.directory / name).open("a") as file:
        file.write("\n")
    with pytest.raises(RunError, match=rf"^expected .*{name}.*; remove "):
        train([one])
    (one.directory / name).unlink()
    train([one])
    assert content(tmp_path / "one") == whole


def test_a_run_without_digests_and_checks_resumes(tmp_path, whole):
    one = run(tmp_path / "one")
    crash(one, 14)
    (one.directory / "SHA256SUMS").unlink()
    for name in ("metrics.jsonl", "times.jsonl"):
        lines = [json.loads(line) for line in (one.directory / name).read_text().splitlines()]
        for line in lines:
            del line["check"]
        (one.directory / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    train([one])
    assert content(tmp_path / "one") == whole


def test_lost_best_weights_come_back_from_the_checkpoint(tmp_path, whole):
    one = run(tmp_path / "one")
    crash(one, 14)
    (one.directory / "checkpoints" / "best.safetensors").write_bytes(b"")
    train([one])
    assert content(tmp_path / "one") == whole


# The engine.


def begun_with(engine, folder):
    one = run(folder)
    with pytest.raises(KeyboardInterrupt):
        train([one], progress=Crash(14), engine=engine)
    return one


def used(one):
    return json.loads((one.directory / "machine.json").read_text())["engines"]


def test_a_run_resumes_with_the_engine_it_started_with(tmp_path):
    train([run(tmp_path / "whole")], engine="loop")
    one = begun_with("loop", tmp_path / "one")
    train([one])
    assert used(one) == ["loop"]
    assert content(tmp_path / "one") == content(tmp_path / "whole")


def test_the_engine_is_known_without_machine_json(tmp_path):
    train([run(tmp_path / "whole")], engine="loop")
    one = begun_with("loop", tmp_path / "one")
    (one.directory / "machine.json").unlink()
    train([one])
    assert used(one) == ["loop"]
    assert content(tmp_path / "one") == content(tmp_path / "whole")


def test_a_missing_engine_is_one_sentence_and_another_can_resume(tmp_path, monkeypatch):
    one = begun_with("cpu", tmp_path)
    before = content(tmp_path)
    monkeypatch.setattr(KNOWN["cpu"], "refuses", lambda task: "nothing works today")
    with pytest.raises(
        RunError,
        match=r"^expected engine cpu for .*seed-1, which was started with it, but nothing works today; "
        r"--engine \S+ resumes without it, and results will differ by rounding$",
    ):
        train([one])
    assert content(tmp_path) == before
    progress = Crash()
    train([one], engine="loop", progress=progress)
    (said,) = progress.said
    assert "resumes with engine loop, but was started with cpu" in said
    assert used(one) == ["loop"]


# A disk that takes no more.


@pytest.mark.parametrize("call", [4, 9, 11, 13, 19, 24])
def test_a_full_disk_is_one_sentence_and_the_same_call_resumes(tmp_path, whole, monkeypatch, call):
    calls = 0

    def full(handle):
        nonlocal calls
        calls += 1
        if calls >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    one = run(tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            RunError,
            match=r"^expected to write .*, got: No space left on device; .* run the same command again to resume$",
        ):
            train([one])
    assert not list(tmp_path.rglob(".writing-*"))
    train([one])
    assert content(tmp_path / "one") == whole


def limited(folder, size, says):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    torch.set_num_threads(1)
    try:
        train([run(folder)])
    except RunError as error:
        says.send(str(error))


@posix
@pytest.mark.long
def test_a_file_that_may_not_grow_is_one_sentence(tmp_path, whole):
    hears, says = processes.Pipe(duplex=False)
    child = processes.Process(target=limited, args=(tmp_path / "one", 4000, says))
    child.start()
    says.close()
    message = hears.recv()
    child.join()
    assert "step-00000004.safetensors, got: File too large" in message
    assert "\n" not in message
    train([run(tmp_path / "one")])
    assert content(tmp_path / "one") == whole


@posix  # others say it in other words
def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"^expected to write .*, got: Not a directory; "):
        train([run(tmp_path / "file" / "below")])


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_one_sentence(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match=r"^expected to write .*, got: Permission denied; "):
        train([run(tmp_path)])


# A loss that is not finite.

BROKEN: dict[str, int] = {}
"""From which call the loss of which replica is not a number."""


@dataclass(frozen=True, kw_only=True)
class Breaking(Copy):
    """Copy with a loss that breaks."""

    def loss(self, outputs, batch):
        BROKEN["calls"] += 1
        losses = super().loss(outputs, batch)
        if BROKEN["calls"] >= BROKEN["from"]:
            losses = losses * torch.where(torch.arange(len(losses)) == BROKEN["replica"], torch.nan, 1.0)
        return losses


def breaking(replica, call):
    BROKEN.update({"calls": 0, "from": call, "replica": replica})
    return Breaking(**{name: getattr(TASK, name) for name in (field.name for field in fields(TASK))})


def test_a_loss_that_is_not_finite_ends_the_run_and_says_where(tmp_path, capsys):
    one = run(tmp_path, task=breaking(0, 11))
    (result,) = train([one], progress=Quiet())
    assert result["status"] == "diverged"
    assert result["updates"] == 11
    assert result["last"]["update"] == 8
    assert (
        "the loss is not finite at update 11; the run stops and keeps its last good checkpoint"
        in capsys.readouterr().err
    )
    names = sorted(path.name for path in (one.directory / "checkpoints").iterdir())
    assert names == ["best.safetensors", "step-00000008.safetensors"]
    assert all(value.isfinite().all() for value in weights(one).values())
    assert len((one.directory / "metrics.jsonl").read_text().splitlines()) == 2
    assert json.loads((one.directory / "result.json").read_text()) == result
    assert train([one]) == [result]


def test_a_replica_that_diverges_leaves_the_others_alone(tmp_path):
    runs = [run(tmp_path / "together", seed, task=breaking(1, 7)) for seed in (1, 2, 3)]
    BROKEN["replica"] = 1

    class Mend(Silent):
        def ended(self, run, result):
            BROKEN["replica"] = -1  # the second of those that are left is another one

    results = train(runs, progress=Mend())
    assert [result["status"] for result in results] == ["finished", "diverged", "finished"]
    BROKEN["replica"] = -1
    for place, seed in ((0, 1), (2, 3)):
        (alone,) = train([run(tmp_path / "alone", seed)])
        assert results[place]["best"] == pytest.approx(alone["best"], rel=1e-3)


def test_divergence_before_anything_was_saved(tmp_path):
    one = run(tmp_path, task=breaking(0, 2))
    (result,) = train([one])
    assert (result["status"], result["updates"], result["last"], result["best"]) == ("diverged", 2, None, None)
    assert result["test"] is None
    assert list((one.directory / "checkpoints").iterdir()) == []


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    one = run(tmp_path, optimiser=Optimiser("sgd", lr=1e38), checkpoint_every=1)
    (result,) = train([one])
    assert result["status"] == "diverged"
    for path in (one.directory / "checkpoints").glob("step-*"):
        assert all(value.isfinite().all() for value in weights(one, path.name).values() if value.is_floating_point())


# What a person got wrong.


def test_another_configuration_in_the_same_folder_is_refused(tmp_path):
    train([run(tmp_path)])
    other = run(tmp_path, batch=16)
    with pytest.raises(
        RunError, match=r"^expected training.batch to be 8 as in .*config.yaml, got 16; give another folder"
    ):
        train([other])


def test_a_run_that_saved_nothing_is_replaced_by_another_configuration(tmp_path, whole):
    with pytest.raises(ValueError, match=r"^expected training.batch to be at most the 64 "):
        train([run(tmp_path / "one", batch=65)])
    assert (tmp_path / "one" / "seed-1" / "config.yaml").exists()
    train([run(tmp_path / "one")])
    assert content(tmp_path / "one") == whole


def test_a_run_that_was_rewound_for_another_can_resume_alone(tmp_path, whole):
    runs = [run(tmp_path / "one", seed) for seed in (1, 2)]
    with pytest.raises(KeyboardInterrupt):
        train(runs, progress=Crash(14))
    (runs[1].directory / "checkpoints" / "step-00000012.safetensors").unlink()  # killed between two checkpoints
    with pytest.raises(KeyboardInterrupt):
        train(runs, progress=Crash(10))  # both go on from update 8
    train(runs[:1])
    assert content(tmp_path / "one" / "seed-1") == {
        name.removeprefix("seed-1/"): value for name, value in whole.items()
    }


def test_a_run_that_cannot_resume_leaves_the_others_unchanged(tmp_path, monkeypatch):
    runs = [run(tmp_path, seed) for seed in (1, 2)]
    with pytest.raises(KeyboardInterrupt):
        train(runs, progress=Crash(14))
    load, before = checkpoint.load, content(tmp_path)

    def elsewhere(path):
        tensors, data = load(path)
        return tensors, {**data, "device": "cuda"} if "seed-2" in str(path) else data

    monkeypatch.setattr(checkpoint, "load", elsewhere)
    with pytest.raises(RunError, match=r"^expected to resume on cuda"):
        train(runs)
    assert content(tmp_path) == before


def test_another_device_is_refused(tmp_path, monkeypatch):
    one = run(tmp_path)
    crash(one, 5)
    load = checkpoint.load

    def elsewhere(path):
        tensors, data = load(path)
        return tensors, {**data, "device": "cuda"}

    monkeypatch.setattr(checkpoint, "load", elsewhere)
    with pytest.raises(RunError, match=r"^expected to resume on cuda, where .* was started, got cpu$"):
        train([one])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 65}, "expected training.batch to be at most the 64 training sequences, got 65"),
        ({"epochs": 0}, "expected training.epochs to be at least 1, got 0"),
        ({"validation_size": 0}, "expected training.validation_size to be at least 1, got 0"),
        ({"precision": "int8"}, "expected training.precision to be one of float32, bfloat16, float16, got 'int8'"),
    ],
    ids=["batch", "epochs", "validation", "precision"],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path, change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        train([run(tmp_path, **change)])


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (Optimiser, {"lr": -1.0}, "optimiser.lr to be at least 0, got -1.0"),
        (Optimiser, {"lr": float("nan")}, "optimiser.lr to be at least 0, got nan"),
        (Optimiser, {"lr": float("inf")}, "optimiser.lr to be finite, got inf"),
        (Optimiser, {"betas": (0.9, 1.0)}, r"optimiser.betas to be at least 0 and below 1, got \(0.9, 1.0\)"),
        (Optimiser, {"smoothing": 1.5}, "optimiser.smoothing to be from 0 to 1, got 1.5"),
        (Optimiser, {"weight_decay": -0.1}, "optimiser.weight_decay to be at least 0, got -0.1"),
        (Optimiser, {"clip_norm": 0.0}, "optimiser.clip_norm to be above 0, got 0.0"),
        (Optimiser, {"clip_value": -2.0}, "optimiser.clip_value to be above 0, got -2.0"),
        (Stop, {"patience": 0}, "stop.patience to be at least 1, got 0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_an_invalid_number_is_refused_when_the_configuration_is_made(kind, change, message):
    with pytest.raises(ValueError, match=f"^expected training.{message}$"):
        kind(**change)


def test_no_runs_and_runs_that_share_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^expected at least one run, got none$"):
        train([])
    with pytest.raises(
        ValueError, match=r"^expected a separate folder for every run, got one folder for several runs$"
    ):
        train([run(tmp_path), run(tmp_path)])
