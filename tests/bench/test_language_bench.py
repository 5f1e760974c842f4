"""The benchmark of language models, as far as its numbers do not depend on the machine."""

import json

import pytest
import torch
from typer.testing import CliRunner

from remanence.bench import BenchReport, language, load, reading, save, tables, turns
from remanence.cli.main import app

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    """Texts and models that run in milliseconds."""
    monkeypatch.setattr(language, "CORPORA", (language.TextShape("tiny", 30, 1400, 2),))
    monkeypatch.setattr(language, "ROUNDS", 2)
    monkeypatch.setattr(language, "UNITS", 6)
    monkeypatch.setattr(language, "VECTOR", 4)


def test_every_model_is_measured_against_the_first(small):
    rows = list(language.language_steps(CPU, lambda words: None))
    assert [(row.model, row.engine) for row in rows] == list(language.MODELS)
    assert rows[0].ratio == 1
    for row in rows:
        assert row.ratio == pytest.approx(rows[0].training_ms / row.training_ms)
        assert row.epoch_seconds == pytest.approx(row.training_ms / 1e3 * 10)
        assert row.softmax_ms > 0


def test_a_step_changes_every_weight(small):
    made = []
    (corpus,) = language.CORPORA
    build = language.language_model

    def keep(*arguments, **keywords):
        made.append(build(*arguments, **keywords))
        return made[-1]

    language.language_model = keep
    try:
        step = language.training_step(corpus, "fast", "auto", CPU)
    finally:
        language.language_model = build
    before = [parameter.detach().clone() for parameter in made[0].parameters()]
    step()
    assert all((old != new).any() for old, new in zip(before, made[0].parameters(), strict=True))


def test_the_command_measures_them(small, tmp_path):
    path = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["bench", "--language", "--device", "cpu", "--json", str(path)])
    assert result.exit_code == 0
    assert "A training step of AWD-LSTM in full float32" in result.stdout.replace("\n", " ")
    assert len(json.loads(path.read_text())["language"]) == len(language.MODELS)


def test_models_in_turns_are_measured_against_one_and_survive_the_file(small, tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "WARM", 2)
    monkeypatch.setattr(turns, "ROUNDS", 1)
    rows = list(turns.language_turns(CPU, lambda words: None))
    assert [row.count for row in rows] == list(turns.COUNTS)
    assert rows[0].ratio == 1
    for row in rows:
        assert row.ratio == pytest.approx(rows[0].update_ms / row.update_ms)
        assert row.launched_ms > 0
    steps = list(language.language_steps(CPU, lambda words: None))
    report = BenchReport({}, "remanence bench", "tf32", 1.0, language=steps, turns=rows)
    save(report, tmp_path / "found.json")
    again = load(tmp_path / "found.json")
    assert again.turns == rows
    assert [table.title for table in tables(again)] == ["word-level language model", "language models in turns"]
    assert "Models in turns" in reading(again)


def test_every_model_does_its_updates_in_turn(small, tmp_path):
    (corpus,) = language.CORPORA
    loops = [turns.loop_on(corpus, CPU, tmp_path / name) for name in "ab"]
    for _ in range(3):
        turns.advance_all(loops, [None, None])
    assert [loop.at.update for loop in loops] == [3, 3]


def test_one_thing_at_a_time(small):
    result = CliRunner().invoke(app, ["bench", "--language", "--training", "--device", "cpu"])
    assert result.exit_code == 2
    assert "expected one of --training, --language, --streaming and --first-use, got 2" in result.stderr
