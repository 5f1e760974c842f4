"""Matt Mahoney's cleaning of a Wikipedia dump, which made text8 (http://mattmahoney.net/dc/textdata, appendix A).

It keeps what a reader of an article sees, in the letters a to z and single blanks: captions and link texts stay, tables
and marks go, digits are spelled. It goes from one ">" to the next, as the original does: what the original does by
accident (an article that speaks of "#redirect" anywhere is left out) is done here too.
"""

from __future__ import annotations

import re

DIGITS = (b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine")
REDIRECT = re.compile(rb"#redirect", re.IGNORECASE)

INVISIBLE: list[tuple[re.Pattern[bytes], bytes]] = [
    (re.compile(rb"<ref[^<]*</ref>"), b""),
    (re.compile(rb"<[^>]*>"), b""),
    (re.compile(rb"\[http:[^\] ]*"), b"["),  # the text of a link to elsewhere stays
    (re.compile(rb"\|thumb", re.IGNORECASE), b""),
    (re.compile(rb"\|left", re.IGNORECASE), b""),
    (re.compile(rb"\|right", re.IGNORECASE), b""),
    (re.compile(rb"\|[0-9]+px", re.IGNORECASE), b""),
    (re.compile(rb"\[\[image:[^\[\]]*\|", re.IGNORECASE), b""),  # up to the caption
    (re.compile(rb"\[\[category:([^|\]]*)[^\]]*\]\]", re.IGNORECASE), rb"[[\1]]"),
    (re.compile(rb"\[\[[a-z-]*:[^\]]*\]\]"), b""),  # the same article in another language
    (re.compile(rb"\[\[[^|\]]*\|"), b"[["),  # the text of a link stays
    (re.compile(rb"\{\{[^}]*\}\}"), b""),
    (re.compile(rb"\{[^}]*\}"), b""),
    (re.compile(rb"[\[\]]"), b""),
    (re.compile(rb"&[^;]*;"), b" "),
]
"""What is not seen, and what takes its place; the order matters."""

TAG = re.compile(rb"<.*>")
LETTERS = bytes(byte if chr(byte).isascii() and chr(byte).islower() else ord(" ") for byte in range(256))
"""For `bytes.translate`: all but a to z becomes a blank."""


def clean(dump: bytes) -> bytes:
    """The text of a dump in XML: words of a to z, each after one blank."""
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
    """What a reader sees of a record, and marks that `spelled` leaves out."""
    text = TAG.sub(b"", record, count=1)
    for code, character in ((b"&amp;", b"&"), (b"&lt;", b"<"), (b"&gt;", b">")):
        text = text.replace(code, character)
    for pattern, instead in INVISIBLE:
        text = pattern.sub(instead, text)
    return text


def spelled(text: bytes) -> bytes:
    """Words in small letters, digits as words, a blank before each."""
    text = text.lower()
    for digit, word in enumerate(DIGITS):
        text = text.replace(b"%d" % digit, b" " + word + b" ")
    words = text.translate(LETTERS).split()
    return b" ".join([b"", *words])
