"""Hooks of mkdocs: convert the notebook to a page, generate the CLI reference, complete the API pages.

A full notebook converter with its templates would be the largest package in the environment. The page needs only the
text and code of the cells, the printed output and the plots.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import cli_reference

NOTEBOOK = "tutorials/first_model.ipynb"
LINK = re.compile(r"(\]\([\w./-]*first_model)\.ipynb\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages: the notebook with its plots, and the CLI reference. The notebook can be downloaded."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text("utf-8"))
    text, pictures = as_page(notebook)
    files.append(File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=text))
    for name, picture in pictures.items():
        files.append(File.generated(config, f"tutorials/{name}", content=picture))
    files.append(File.generated(config, "reference/cli.md", content=cli_reference.page()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Link to the page of the notebook instead of the file. Complete the API pages."""
    if page.file.src_uri.startswith("api/"):
        return re.sub(r"^::: (remanence\.\w+)$", lambda found: with_namesakes(found[1]), markdown, flags=re.MULTILINE)
    return LINK.sub(r"\1.md)", markdown)


def with_namesakes(package: str) -> str:
    """The directive of a package, and one for every public function with the same name as its file.

    `from .record import record` in the package `nn` makes `nn.record` both a module and a function, and mkdocstrings
    picks the module.
    """
    module = importlib.import_module(package)
    folder = Path(str(module.__file__)).parent
    namesakes = [name for name in module.__all__ if (folder / f"{name}.py").is_file() and callable(vars(module)[name])]
    options = "    options: {{heading_level: 3, heading: '{0}', toc_label: '{0}'}}"
    return "\n\n".join(
        [f"::: {package}", *(f"::: {package}.{name}.{name}\n{options.format(name)}" for name in namesakes)]
    )


def as_page(notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its plots by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(fenced("python", source))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"pictures/first_model-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![The plot of the cell above]({name})")
            else:
                parts.append(fenced("text", "".join(output.get("text", data.get("text/plain", [])))))
    return "\n\n".join(parts) + "\n", pictures


def fenced(language: str, text: str) -> str:
    """A fenced code block."""
    return f"```{language}\n{text.rstrip()}\n```"
