"""What mkdocs does besides: the tutorial notebook becomes a page, and functions in files of their own name are found.

A converter of notebooks with its templates would be the largest thing in the environment; a page needs what a cell
says, its code, the text it printed and the pictures it drew.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NOTEBOOK, PAGE = "tutorial.ipynb", "tutorial.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the notebook and its pictures. The notebook itself is there to be downloaded."""
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text("utf-8"))
    text, pictures = as_page(notebook)
    files.append(File.generated(config, PAGE, content=text))
    for name, picture in pictures.items():
        files.append(File.generated(config, name, content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Elsewhere than on a site a link to the tutorial is one to the notebook. API pages get what they would miss."""
    if page.file.src_uri == PAGE:
        return markdown
    if page.file.src_uri.startswith("api/"):
        return re.sub(r"^::: (remanence\.\w+)$", lambda found: with_namesakes(found[1]), markdown, flags=re.MULTILINE)
    return markdown.replace(f"]({NOTEBOOK})", f"]({PAGE})")


def with_namesakes(room: str) -> str:
    """The line that describes a room, and one for every public function that has the name of its file.

    `from .record import record` in a room `nn` leaves two things called `nn.record`, of which mkdocstrings takes the
    file.
    """
    module = importlib.import_module(room)
    folder = Path(str(module.__file__)).parent
    namesakes = [name for name in module.__all__ if (folder / f"{name}.py").is_file() and callable(vars(module)[name])]
    options = "    options: {{heading_level: 3, heading: '{0}', toc_label: '{0}'}}"
    return "\n\n".join([f"::: {room}", *(f"::: {room}.{name}.{name}\n{options.format(name)}" for name in namesakes)])


def as_page(notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """A notebook as markdown, and its pictures by the name of their file."""
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
                name = f"pictures/tutorial-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What the cell above draws]({name})")
            else:
                parts.append(fenced("text", "".join(output.get("text", data.get("text/plain", [])))))
    return "\n\n".join(parts) + "\n", pictures


def fenced(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"
