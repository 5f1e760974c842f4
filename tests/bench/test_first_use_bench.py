"""Latency of the first layer in a new process."""

import json

import pytest
import torch
from typer.testing import CliRunner

from remanence import bench
from remanence.bench import first_use
from remanence.cli.main import app


@pytest.fixture
def quick(monkeypatch):
    """Replace processes by fixed times."""
    seen = []

    def once(layer, device, cache):
        again = (layer, cache) in seen
        seen.append((layer, cache))
        return {"": 0.2}.get(layer, 0.3 if again else 1.5)

    monkeypatch.setattr(first_use, "once", once)
    return seen


def test_a_layer_is_measured_with_a_cold_and_a_warm_kernel_cache(quick):
    rows = list(first_use.first_uses(torch.device("cpu"), lambda words: None))
    assert [(row.layer, row.disk, row.seconds) for row in rows] == [
        ("", "", 0.2),
        ("power_law", "nothing on disk", 1.5),
        ("power_law", "kernels on disk", 0.3),
        ("refine", "nothing on disk", 1.5),
        ("refine", "kernels on disk", 0.3),
    ]
    assert [round(row.more, 3) for row in rows] == [0, 1.3, 0.1, 1.3, 0.1]
    folders = {cache for _, cache in quick}
    assert len(folders) == 1 + first_use.ROUNDS * len(first_use.LAYERS)


@pytest.mark.usefixtures("quick")
def test_the_command_shows_a_table_and_writes_numbers_that_are_read_again(tmp_path):
    path = tmp_path / "first.json"
    found = CliRunner().invoke(app, ["bench", "--first-use", "--device", "cpu", "--json", str(path)])
    assert found.exit_code == 0, found.output
    assert "the first layer of a process" in found.stdout
    assert "--first-use" in found.stdout
    assert len(json.loads(path.read_text())["first_use"]) == 5
    assert bench.load(path).first_use[1].more == pytest.approx(1.3)


@pytest.mark.long
@pytest.mark.parametrize("layer", ["", "power_law"])
def test_a_new_process_reports_how_long_the_first_step_took(layer, tmp_path):
    assert 0 < first_use.once(layer, torch.device("cpu"), str(tmp_path)) < 120


@pytest.mark.long
def test_a_failing_process_is_reported(tmp_path):
    with pytest.raises(RuntimeError, match=r"the process of a first layer failed: .*gate"):
        first_use.once("nonsense", torch.device("cpu"), str(tmp_path))
