"""A language model in one file: tensors as safetensors, the rest as JSON in its header. Nothing is unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import files
from ..language import Vocabulary
from ..pretrained import plain, restored
from .text import Words

FORMAT = 1
KEY = "remanence.language_model"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}


def save(
    path: Path,
    weights: dict[str, Tensor],
    arguments: dict[str, Any],
    words: int,
    vocabulary: Words | None,
    dtype: torch.dtype,
) -> None:
    """Write a model atomically."""
    from safetensors.torch import save as to_bytes

    about = {
        "format": FORMAT,
        "words": words,
        "dtype": str(dtype).removeprefix("torch."),
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "vocabulary": plain_vocabulary(vocabulary),
    }
    own = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    try:
        files.write(path, to_bytes(own, {KEY: json.dumps(about, sort_keys=True, allow_nan=False)}))
    except OSError as error:
        raise ValueError(f"expected to write {path}, got: {error.strerror or error}") from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], int, Words | None, torch.dtype]:
    """Read weights, arguments, number of words, vocabulary and dtype of a model that `save` wrote."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ValueError(f"expected the file of a language model, got {path}, which does not exist")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
            if about["format"] != FORMAT:
                raise ValueError(
                    f"expected a language model of format {FORMAT}, got format {about['format']} in {path}"
                )
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is not a mapping
            arguments = {name: restored(value) for name, value in about["arguments"].items()}
            return weights, arguments, int(about["words"]), vocabulary_of(about["vocabulary"]), DTYPES[about["dtype"]]
    except (SafetensorError, LookupError, json.JSONDecodeError):
        raise ValueError(f"expected a language model written by save(), got {path}, which has none") from None


def plain_vocabulary(vocabulary: Words | None) -> dict[str, Any] | None:
    """A vocabulary of this package as plain data; None for any other, which has to be passed to `load` again."""
    return vocabulary.to_dict() if isinstance(vocabulary, Vocabulary) else None


def vocabulary_of(about: dict[str, Any] | None) -> Words | None:
    """The inverse of `plain_vocabulary`."""
    return None if about is None else Vocabulary.from_dict(about)
