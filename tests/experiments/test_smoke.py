"""Every experiment really runs: the paper's code path with smaller numbers."""

import json

import pytest
import torch

from remanence import data
from remanence.experiments import IDS, Way, find, run

NEEDS = {
    "plstm/imdb": ("imdb", "glove"),
    "plstm/charptb-150": ("ptb",),
    "plstm/charptb-500": ("ptb",),
    "plstm/text8-500": ("text8",),  # made from enwik8 it would take minutes
    "fastgate/ptb": ("ptb",),
    "mts/ptb": ("ptb",),
    "mts/wt2": ("wikitext-2",),
    "mts/markov-ptb": ("ptb",),
    "mts/fig1-timescales": ("ptb",),
    "mts/routing-ptb": ("ptb",),
    "mts/routing-wt2": ("wikitext-2",),
    "mts/fig4-assigned-vs-estimated": ("ptb",),
    "mts/fig5-forget-heatmaps": ("ptb",),
    "mts/word-ablation": ("ptb", "wikitext-2"),
    "mts/shape-sweep": ("ptb",),
    "mts/layer-choice": ("ptb",),
    "own/attractors": ("ptb",),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all, so that analyses find what was trained before them."""
    return tmp_path_factory.mktemp("runs")


TWINS = (
    *("plstm/copy-1000", "plstm/copy-variable-200-1000", "plstm/mnist-512", "plstm/pmnist-512", "plstm/charptb-500"),
    *("plstm/freq-sync1", "plstm/freq-sync0.1", "fastgate/psmnist"),
)
"""Experiments that differ from another one in some numbers only."""


@pytest.mark.long
@pytest.mark.parametrize("id", [pytest.param(id, marks=pytest.mark.slow) if id in TWINS else id for id in IDS])
def test_smoke(id, out, monkeypatch):
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    missing = [name for name in NEEDS.get(id, ()) if data.KNOWN[name].find() is None]
    if missing:
        pytest.skip(f"data set {missing[0]} is not here")
    experiment = find(id, "smoke")
    way = Way(out, torch.device("cpu"))
    tables = run(experiment, way)
    assert all(table.rows for table in tables)
    folder = out / id / "smoke"
    if experiment.kind == "training":
        summary = json.loads((folder / "summary.json").read_text())
        assert list(summary["models"]) == experiment.usual
        for name, model in summary["models"].items():
            assert model["runs"] == len(experiment.seeds)
            assert model["failed"] == 0
            assert model["mean"] is not None
            for seed in experiment.seeds:
                assert (folder / name / f"seed-{seed}" / "config.yaml").is_file()
    else:
        result = json.loads((folder / "result.json").read_text())
        assert result["found"]
        assert bool(result["runs"]) == (experiment.kind == "analysis")
    written = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    assert [table.lines() for table in run(experiment, way)] == [table.lines() for table in tables]
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == written


@pytest.mark.long
@pytest.mark.parametrize("id", ["plstm/pmnist-512", "plstm/charptb-150"])
def test_smoke_of_models_that_have_to_be_named(id, tmp_path, monkeypatch):
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    if id == "plstm/charptb-150" and data.KNOWN["ptb"].find() is None:
        pytest.skip("data set ptb is not here")
    experiment = find(id, "smoke")
    (table,) = run(experiment, Way(tmp_path, torch.device("cpu")), experiment.extra, [1])
    assert [row[0] for row in table.rows] == experiment.extra
    published = table.headings.index("published")
    assert all(row[published] != "-" for row in table.rows)
