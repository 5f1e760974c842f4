"""The report as one self-contained HTML page: no network, no server, no other files."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import files
from ...version import __version__
from ..drawing import drawn
from ..figure import Figure
from ..interactive import interactive, library
from ..look import KNOWN as THEMES
from ..section import VERDICTS, Section

if TYPE_CHECKING:
    from markupsafe import Markup

TITLE = "Experiments and results"
NO_PLOTLY = "Figures are static images: plotly is not installed (pip install 'remanence-rnn[report]')."
NO_FIGURES = "No figures: neither plotly nor matplotlib is installed (pip install 'remanence-rnn[report]')."


def write(sections: Sequence[Section], path: Path, *, title: str = TITLE, introduction: Sequence[str] = ()) -> None:
    """Write the page.

    Args:
        sections: Sections of the page, in order.
        path: HTML file, written atomically.
        title: Title of the page.
        introduction: Paragraphs at the top of the page.

    Raises:
        ImportError: jinja2 is not installed.
    """
    files.write(path, html(sections, title=title, introduction=introduction).encode())


def html(sections: Sequence[Section], *, title: str = TITLE, introduction: Sequence[str] = ()) -> str:
    """The page as an HTML string."""
    from jinja2 import Environment, StrictUndefined

    program = library()
    anchors = anchors_of(sections)
    notes: list[str] = []
    drawings: dict[str, str] = {}
    figures: dict[str, Any] = {}
    for anchor, section in zip(anchors, sections, strict=True):
        for number, figure in enumerate(section.figures):
            name = f"{anchor}-figure-{number + 1}"
            if program is not None:
                figures[name] = interactive(figure)
            else:
                picture = as_picture(figure)
                notes = [NO_PLOTLY if picture else NO_FIGURES]
                drawings[name] = picture
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"script": for_script, "anchor": as_anchor, "code": with_code}
    return environment.from_string(resource("page.html")).render(
        title=title,
        introduction=introduction,
        sections=list(zip(anchors, sections, strict=True)),
        experiments=sum(bool(section.preset) for section in sections),
        tally=tally,
        verdicts=VERDICTS,
        notes=notes,
        drawings=drawings,
        figures=figures,
        themes={name: {"ink": look.ink, "quiet": look.quiet, "grid": look.grid} for name, look in THEMES.items()},
        program=packed(program) if program is not None and figures else "",
        style=resource("page.css"),
        script=resource("page.js"),
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def resource(name: str) -> str:
    """Read a file of this package."""
    return (resources(__package__) / name).read_text("utf-8")


def for_script(data: Any) -> Any:
    """JSON for a script element, escaped so that nothing in it can end the element or start another."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def packed(program: str) -> str:
    """Compress a script to a third (gzip, base64); the page unpacks it for the first figure."""
    return base64.b64encode(gzip.compress(program.encode(), mtime=0)).decode()


def as_picture(figure: Figure) -> str:
    """A figure as a data URL of an SVG image; empty if matplotlib is not installed."""
    try:
        content = drawn(figure, "svg")
    except ImportError:
        return ""
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def tally(section: Section) -> list[tuple[str, int]]:
    """Number of claims per verdict, in the order of `VERDICTS`."""
    count = Counter(claim.verdict for claim in section.claims)
    return [(verdict, count[verdict]) for verdict in VERDICTS if count[verdict]]


def anchors_of(sections: Sequence[Section]) -> list[str]:
    """A unique anchor for every section."""
    found: list[str] = []
    for section in sections:
        first = name = as_anchor(f"{section.id} {section.preset}")
        number = 1
        while name in found:
            number += 1
            name = f"{first}-{number}"
        found.append(name)
    return found


def with_code(words: str) -> Markup:
    """HTML of words in which `these` are code, as in Markdown."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(words))))


def as_anchor(words: str) -> str:
    """Convert text to an anchor of a URL."""
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")
