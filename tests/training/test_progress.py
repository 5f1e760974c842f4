"""Progress displays and loggers."""

import sys
import types

import pytest
from small_runs import run

from remanence.training import Progress, loggers, train
from remanence.training.progress import title


def test_live_progress_shows_loss_goal_speed_and_results(tmp_path, terminal):
    with Progress() as progress:
        train([run(tmp_path, seed, epochs=1) for seed in (1, 2, 3)], progress=progress)
    shown = terminal.getvalue()
    for words in (
        "test/copy plstm seeds 1-3",
        "loss ",
        "accuracy ",
        "updates/s",
        "8/8",
        "seed 2: finished after 8 updates",
    ):
        assert words in shown


def test_without_a_terminal_live_progress_is_plain_lines(tmp_path, capsys):
    with Progress() as progress:
        train([run(tmp_path, epochs=1)], progress=progress)
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "test/copy plstm seed 1: update 4, epoch 0.5, train loss" in said


def test_titles(tmp_path):
    def of(*seeds):
        return title([run(tmp_path, seed) for seed in seeds])

    assert of(4) == "test/copy plstm seed 4"
    assert of(1, 2) == "test/copy plstm seeds 1,2"
    assert of(1, 2, 3, 4) == "test/copy plstm seeds 1-4"
    assert of(1, 2, 4) == "test/copy plstm seeds 1,2,4"


class Kept:
    made: list = []  # noqa: RUF012

    def __init__(self, **keywords):
        self.keywords, self.metrics, self.status = keywords, [], None
        Kept.made.append(self)

    def log_hyperparams(self, values):
        self.values = values

    def log_metrics(self, values, step):
        self.metrics.append((step, values))

    def finalize(self, status):
        self.status = status


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_metrics_go_through_the_loggers_of_lightning(tmp_path, monkeypatch, name):
    fake = types.ModuleType("lightning.pytorch.loggers")
    fake.MLFlowLogger = fake.WandbLogger = Kept
    monkeypatch.setitem(sys.modules, "lightning", types.ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.ModuleType("lightning.pytorch"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch.loggers", fake)
    monkeypatch.setattr(loggers, "find_spec", lambda package: True)
    Kept.made = []
    one = run(tmp_path, epochs=1)
    train([one], loggers=[loggers.make(name)])
    (kept,) = Kept.made
    assert kept.values == one.description
    assert [step for step, _ in kept.metrics] == [4, 8, 8]
    assert "validation/accuracy" in kept.metrics[0][1]
    assert "test/accuracy" in kept.metrics[2][1]
    assert kept.status == "success"


def test_a_logger_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=r"^expected package lightning for logger 'wandb', got none; pip install "):
        loggers.make("wandb")
    with pytest.raises(ValueError, match=r"^expected logger to be one of mlflow, wandb, got 'neptune'$"):
        loggers.make("neptune")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_events_are_what_tensorboard_reads(tmp_path):
    import json

    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    one = run(tmp_path, epochs=1)
    train([one])
    metrics = [json.loads(line) for line in (one.directory / "metrics.jsonl").read_text().splitlines()]
    header, *events = LegacyEventFileLoader(str(one.directory / "events.out.tfevents.remanence")).Load()
    assert header.file_version == "brain.Event:2"
    assert [event.step for event in events] == [4, 8]
    for event, line in zip(events, metrics, strict=True):
        found = {value.tag: value.simple_value for value in event.summary.value}
        assert found["validation/accuracy"] == pytest.approx(line["validation"]["accuracy"])
        assert found["train/loss"] == pytest.approx(line["train"]["loss"])


def test_without_tensorboard_there_are_no_events_and_one_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    monkeypatch.setattr(loggers, "_said", False)
    with pytest.warns(UserWarning, match=r"^TensorBoard is not installed, so no event files are written") as caught:
        train([run(tmp_path, epochs=1)])
    assert len(caught) == 1
    assert not list(tmp_path.rglob("events*"))
