"""The benchmark of the training loop, as far as its numbers do not depend on the machine."""

import json

import pytest
import torch
from typer.testing import CliRunner

from remanence import tasks
from remanence.bench import program, run_programs, tables
from remanence.cli.main import app
from remanence.training import Optimiser, Training

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    """Settings that run in milliseconds."""
    copy = tasks.Copy(delay=3, length=2, train_size=64, validation_size=8)
    frequency = tasks.Frequency(sampling="async", validation_size=8)
    made = [
        program.Setting("copy", copy, 4, Training(8, optimiser=Optimiser(name="rmsprop", clip_norm=1.0))),
        program.Setting("frequency", frequency, 4, Training(4)),
    ]
    monkeypatch.setattr(program, "settings", lambda device: made)
    monkeypatch.setattr(program, "SECONDS", 0.001)
    monkeypatch.setattr(program, "ROUNDS", 2)


def test_every_model_is_measured_on_every_task(small):
    rows = list(program.programs(CPU, lambda words: None, (1, 2)))
    assert {(row.task, row.layer, row.replicas) for row in rows} == {
        (task, layer, count) for task in ("copy", "frequency") for layer in program.LAYERS for count in (1, 2)
    }
    assert all(row.bare_ms > 0 and row.whole_ms > 0 for row in rows)


def test_the_ratio_is_bare_over_whole():
    assert program.Program("copy", "lstm", 1, bare_ms=9.0, whole_ms=10.0).ratio == pytest.approx(0.9)


@pytest.mark.long
@pytest.mark.slow
def test_the_loop_goes_on_past_an_evaluation(small, tmp_path):
    update = program.whole_update(program.settings(CPU)[0], "lstm", CPU, 1, tmp_path)
    for _ in range(1010):
        update()


def test_a_report_has_one_table_and_plain_data(small):
    report = run_programs(CPU, "remanence bench --training")
    (table,) = tables(report)
    assert table.headings[-1] == "ratio"
    assert len(table.rows) == 6
    assert json.loads(json.dumps(report.plain()))["programs"][0]["task"] == "copy"


def test_the_command_measures_the_loop(small, tmp_path):
    path = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["bench", "--training", "--device", "cpu", "--json", str(path)])
    assert result.exit_code == 0
    assert "An update of the whole training loop" in result.stdout.replace("\n", " ")
    assert len(json.loads(path.read_text())["programs"]) == 6
