"""The page as a file: complete, self-contained, and safe with hostile text."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import pytest

from remanence.report import page
from remanence.report.figure import Axis, Figure, Panel, Series
from remanence.report.section import VERDICTS, Claim, Section
from remanence.table import Table

pytest.importorskip("jinja2")

NASTY = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>&\"{{ 7 * 7 }}"


def figure(name="plstm"):
    return Figure(
        "a/b", f"Figure of {name}", [Panel("panel", Axis("x"), Axis("y"), [Series(name, [0, 1], [0, 1])])], ""
    )


def section(words="words", **keywords):
    """A section with this text in every field."""
    values = {
        "id": f"paper/{words}",
        "preset": words,
        "title": words,
        "source": words,
        "place": words,
        "models": [words],
        "done": 1,
        "planned": 2,
        "published": [words],
        "claims": [Claim(words, "holds", words)],
        "judged": words,
        "tables": [Table(words, (words, words), [(words, words)], notes=[words])],
        "figures": [figure(words)],
        "facts": [(words, words)],
        "runs": Table("", (words,), [(words,)]),
        "configurations": [(words, words)],
        "commands": [words],
        "notes": [words],
    }
    return Section(**values | keywords)


class Elements(HTMLParser):
    """Names, attributes and texts of all elements."""

    def __init__(self, text):
        super().__init__()
        self.found, self.words, self.inside = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if self.inside and self.inside[-1] not in ("script", "style"):
            self.words.append(data)

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def without_program(text):
    return re.sub(r'(id="program">)[^<]*', r"\1", text)


def test_everything_of_a_section_is_on_the_page():
    shown = section(
        id="plstm/copy-200",
        preset="short",
        title="Copying",
        tables=[Table("scores", ("model", "accuracy"), [("plstm", "98.1 +- 0.3")], notes=["a note"])],
        claims=[Claim(f"claim {number}", verdict, "because") for number, verdict in enumerate(VERDICTS)],
        published=["published words"],
        facts=[("device", "one device")],
        runs=Table("", ("model", "seed"), [("plstm", "7")]),
        configurations=[("plstm", "training:\n  epochs: 3\n")],
        commands=["remanence run plstm/copy-200"],
    )
    text = Elements(page.html([shown], title="Title", introduction=["First words."])).text
    for words in (
        *("Title", "First words.", "plstm/copy-200", "Copying", "98.1 ± 0.3", "a note", "published words", "1 of 2"),
        *("device one device", "epochs: 3", "remanence run plstm/copy-200", "Figure of words", "1 single run"),
        *(f"{verdict} claim {number} because" for number, verdict in enumerate(VERDICTS)),
    ):
        assert words in text


def test_what_is_no_experiment_has_a_page_without_overview_filter_and_presets():
    shown = Section("a model", "", "Its units", tables=[Table("units", ("layer",), [("l0",)])], figures=[figure()])
    parsed = Elements(page.html([shown], title="Units of a model"))
    names = [one["id"] for _, one in parsed.found if "id" in one]
    assert not {"overview", "nothing", "filter"} & set(names)
    assert [one for _, one in parsed.found if one.get("class") == "preset"] == []
    assert parsed.named("h2") == []
    assert "experiment" not in parsed.text
    assert "Setup" not in parsed.text
    for words in ("Units of a model", "Its units.", "l0", "Figure of plstm"):
        assert words in parsed.text


def test_beside_an_experiment_everything_has_a_heading():
    parsed = Elements(page.html([section("one"), section("two", preset="")]))
    assert len(parsed.named("h2")) == 2
    assert "1 experiment." in parsed.text


def test_text_is_text_wherever_it_stands():
    plain, nasty = (Elements(without_program(page.html([section(words)]))) for words in ("words", NASTY))
    assert [name for name, _ in nasty.found] == [name for name, _ in plain.found]
    assert [sorted(attributes) for _, attributes in nasty.found] == [
        sorted(attributes) for _, attributes in plain.found
    ]
    assert NASTY in nasty.text  # as it was written: not left out, not computed


def test_code_in_a_reason_is_code_and_other_text_stays_text():
    reason = "The preset `paper` of <b>it</b>, and `<i>x</i>`."
    text = page.html([section(judged=reason, claims=[Claim("It is so.", "holds", reason)])])
    expected = "The preset <code>paper</code> of &lt;b&gt;it&lt;/b&gt;, and <code>&lt;i&gt;x&lt;/i&gt;</code>."
    assert text.count(expected) == 2
    assert "<b>" not in text
    assert "<i>x" not in text


def test_data_inside_a_script_cannot_end_it():
    text = page.for_script({"name": NASTY + "\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": NASTY + "\u2028"}


def test_the_page_asks_for_nothing_from_elsewhere():
    text = page.html([section()])
    parsed = Elements(text)
    (policy,) = (one["content"] for one in parsed.named("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    addresses = [one.get(name) for _, one in parsed.found for name in ("src", "href", "action", "data") if name in one]
    assert addresses
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"@import|url\(", page.resource("page.css"))


def test_links_lead_to_sections_also_where_two_have_one_name():
    parsed = Elements(page.html([section("one"), section("one"), section("ONE")]))
    names = [one["id"] for _, one in parsed.found if "id" in one]
    assert len(set(names)) == len(names)
    assert {one["href"].removeprefix("#") for one in parsed.named("a")} <= set(names)
    assert len(parsed.named("section")) == 1 + 3


def test_the_program_is_there_once_and_packed():
    pytest.importorskip("plotly")
    text = page.html([section("one"), section("two")])
    (packed,) = re.findall(r'id="program">([^<]*)', text)
    assert gzip.decompress(base64.b64decode(packed)).decode() == page.library()
    assert len(text) < 3_000_000


def test_a_page_without_figures_carries_no_program():
    text = page.html([section(figures=[])])
    assert 'id="program"' not in text
    assert len(text) < 60_000


def test_without_plotly_figures_are_pictures_and_the_page_says_so(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(page, "library", lambda: None)
    parsed = Elements(page.html([section()]))
    (image,) = parsed.named("img")
    kind, _, content = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b"</svg>" in base64.b64decode(content)
    assert parsed.text.count(page.NO_PLOTLY) == 1


def test_without_anything_that_draws_the_page_says_so(monkeypatch):
    def missing(*_):
        raise ImportError

    monkeypatch.setattr(page, "library", lambda: None)
    monkeypatch.setattr(page, "drawn", missing)
    parsed = Elements(page.html([section()]))
    assert parsed.named("img") == []
    assert page.NO_FIGURES in parsed.text


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "report.html"
    page.write([section(figures=[])], path, title="Ours")
    text = path.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.rstrip().endswith("</html>")
    assert "<title>Ours</title>" in text
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("done", "planned", "status"), [(0, 0, "finished"), (0, 3, "nothing finished"), (2, 3, "part"), (3, 3, "finished")]
)
def test_status_of_a_section(done, planned, status):
    assert section(done=done, planned=planned).status == status
