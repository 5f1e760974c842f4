"""Text that a terminal shows and does not obey."""

from __future__ import annotations

KEPT = "\n\t"


def printable(text: str) -> str:
    r"""Text with control characters written out, such as the escape in a name that somebody else chose: \x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in KEPT else ascii(one)[1:-1] for one in text)
