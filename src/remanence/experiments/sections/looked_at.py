"""What a report says of an experiment that looks at trained models, or computes something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...report.section import Section
from ...table import Table
from ..configuration import listed, published_table
from ..registry import IDS, find
from ..schema import PRESETS, Experiment
from ..verdicts import Evidence, Judgement, decide, how_decided
from .facts import source
from .pictures import figures_of
from .run_folders import Key


def of_analysis(key: Key, result: Mapping[str, Any], judgement: Judgement | None) -> Section:
    """An experiment that looks at trained models, or computes something."""
    root, id, preset = key
    known = id in IDS and preset in PRESETS
    experiment = (
        find(id, preset) if known else Experiment(id, id, str(result.get("reproduces", "")), preset, "analysis")
    )
    notes = [] if known else [f"This version of remanence knows no {id} with preset {preset}."]
    tables = [Table(**one) for one in result["tables"]]
    if experiment.published:
        tables.append(replace(published_table(experiment), title="Published"))
    found = Evidence(experiment, {}, data=result.get("found") or {})
    claims = decide(found) if judgement is None else judgement.claims
    looked_at = [f"{one.get('need')} {one.get('model')} seed {one.get('seed')}" for one in result.get("runs") or []]
    stated = [
        ("function", f"{result['function']}: {listed(result.get('arguments') or {})}"),
        ("runs looked at", ", ".join(looked_at)),
        ("choices and deviations", " ".join(experiment.choices)),
    ]
    return Section(
        id=id,
        preset=preset,
        title=experiment.title,
        source=source(experiment),
        models=list(dict.fromkeys(str(one.get("model")) for one in result.get("runs") or [])),
        published=experiment.claims,
        claims=claims,
        judged=how_decided(claims, "") if judgement is None else judgement.because,
        tables=tables,
        figures=figures_of(experiment, root, notes),
        facts=[(name, value) for name, value in stated if value],
        notes=notes,
    )
