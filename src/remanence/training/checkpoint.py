"""The checkpoint format: one safetensors file with all tensors, and plain data as JSON in its metadata.

A digest in the metadata covers every byte of the file including the header; it is computed with zeros in its place.
Equal content gives equal bytes (a single metadata entry, because safetensors does not order several). Nothing is
unpickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import files

FORMAT = 1
KEY = "remanence"
ZEROS = "0" * 64


class DamagedError(ValueError):
    """A damaged file."""


def save(path: Path, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    files.write(path, pack(tensors, plain))


def pack(tensors: dict[str, Tensor], plain: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint."""
    from safetensors.torch import save as to_bytes

    text = json.dumps({"digest": ZEROS, "format": FORMAT, **plain}, sort_keys=True, allow_nan=False)
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    content = to_bytes(own, {KEY: text})
    digest = hashlib.sha256(content).hexdigest()
    place = _place(content)
    return content[:place] + digest.encode() + content[place + len(ZEROS) :]


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and plain data of a checkpoint, after its digest was verified."""
    from safetensors.torch import load as from_bytes

    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"expected a checkpoint, got {path}: {error.strerror}") from None
    plain = _verified(path, content)
    if plain.get("format") != FORMAT:
        raise DamagedError(f"expected a checkpoint of format {FORMAT}, got format {plain.get('format')} in {path}")
    return from_bytes(content), plain


def _verified(path: Path, content: bytes) -> dict[str, Any]:
    try:
        place = _place(content)
        found = content[place : place + len(ZEROS)]
        clean = content[:place] + ZEROS.encode() + content[place + len(ZEROS) :]
        if hashlib.sha256(clean).hexdigest().encode() != found:
            raise DamagedError(f"expected an intact checkpoint, got {path}, whose digest does not match its content")
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        plain: dict[str, Any] = json.loads(header["__metadata__"][KEY])
    except (LookupError, ValueError) as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"expected an intact checkpoint, got {path}, which cannot be read") from None
    return plain


def _place(content: bytes) -> int:
    """The offset of the digest in the file."""
    header = content[: 8 + int.from_bytes(content[:8], "little")]
    found = re.search(rb'\\"digest\\": \\"([0-9a-f]{64})\\"', header)
    if found is None:
        raise LookupError("no digest")
    return found.start(1)
