"""Verdicts that a person wrote, in a file next to the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..names import lookup
from ..report.section import VERDICTS, Claim, Verdict
from . import text

FILE = "verdicts.yaml"
"""File next to the results with verdicts written by a person, by experiment and preset."""


@dataclass(frozen=True)
class Judgement:
    """Verdicts that a person wrote about an experiment and preset."""

    claims: Sequence[Claim]
    because: str
    conditions: str


def judgements(folder: Path) -> dict[tuple[str, str], Judgement]:
    """Read the verdicts in a results folder, by experiment and preset; empty if there are none."""
    import yaml

    path = folder / FILE
    try:
        written = text.read(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"expected verdicts in {path}, got a file that cannot be read: {problem}") from None
    found = {}
    try:
        for id, presets in (written or {}).items():
            for preset, words in presets.items():
                claims = [
                    Claim(str(one["claim"]), expect_verdict(one["verdict"]), str(one.get("because", "")))
                    for one in words.get("claims", [])
                ]
                found[str(id), str(preset)] = Judgement(
                    claims, str(words.get("because", "")), str(words.get("conditions", ""))
                )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected {path} to hold claims with a claim and a verdict by experiment and preset, got: {error}"
        ) from None
    return found


def expect_verdict(word: object) -> Verdict:
    """Check that a verdict is one of `VERDICTS`."""
    lookup("verdict", str(word), dict.fromkeys(VERDICTS))
    return word  # type: ignore[return-value]
