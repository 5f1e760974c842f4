"""Matt Mahoney's clean-up of a Wikipedia dump, which produced text8 (http://mattmahoney.net/dc/textdata, appendix A).

It keeps the visible text of an article as letters a to z and single spaces: captions and link texts stay, tables and
markup are removed, digits are spelled out. Like the original it reads from one ">" to the next, and it reproduces the
original's quirks (an article that mentions "#redirect" anywhere is skipped).
"""

from __future__ import annotations

import re

DIGITS = (b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine")
REDIRECT = re.compile(rb"#redirect", re.IGNORECASE)

INVISIBLE: list[tuple[re.Pattern[bytes], bytes]] = [
    (re.compile(rb"<ref[^<]*</ref>"), b""),
    (re.compile(rb"<[^>]*>"), b""),
    (re.compile(rb"\[http:[^\] ]*"), b"["),  # keep the text of an external link
    (re.compile(rb"\|thumb", re.IGNORECASE), b""),
    (re.compile(rb"\|left", re.IGNORECASE), b""),
    (re.compile(rb"\|right", re.IGNORECASE), b""),
    (re.compile(rb"\|[0-9]+px", re.IGNORECASE), b""),
    (re.compile(rb"\[\[image:[^\[\]]*\|", re.IGNORECASE), b""),  # up to the caption
    (re.compile(rb"\[\[category:([^|\]]*)[^\]]*\]\]", re.IGNORECASE), rb"[[\1]]"),
    (re.compile(rb"\[\[[a-z-]*:[^\]]*\]\]"), b""),  # links to other languages
    (re.compile(rb"\[\[[^|\]]*\|"), b"[["),  # keep the text of a link
    (re.compile(rb"\{\{[^}]*\}\}"), b""),
    (re.compile(rb"\{[^}]*\}"), b""),
    (re.compile(rb"[\[\]]"), b""),
    (re.compile(rb"&[^;]*;"), b" "),
]
"""Invisible markup and its replacement; the order matters."""

TAG = re.compile(rb"<.*>")
LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).islower() else ord(" ") for byte in range(256))
"""For `bytes.translate`: everything except a to z becomes a space."""


def clean(dump: bytes) -> bytes:
    """The text of an XML dump: words of a to z, each preceded by one space.

    Args:
        dump: A Wikipedia dump, or the beginning of one.
    """
    found = []
    inside = False
    *closed, rest = dump.split(b">")
    for record in (*(part + b">" for part in closed), rest):
        if b"<text " in record:
            inside = True
        if inside and REDIRECT.search(record):
            inside = False
        if inside:
            found.append(spelled(visible(record)))
            inside = b"</text>" not in record
    return b"".join(found)


def visible(record: bytes) -> bytes:
    """The visible text of a record, with punctuation that `spelled` removes."""
    text = TAG.sub(b"", record, count=1)
    for code, character in ((b"&amp;", b"&"), (b"&lt;", b"<"), (b"&gt;", b">")):
        text = text.replace(code, character)
    for pattern, instead in INVISIBLE:
        text = pattern.sub(instead, text)
    return text


def spelled(text: bytes) -> bytes:
    """Lower-case words, with digits spelled out, each preceded by a space."""
    text = text.lower()
    for digit, word in enumerate(DIGITS):
        text = text.replace(b"%d" % digit, b" " + word + b" ")
    words = text.translate(LETTERS).split()
    return b" ".join([b"", *words])
