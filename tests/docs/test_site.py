"""The documentation as a site: it builds without a warning, needs no network, and its API pages are complete."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import remanence

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = sorted(page.stem for page in (DOCS / "api").glob("*.md") if page.stem != "index")
API = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))


@pytest.mark.long
def test_every_guide_is_a_page_and_so_is_the_notebook(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    guides = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert guides | {"tutorials/first_model.html", "reference/cli.html"} <= pages
    assert (site / "tutorials/first_model.ipynb").is_file()


@pytest.mark.long
def test_no_page_loads_anything_from_elsewhere(site):
    loads = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//[^>]*>"""
    )
    for page in site.rglob("*.html"):
        found = [tag.group() for tag in loads.finditer(page.read_text("utf-8")) if "rel=canonical" not in tag.group()]
        assert not found, (page.name, found)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text("utf-8")), sheet.name


@pytest.mark.long
def test_pictures_and_outputs_of_the_notebook_are_on_its_page(site):
    page = (site / "tutorials/first_model.html").read_text("utf-8")
    pictures = re.findall(r"pictures/first_model-\d+\.png", page)
    assert pictures
    assert all((site / "tutorials" / picture).stat().st_size > 1000 for picture in pictures)
    assert "largest difference of any output" in page


@pytest.mark.long
@pytest.mark.parametrize("room", ROOMS)
def test_public_classes_and_functions_of_a_room_are_on_its_api_page(site, room):
    module = importlib.import_module(f"remanence.{room}")
    page = (site / "api" / f"{room}.html").read_text("utf-8")
    described = set(re.findall(r'id="([\w.]+)"', page))
    public = {name for name in module.__all__ if isinstance(vars(module)[name], type | FunctionType)}
    # A function in a file of its own name is described under the name of the file.
    missing = {
        name for name in public if not {f"{module.__name__}.{name}", f"{module.__name__}.{name}.{name}"} & described
    }
    assert not missing


def test_every_room_that_users_import_has_an_api_page():
    import remanence

    rooms = {name for name in remanence.__all__ if type(getattr(remanence, name)) is type(remanence)}
    assert rooms | {"analysis", "data", "experiments", "tasks", "training"} <= set(ROOMS)
    assert all(f"({room}.md)" in API for room in ROOMS)


@pytest.mark.long
@pytest.mark.slow
def test_gate_pictures_are_drawn_for_every_gate(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'remanence-rnn[report]'")
    from remanence import gates

    script = DOCS / "pictures/gates.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"gates.png", *(f"gate_{name}.png" for name in gates.KNOWN)}
    text = (DOCS / "reference/gates.md").read_text("utf-8")
    assert all(f"(../pictures/{name})" in text and (DOCS / "pictures" / name).is_file() for name in drawn)


def is_layer(kind):
    """Whether it is a layer or a single-step cell that users make."""
    bases = (remanence.nn.Recurrent, remanence.nn.RecurrentCell)
    return isinstance(kind, type) and issubclass(kind, bases) and kind not in bases


LAYERS = sorted(name for name, kind in vars(remanence.nn).items() if name.isidentifier() and is_layer(kind))


@pytest.mark.long
@pytest.mark.parametrize("name", LAYERS)
def test_page_of_a_layer_describes_every_argument_and_forward(site, name):
    page = (site / "api" / "nn.html").read_text("utf-8")
    heading = page.index(f'id="remanence.nn.{name}"')
    forward = page.index(f'id="remanence.nn.{name}.forward"')
    described = re.findall(r"<li[^>]*>\s*<b><code>(\w+)</code></b>", page[heading:forward])
    assert described == list(inspect.signature(getattr(remanence.nn, name)).parameters)
    assert ">>>" in re.sub("<[^>]+>", "", page[heading:forward]).replace("&gt;", ">")


@pytest.mark.long
@pytest.mark.parametrize("name", ["LSTM", "GRU", "JANET", "NRU", "PhasedLSTM", "PowerLawLSTM", "ExpRNN", "GORU", "SRU"])
def test_signature_of_a_layer_names_every_argument(site, name):
    page = (site / "api" / "nn.html").read_text("utf-8")
    heading = page.index(f'id="remanence.nn.{name}"')
    shown = re.sub("<[^>]+>", "", page[heading : page.index("</code>", page.index("<pre>", heading))])
    arguments = inspect.signature(getattr(remanence, name)).parameters
    assert re.findall(r"^    (\w+): ", shown, re.MULTILINE) == list(arguments)
