"""The folder of a saved model.

* config.json: class and arguments, with the version of this format; written last, so that it marks a complete folder
* model.safetensors: weights
* README.md: the model card; an existing one is kept
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import files
from ..version import __version__
from .arguments import as_json

FORMAT = 1
LIBRARY = "remanence"
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of pickled weights, which can run code when they are loaded."""


def write(folder: Path, description: Mapping[str, Any], weights: Mapping[str, Tensor], card: str) -> None:
    """Write a model. Until that is done the folder has no configuration, which marks it as incomplete."""
    from safetensors.torch import save as to_bytes

    about = {"library": LIBRARY, "format": FORMAT, "version": __version__, **description}
    content = as_json(about, indent=2) + "\n"
    if (folder / CONFIG).exists() and not is_pretrained(folder):
        raise ValueError(f"expected a folder for a remanence model, got {folder} with the {CONFIG} of another library")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)
        files.write(folder / WEIGHTS, to_bytes({name: own(weight) for name, weight in weights.items()}))
        if not (folder / CARD).exists():
            files.write(folder / CARD, card.encode())
        files.write(folder / CONFIG, content.encode())
    except OSError as error:
        raise ValueError(f"expected to write {folder}, got: {error.strerror or error}") from error


def own(weight: Tensor) -> Tensor:
    """A contiguous copy of a weight on the CPU, if it is not one already."""
    return weight.detach().cpu().contiguous()


def is_pretrained(folder: Path) -> bool:
    """Whether a folder holds a model of this package, according to its config.json.

    Args:
        folder: The folder.

    Examples:
        >>> from pathlib import Path
        >>> import remanence as rm
        >>> rm.LSTM(8, 32).save_pretrained("my-lstm")
        >>> rm.pretrained.is_pretrained(Path("my-lstm"))
        True
    """
    try:
        return bool(_configuration(folder)["library"] == LIBRARY)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read description and weights of a model that `write` wrote."""
    from safetensors import SafetensorError, safe_open

    path = folder / CONFIG
    try:
        about = _configuration(folder)
    except OSError as error:
        raise ValueError(f"expected a saved model with {CONFIG}, got {folder}: {error.strerror or error}") from None
    except ValueError:
        raise ValueError(f"expected JSON in {path}, got a file that cannot be read") from None
    if not isinstance(about, dict) or about.get("library") != LIBRARY:
        raise ValueError(f"expected a model written by remanence's save_pretrained, got {path} of another library")
    if about.get("format") != FORMAT:
        raise ValueError(
            f"expected a model of format {FORMAT}, got format {about.get('format')!r} in {path}, "
            f"which remanence {about.get('version')} wrote"
        )
    if not (folder / WEIGHTS).is_file():
        others = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
        got = f"{', '.join(others)}: pickles, which are never loaded" if others else "none"
        raise ValueError(f"expected weights in {folder / WEIGHTS}, got {got}")
    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            # Copy out of the memory-mapped file, which may be replaced.
            return about, {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  not a mapping
    except (SafetensorError, OSError) as error:
        raise ValueError(f"expected weights as safetensors in {folder / WEIGHTS}, got: {error}") from None


def _configuration(folder: Path) -> Any:
    try:
        return json.loads((folder / CONFIG).read_text("utf-8"))
    except RecursionError:
        raise ValueError from None
