"""Figures as files: content, layout and colours."""

import itertools
import math
import struct
from dataclasses import replace

import numpy
import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgb

from remanence.report import drawing
from remanence.report.drawing import compose, draw, drawn
from remanence.report.figure import Axis, Figure, Heat, Panel, Reference, Series
from remanence.report.layout import HEIGHT
from remanence.report.look import KNOWN as THEMES
from remanence.report.look import MARKERS, OWNERS, colour_of, look_of, places_of, shade, shown_in_legend

X, Y = Axis("updates"), Axis("accuracy (%)")
both_themes = pytest.mark.parametrize("theme", list(THEMES))


def lines(*names, **options):
    return [Series(name, [0, 1, 2], [number, number + 1, number + 2], **options) for number, name in enumerate(names)]


def figure(*panels, **options):
    return Figure("plstm/copy-200", "A title", panels, "What was published.", **options)


EVERYTHING = figure(
    Panel(
        "lines with a band",
        Axis("updates", low=0),
        Axis("loss", log=True),
        [
            Series("lstm", [1, 2, 3], [1.0, math.nan, 0.1], [0.9, math.nan, 0.0], [1.1, math.nan, 0.2]),
            Series("plstm", [1, 2, 3], [0.5, 0.0, 0.01]),  # zero has no logarithm
            Series("lstm, bound", [1, 3], [1.0, 0.1], dashed=True, like="lstm"),
            Series("lstm, seed", [1, 3], [1.0, 0.1], faint=True, like="lstm"),
        ],
        references=[Reference(0.3, "chance"), Reference(2, "signal", "x")],
    ),
    Panel(
        "points and bars",
        Axis("place", ticks=[(0, "a rather long label"), (1, "another long label"), (2, "a third long label")]),
        Axis("count"),
        [
            Series("bars", [0, 1, 2], [3, 1, 2], [2, 0, 1], [4, 2, 3], mark="bars"),
            Series("points", [0, 1, 2], [1, 2, None], mark="points"),
            Series("both", [0, 1], [1.5, 2.5], [1, 2], [2, 3], mark="line and points"),
            Series("area", [0, 2], [0.5, 0.7], mark="area"),
        ],
        note="One sentence under the panel that is long enough to be broken into at least two lines of text.",
    ),
    Panel(
        "a map",
        Axis("words"),
        Axis("units"),
        heat=Heat([[0, 0.5, 1], [0.2, None, 0.1]], "forget value", 0, 1, rows=["slow", ""], columns=["a", "", "c"]),
        references=[Reference(1, "signal", "x")],
    ),
    Panel("steps", X, Y, [Series(f"p = {p}", [0, 1], [p, p], shade=p) for p in (0, 0.5, 1)]),
    note="How to read all panels: $ is a dollar, $x^2$ no formula.",
    columns=2,
)


# Files.


@pytest.mark.parametrize(("theme", "format"), [("light", "png"), ("dark", "svg")])
def test_everything_a_figure_may_have_is_drawn_on_the_paper_of_the_theme(tmp_path, theme, format):
    path = tmp_path / f"figure.{format}"
    draw(EVERYTHING, path, theme, resolution=60)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG" if format == "png" else b"<?xml")
    assert list(tmp_path.iterdir()) == [path]
    if format == "svg":
        assert f"fill: {THEMES[theme].paper.lower()}" in content.decode()


@pytest.mark.parametrize("format", drawing.FORMATS)
def test_the_same_figure_gives_the_same_file_and_another_theme_another(format):
    one = figure(Panel("", X, Y, lines("lstm", "plstm")))
    first, second, dark = (drawn(one, format, theme, resolution=50) for theme in ("light", "light", "dark"))
    assert first == second != dark


def test_a_png_has_the_size_of_its_panels():
    def size(one):
        return struct.unpack(">II", drawn(one, "png", resolution=50)[16:24])

    panel = Panel("", X, Y, lines("lstm"))
    two, four = size(figure(panel, panel, columns=2)), size(figure(*[panel] * 4, columns=2))
    assert two[0] == four[0]
    assert four[1] - two[1] == pytest.approx(50 * HEIGHT, abs=2)


