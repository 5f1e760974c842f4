"""Escaping of control characters for terminals."""

from __future__ import annotations

KEPT = "\n\t"


def printable(text: str) -> str:
    r"""Text with control characters escaped, such as ESC as \x1b in a name from an untrusted file."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in KEPT else ascii(one)[1:-1] for one in text)
