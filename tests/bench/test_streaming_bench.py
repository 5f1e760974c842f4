"""The benchmark of single steps, as far as its numbers do not depend on the machine."""

import json

import pytest
import torch
from typer.testing import CliRunner

import remanence as rm
from remanence import bench
from remanence.bench import streaming
from remanence.cli.main import app


@pytest.fixture
def small(monkeypatch):
    """Sizes that run in milliseconds."""
    monkeypatch.setattr(streaming, "UNITS", (4,))
    monkeypatch.setattr(streaming, "SEQUENCES", (2,))
    monkeypatch.setattr(streaming, "GATES", ("sigmoid", "power_law"))
    monkeypatch.setattr(streaming, "ROUNDS", 2)
    monkeypatch.setattr(streaming, "REPEATS", 3)


def test_every_gate_is_measured_against_torchs_own(small):
    rows = list(streaming.streaming_steps(torch.device("cpu"), lambda words: None))
    gates = ["", "sigmoid", "power_law", "power_law with dt"]
    assert [(row.what, row.gate) for row in rows] == [
        (what, gate) for what in ("layer", "step module") for gate in gates
    ]
    assert {(row.units, row.sequences) for row in rows} == {(4, 2)}
    for row in rows:
        (theirs,) = (other.step_us for other in rows if other.what == row.what and not other.gate)
        assert row.torch_us == theirs
        assert row.ratio == pytest.approx(theirs / row.step_us)


@pytest.mark.parametrize("kind", [rm.LSTM, rm.LSTMCell])
def test_every_step_starts_from_the_state_before_it(kind):
    module, seen = kind(4, 4), []
    module.register_forward_pre_hook(lambda _, given: seen.append(given[1]))
    step = streaming.stream(module, torch.randn(1, 1, 4) if kind is rm.LSTM else torch.randn(1, 4))
    step()
    step()
    assert seen[0] is None
    assert [tuple(part.shape) for part in seen[1]] == [(1, 1, 4) if kind is rm.LSTM else (1, 4)] * 2


def test_the_command_measures_them(small, tmp_path):
    path = tmp_path / "found.json"
    result = CliRunner().invoke(app, ["bench", "--streaming", "--device", "cpu", "--json", str(path)])
    assert result.exit_code == 0
    assert "Inference latency of one step of one or a few sequences" in result.stdout.replace("\n", " ")
    assert "torch.nn.LSTMCell" in result.stdout
    assert len(json.loads(path.read_text())["streaming"]) == 8
    assert bench.load(path).streaming[1].ratio == pytest.approx(json.loads(path.read_text())["streaming"][1]["ratio"])
