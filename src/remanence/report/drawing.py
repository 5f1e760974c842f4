"""Draw figures to PNG or SVG files with matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files
from .figure import Figure
from .layout import NORMAL, SMALL, Page
from .look import Look, Theme, look_of, places_of
from .panels import draw_panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FORMATS = ("png", "svg")


def draw(
    figure: Figure, path: Path, theme: Theme = "light", *, resolution: int = 130, colours: int | None = None
) -> None:
    """Write a figure to a file.

    Args:
        figure: The figure to draw.
        path: A .png or .svg file, written atomically. The same figure gives the same bytes.
        theme: "light" or "dark".
        resolution: Resolution of a PNG in dots per inch.
        colours: Palette size of a PNG; 128 colours make the file three times smaller. None for full colour.

    Raises:
        ImportError: matplotlib is not installed.
    """
    content = drawn(figure, expect_format(path.suffix.removeprefix(".")), theme, resolution=resolution)
    if colours is not None and path.suffix == ".png":
        content = with_palette(content, colours)
    files.write(path, content)


def expect_format(name: str) -> str:
    """Refuse a format other than PNG and SVG."""
    if name not in FORMATS:
        raise ValueError(f"expected format {' or '.join(FORMATS)}, got {name!r}")
    return name


def drawn(figure: Figure, format: str, theme: Theme = "light", *, resolution: int = 130) -> bytes:
    """A figure as the bytes of a PNG or SVG file, see `draw`."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context(settings(look_of(theme))):
        # No date and no random ids in an SVG: the same figure gives the same file.
        about = {"Title": f"{figure.id}: {figure.title}"} | ({"Date": None} if format == "svg" else {"Software": None})
        compose(figure, theme).savefig(content, format=format, dpi=resolution, metadata=about)
    return content.getvalue()


def with_palette(content: bytes, colours: int) -> bytes:
    """Reduce a PNG to a palette and drop its metadata."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").quantize(colours).save(small, format="png", optimize=True)
    return small.getvalue()


def compose(figure: Figure, theme: Theme = "light") -> Drawing:
    """A figure as a matplotlib figure, to be saved under the same `settings`."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    look = look_of(theme)
    with matplotlib.rc_context(settings(look)):
        page = Page.of(figure)
        drawing = Drawing(figsize=(page.width, page.height), layout="constrained", facecolor=look.paper)
        page.write(drawing, look)
        grid = drawing.subplots(page.rows, page.columns, squeeze=False).flatten()
        places = places_of(figure)
        for axes, panel in zip(grid, figure.panels, strict=False):
            draw_panel(axes, panel, places, look)
        for axes in grid[len(figure.panels) :]:
            axes.remove()
    return drawing


def settings(look: Look) -> Any:
    """The rcParams of a look."""
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "axes.titlecolor"), look.ink
    )
    return {
        **ink,
        "font.family": "DejaVu Sans",
        "font.size": NORMAL,
        "axes.facecolor": look.paper,
        "axes.titlesize": NORMAL,
        "axes.labelsize": NORMAL,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
        "grid.color": look.grid,
        "grid.linewidth": 0.7,
        "lines.linewidth": 2.0,
        "svg.hashsalt": "remanence",
        "text.parse_math": False,  # a dollar sign in a title is literal
    }
