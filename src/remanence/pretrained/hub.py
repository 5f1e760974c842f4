"""Access to the Hugging Face Hub through huggingface_hub."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..version import DISTRIBUTION
from .folder import CONFIG, WEIGHTS

NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def local_folder(place: str | Path, **how: Any) -> Path:
    """The folder itself, or the local copy of a model on the Hub.

    Args:
        place: A folder, or `organisation/name` on the Hub.
        how: Keyword arguments of `huggingface_hub.snapshot_download`.
    """
    folder = Path(place).expanduser()
    if folder.exists():
        if not folder.is_dir():
            raise ValueError(f"expected the folder of a saved model, got the file {folder}")
        return folder
    if isinstance(place, Path) or not NAME.fullmatch(place) or place.startswith("."):
        raise ValueError(f"expected the folder of a saved model, got {folder}, which does not exist")
    hub = package(f"the model {place!r}, since there is no such folder")
    if os.environ.get("REMANENCE_OFFLINE") == "1":
        how["local_files_only"] = True
    try:
        return Path(hub.snapshot_download(place, allow_patterns=[CONFIG, WEIGHTS], **how))
    except Exception as error:  # any kind of network error
        problem = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"expected a folder or a model on the Hugging Face Hub, got {place!r} ({type(error).__name__}: {problem})"
        ) from error


def package(wanted_for: str) -> Any:
    """Import huggingface_hub, or raise an error that says how to install it."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            f"expected huggingface_hub for {wanted_for}, got: {error} (pip install '{DISTRIBUTION}[hub]')"
        ) from None
    return huggingface_hub
