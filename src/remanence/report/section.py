"""A section of the report as plain data; `experiments.sections` fills it in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..table import Table
from .figure import Figure

Verdict = Literal["holds", "does not hold", "open", "not tested here"]
VERDICTS: dict[Verdict, str] = {
    "holds": "These runs confirm the claim.",
    "does not hold": "These runs contradict the claim.",
    "open": "These runs do not decide the claim.",
    "not tested here": "These runs do not test the claim.",
}
"""Every verdict and its meaning."""


@dataclass(frozen=True)
class Claim:
    """A claim of a paper with the verdict from these runs."""

    text: str
    verdict: Verdict
    because: str = ""
    """The numbers that decide it, in one sentence."""


@dataclass(frozen=True)
class Section:
    """One experiment and preset, or other content of a page."""

    id: str
    preset: str
    """Empty for content other than experiments: a page without experiments has no overview and no filter."""
    title: str
    source: str = ""
    """The figure or table of the paper that it reproduces."""
    place: str = ""
    """The folder it was read from."""
    models: Sequence[str] = ()
    done: int = 0
    """Number of finished runs."""
    planned: int = 0
    """Number of runs of the whole experiment."""
    published: Sequence[str] = ()
    """The published claims."""
    claims: Sequence[Claim] = ()
    judged: str = ""
    """Comment by a person on the whole section, or how the verdicts were decided."""
    tables: Sequence[Table] = ()
    """Results next to the published numbers."""
    figures: Sequence[Figure] = ()
    facts: Sequence[tuple[str, str]] = ()
    """Names and values that describe the runs."""
    runs: Table | None = None
    """Every single run."""
    configurations: Sequence[tuple[str, str]] = ()
    """Names and texts of configuration files."""
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    """Warnings, such as missing runs or files that could not be read."""

    @property
    def status(self) -> str:
        """Progress in a word or two."""
        if self.planned == 0:
            return "finished"
        return "finished" if self.done >= self.planned else "part" if self.done else "nothing finished"
