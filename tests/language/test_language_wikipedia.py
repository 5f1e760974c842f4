"""Cleaning of a Wikipedia dump."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remanence.language import clean

PAGE = """  <page>
    <title>Not this</title>
    <revision>
      <comment>nor this</comment>
      <text xml:space="preserve">{}</text>
    </revision>
  </page>
"""


def article(text):
    return clean(PAGE.format(text).encode())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", " hello world"),
        ("in 1984: a 2nd", " in one nine eight four a two nd"),
        ("caf\u00e9 na\u00efve", " caf na ve"),
        ("[[link]] [[target|shown]]s", " link showns"),
        ("[http://x.org/a?b shown] [http://x.org]", " shown"),
        ("a [[de:Hallo]][[zh-min-nan:X]] b", " a b"),
        ("[[Category:Cats|Sort]]", " cats"),
        ("[[Image:Cat.jpg|thumb|left|200px|A ''black'' cat]]", " a black cat"),
        ("a {{stub}} b {| table | c |} d", " a b d"),
        ("a&lt;ref name=&quot;x&quot;&gt;Source&lt;/ref&gt; b", " a b"),
        ("a &lt;b&gt;bold&lt;/b&gt; &lt;!-- hidden --&gt;", " a bold"),
        ("a &amp;ndash; b &amp;amp; c", " a b c"),
        ("line\n\n== Head ==\n* item", " line head item"),
        ("#REDIRECT [[Other]]", ""),
        ("", ""),
        (" \n123\t", " one two three"),
        ("...", ""),
    ],
)
def test_visible_text_is_kept(text, expected):
    assert article(text) == expected.encode()


def test_articles_are_separated_by_one_space():
    dump = "".join(map(PAGE.format, ("One", "#redirect [[x]]", "", "Two."))).encode()
    assert clean(dump) == b" one two"


def test_a_truncated_dump_keeps_its_last_article():
    whole, broken = PAGE.format("First").encode(), b'<text xml:space="preserve">Second, not fini'
    assert clean(whole + broken) == b" first second not fini"


@given(st.binary())
def test_the_result_has_only_letters_and_single_spaces(noise):
    text = clean(b"<text >" + noise)
    assert set(text) <= set(b" abcdefghijklmnopqrstuvwxyz")
    assert b"  " not in text
    assert not text or (text.startswith(b" ") and not text.endswith(b" "))


def test_without_articles_the_result_is_empty():
    assert clean(b"") == b""
    assert clean(b"<page><title>Title</title></page>") == b""