def test_a_panel_with_nothing_to_see_is_drawn_empty():
    nothing = [Series("lstm", [1, 2], [math.nan, None]), Series("plstm", [], []), Series("zero", [1, 2], [0, 0])]
    log = Axis("loss", log=True)
    assert drawn(figure(Panel("", X, log, nothing), Panel("", log, Y, nothing), Panel("", X, Y)), "png", resolution=40)


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.PNG"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="expected format png or svg, got"):
        draw(EVERYTHING, tmp_path / name)


def test_an_unknown_theme_and_a_figure_without_panels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected theme to be one of light, dark, got 'grey'"):
        draw(EVERYTHING, tmp_path / "figure.png", "grey")
    with pytest.raises(ValueError, match=r"expected a figure with panels, got plstm/copy-200"):
        draw(figure(), tmp_path / "figure.png")


# Where things stand.


def boxes(one, theme="light"):
    """Boxes of title, text below, legend and every panel with its labels, in pixels."""
    made = compose(one, theme)
    made.set_dpi(100)
    made.draw_without_rendering()
    texts = [text.get_window_extent() for text in made.texts]
    legends = [legend.get_window_extent() for legend in made.legends]
    return made.bbox, texts, legends, [axes.get_tightbbox() for axes in made.axes]


LONG = "a title with many words that would not fit on one line of any page " * 3
CASES = {
    "everything": EVERYTHING,
    "one panel": figure(Panel("", X, Y, lines("lstm", "plstm"))),
    "long words": replace(EVERYTHING, title=LONG, statement=LONG, note=LONG),
    "many names": figure(
        *[Panel("", X, Y, lines(*(f"a model with name number {number}" for number in range(12))))] * 2
    ),
    "three columns": replace(EVERYTHING, columns=3),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_overlaps_and_everything_is_on_the_page(case):
    page, texts, legends, panels = boxes(CASES[case])
    for box in (*texts, *legends, *panels):
        assert page.x0 - 1 <= box.x0
        assert box.x1 <= page.x1 + 1
        assert page.y0 - 1 <= box.y0
        assert box.y1 <= page.y1 + 1
    for first, second in itertools.combinations([*texts, *legends], 2):
        assert not first.overlaps(second)
    for around, panel in itertools.product([*texts, *legends], panels):
        assert not around.overlaps(panel)


def test_no_text_is_small():
    for text in compose(EVERYTHING).findobj(lambda artist: hasattr(artist, "get_fontsize")):
        if text.get_text():
            assert text.get_fontsize() >= 8


def test_the_legend_has_every_name_once_and_none_for_a_single_one():
    panel = Panel("", X, Y, [*lines("lstm", "plstm"), *lines("other", like="lstm"), *lines("seed", faint=True)])
    one = figure(panel, panel)
    assert [series.name for series in shown_in_legend(one)] == ["lstm", "plstm"]
    (legend,) = compose(one).legends
    assert [text.get_text() for text in legend.get_texts()] == ["lstm", "plstm"]
    assert compose(figure(Panel("", X, Y, lines("lstm")))).legends == []


def test_a_single_seed_with_one_score_is_a_point():
    def markers(count):
        thin = Series("seed", list(range(count)), [1.0] * count, faint=True, like="lstm")
        (line,) = compose(figure(Panel("", X, Y, [thin]))).axes[0].lines
        return line.get_marker()

    assert markers(1) == "."
    assert markers(2) == "None"


def test_words_of_axes_and_what_was_published_are_there():
    made = compose(EVERYTHING)
    first = made.axes[0]
    assert (first.get_xlabel(), first.get_ylabel(), first.get_title(loc="left")) == (
        *("updates", "loss"),
        "lines with a band",
    )
    assert first.get_yscale() == "log"
    assert any("Published: What was published." in text.get_text() for text in made.texts)
    assert {"chance", "signal"} <= {text.get_text() for text in first.texts}


def test_rows_of_a_map_go_down_and_missing_values_stay_empty():
    made = compose(EVERYTHING)
    (axes,) = (one for one in made.axes if one.get_title(loc="left") == "a map")
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["slow"]
    (mesh,) = axes.collections
    values = mesh.get_array()
    assert numpy.ma.getmaskarray(values).sum() == 1
    assert values[0, 2] == 1


def test_numbers_in_a_series_are_those_on_the_page():
    (axes,) = compose(figure(Panel("", X, Y, lines("lstm", "plstm")))).axes
    drawn_lines = [line.get_ydata().tolist() for line in axes.lines]
    assert drawn_lines == [[0, 1, 2], [1, 2, 3]]


# Colours.


def test_a_name_has_one_colour_in_all_panels_and_some_have_it_in_all_figures():
    one = figure(Panel("", X, Y, lines("refine", "own", "plstm")), Panel("", X, Y, lines("plstm", "other", "own")))
    places = places_of(one)
    assert len(set(places.values())) == len(places) == 4
    assert places["plstm"] == OWNERS["plstm"]
    assert places_of(figure(Panel("", X, Y, lines("plstm"))))["plstm"] == places["plstm"]
    like = Series("bound", [0], [0], like="plstm")
    assert colour_of(like, places, look_of("dark")) == THEMES["dark"].colours[OWNERS["plstm"]]


def test_more_names_than_colours_still_have_one():
    places = places_of(figure(Panel("", X, Y, lines(*map(str, range(20))))))
    assert set(places.values()) == set(range(len(THEMES["light"].colours)))


def luminance(colour):
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@both_themes
def test_text_and_lines_stand_out_from_the_paper(theme):
    look = THEMES[theme]
    assert contrast(look.ink, look.paper) > 7
    assert contrast(look.quiet, look.paper) > 4.5
    for colour in look.colours:
        assert contrast(colour, look.paper) > 2.6
    for place in numpy.linspace(0, 1, 11):
        assert contrast(shade(place, look.shades), look.paper) > 2


# How colours look to others: matrices for linear RGB, severity 1 (Machado, Oliveira & Fernandes 2009).
VISIONS = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(linear):
    """CIE Lab from linear RGB."""
    to_xyz = numpy.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (to_xyz @ numpy.clip(linear, 0, 1)) / to_xyz.sum(1)
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return numpy.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@both_themes
@pytest.mark.parametrize("vision", ["usual", *VISIONS])
def test_the_first_seven_colours_are_told_apart_with_every_kind_of_colour_vision(theme, vision):
    matrix = numpy.array(VISIONS.get(vision, numpy.eye(3)))
    seen = []
    for colour in THEMES[theme].colours[:7]:
        parts = numpy.array(to_rgb(colour))
        linear = numpy.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        seen.append(lab(matrix @ linear))
    for first, second in itertools.combinations(seen, 2):
        assert numpy.linalg.norm(first - second) > 10  # a difference of about 2 is just seen


def test_every_colour_has_a_marker_of_its_own_for_print_in_grey():
    assert len(set(MARKERS)) == len(MARKERS) == len(THEMES["light"].colours) == len(THEMES["dark"].colours)


def test_a_scale_begins_and_ends_with_its_own_colours():
    scale = ("#000000", "#101010", "#FFFFFF")
    assert [shade(place, scale) for place in (-1, 0, 0.25, 0.5, 1, 2)] == [
        *("#000000", "#000000", "#080808", "#101010", "#FFFFFF", "#FFFFFF")
    ]


def test_a_picture_with_few_colours_is_the_same_picture_and_smaller(tmp_path):
    image = pytest.importorskip("PIL.Image")
    every, few = tmp_path / "every.png", tmp_path / "few.png"
    draw(EVERYTHING, every, resolution=60)
    draw(EVERYTHING, few, resolution=60, colours=32)
    assert few.stat().st_size < every.stat().st_size / 2
    with image.open(every) as one, image.open(few) as other:
        assert len(other.convert("RGB").getcolors()) <= 32 < len(one.convert("RGB").getcolors(1 << 24))
        apart = numpy.asarray(one.convert("RGB"), float) - numpy.asarray(other.convert("RGB"), float)
    assert abs(apart).mean() < 4  # of 255
