"""The code on all pages: Python blocks run, and `remanence` commands name commands and options that exist."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from page_code import blocks, run

from remanence.experiments.registry import IDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))}
WRITTEN = re.compile(r"README\.md|CONTRIBUTING\.md|docs/(?!(results.*|figures|reproduce)\.md)")
"""Pages that no script writes."""
LANGUAGES = {"python", "bash", "text", "yaml", "diff", "cpp"}
ADDED = {"docs/how-to/add-an-experiment.md": ("own/adding-100",)}
"""Experiments that a page adds."""
WITH_COMMANDS = re.compile(r"docs/(how-to/(deploy|own-data|add-.*)|tutorials/.*|explanation/.*)\.md")
"""Pages whose blocks run together with their commands or files in tests of their own."""
NEEDED = {
    "docs/how-to/run-experiments.md": ["run", "plstm/copy-200", "--preset", "smoke"],
    "docs/how-to/report.md": ["run", "plstm/copy-200", "--preset", "smoke", "--models", "plstm", "--seeds", "1"],
}
"""Commands that have to run before the blocks of a page."""
BY_HAND = re.compile(r"docs/(api/|how-to/(report|run-experiments)\.md)")
"""Pages that CI has no time for."""
PACKAGES = {"docs/how-to/report.md": ["jinja2"], "docs/figures.md": ["matplotlib"]}


RUNNABLE = {
    name
    for name, path in PAGES.items()
    if blocks(path.read_text("utf-8"), "python") and not WITH_COMMANDS.fullmatch(name)
}


def prepare(name, folder):
    """Make what the blocks of a page need."""
    if name in NEEDED:
        run(folder, "-m", "remanence", *NEEDED[name])
    (folder / "results").symlink_to(ROOT / "results")
    if name == "docs/reference/corpora.md":
        (folder / "letters").mkdir()
        for year in (1898, 1899, 1900, 1901):
            (folder / "letters" / f"{year}.txt").write_text("dear friend I write to you\nyour friend\n" * 9)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if BY_HAND.match(name) else ()) for name in sorted(RUNNABLE)]
)
def test_python_blocks_run(name, tmp_path, real_data):
    for package in PACKAGES.get(name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'remanence-rnn[report]'")
    prepare(name, tmp_path)
    with real_data("ptb") if name == "docs/reference/corpora.md" else nullcontext():
        run(tmp_path, "-c", "\n".join(blocks(PAGES[name].read_text("utf-8"), "python")))


@pytest.mark.parametrize("name", sorted(name for name in PAGES if WRITTEN.match(name)))
def test_every_block_has_a_language(name):
    fences = re.findall(r"^```(.*)$", PAGES[name].read_text("utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= LANGUAGES
    assert set(fences[1::2]) <= {""}


def commands(text):
    """The `remanence` commands of a page, in blocks and in the text, as lists of words."""
    lines = [line for block in blocks(text, "(?:bash|text)?") for line in block.replace("\\\n", "").splitlines()]
    inline = re.findall(r"`(remanence [a-z][^`]*)`", text)
    for line in (*lines, *inline):
        if found := re.match(r"(?:torchrun .*-m )?remanence ([a-z].*)", line):
            yield re.sub(r"\s#.*", "", found[1]).replace("[", " ").replace("]", " ").split()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_commands_have_options_that_exist(name, docs_script):
    script = docs_script("cli_reference")
    known = {
        command: {word.strip("`,") for one in script.parameters(function) for word in one.name.split()}
        for command, function in script.KNOWN.items()
    }
    for command, *words in commands(PAGES[name].read_text("utf-8")):
        assert command in known
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known[command] | {"--help"}, f"remanence {command} {' '.join(words)}"
        if command in ("run", "show") and words and re.fullmatch(r"(plstm|fastgate|mts|own)/[\w.-]+", words[0]):
            assert words[0] in (*IDS, *ADDED.get(name, ()))
