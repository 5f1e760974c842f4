"""What the page shows of one experiment, as plain data: whoever knows the experiments fills it in."""

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
    "not tested here": "Nothing in these runs says anything about the claim.",
}
"""Every verdict, and what it means."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what these runs say about it."""

    text: str
    verdict: Verdict
    because: str = ""
    """The numbers that decide it, in a sentence."""


@dataclass(frozen=True)
class Section:
    """One experiment under one preset, or something else to show."""

    id: str
    preset: str
    """Empty for what is no experiment: a page of that alone has no overview and no filter."""
    title: str
    source: str = ""
    """The figure or table of the paper it remakes."""
    place: str = ""
    """The folder it was read from."""
    models: Sequence[str] = ()
    done: int = 0
    """Runs that have ended."""
    planned: int = 0
    """Runs the experiment has in full."""
    published: Sequence[str] = ()
    """What was published, in words."""
    claims: Sequence[Claim] = ()
    judged: str = ""
    """What a person wrote about all of it."""
    tables: Sequence[Table] = ()
    """What came out, beside what was published."""
    figures: Sequence[Figure] = ()
    facts: Sequence[tuple[str, str]] = ()
    """What was run: a name and a value in words."""
    runs: Table | None = None
    """Every single run."""
    configurations: Sequence[tuple[str, str]] = ()
    """A name and the text of a file."""
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    """What a reader must know: what is missing, or was left out."""

    @property
    def status(self) -> str:
        """How far it is, in a word or two."""
        if self.planned == 0:
            return "finished"
        return "finished" if self.done >= self.planned else "part" if self.done else "nothing finished"
