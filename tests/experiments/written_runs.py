"""Run folders as training writes them, without training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from remanence.experiments import find
from remanence.experiments.models import describe

MACHINE = {
    "device": "cpu",
    "name": "a processor",
    "system": "Linux x86_64",
    "cores": 2,
    "threads": 1,
    "python": "3.12.3",
    "torch": "2.11.0",
    "cuda": None,
    "remanence": "0.1.0",
    "command": "remanence run ID --preset short --out somewhere --quiet",
    "started": "2026-01-02T03:04:05.000+00:00",
}


def write_run(
    root: Path,
    id: str = "plstm/pmnist-256",
    preset: str = "short",
    model: str = "plstm",
    seed: int = 1,
    *,
    score: float = 0.9,
    ended: bool = True,
    evaluations: int = 15,
    changes: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
) -> Path:
    """One run, whose score rises to `score`.

    Args:
        root: the folder of results.
        id: of the experiment.
        preset: of the experiment.
        model: its name.
        seed: its seed.
        score: what it ends with.
        ended: whether it has a result.
        evaluations: lines of metrics, of those the training has.
        changes: of the training in its configuration.
        result: of the result file.
        machine: of the machine file.
    """
    experiment = find(id, preset)
    name = experiment.report.score
    folder = root / id / preset / model / f"seed-{seed}"
    folder.mkdir(parents=True)
    description = describe(experiment, experiment.models[model], seed)
    description["training"] |= dict(changes or {})
    (folder / "config.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
    epochs = description["training"]["epochs"]
    lines = [
        {
            "update": 100 * (at + 1),
            "epoch": epochs * (at + 1) / evaluations * (1 if ended else 0.5),
            "train": {"loss": math.exp(-at / 10)},
            "validation": {"loss": math.exp(-at / 10), name: score * (at + 1) / evaluations},
        }
        for at in range(evaluations)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    times = [{"at": "2026-01-02T03:04:05.000+00:00", "what": "start", "update": 0}]
    times += [{"at": "2026-01-02T03:05:05.000+00:00", "what": "evaluation", "seconds": 60.0}]
    (folder / "times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in times))
    (folder / "machine.json").write_text(json.dumps({**MACHINE, **(machine or {})}))
    if ended:
        scores = {"update": 100 * evaluations, "loss": 0.1, name: score}
        content = {
            "experiment": id,
            "model": model,
            "seed": seed,
            "status": "finished",
            "updates": 100 * evaluations,
            "epochs": float(epochs),
            "parameters": 1234,
            "last": scores,
            "best": scores,
            "test": scores,
            "references": {},
        }
        (folder / "result.json").write_text(json.dumps({**content, **(result or {})}))
    return folder


def write_runs(
    root: Path, scores: Mapping[str, list[float]], id: str = "plstm/pmnist-256", preset: str = "short", **keywords: Any
) -> None:
    """Runs of several models with these scores, seeds from 1 on."""
    for model, values in scores.items():
        for seed, score in enumerate(values, 1):
            write_run(root, id, preset, model, seed, score=score, **keywords)
