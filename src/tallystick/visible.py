"""Texts and objects for people: each character of another party's text that draws nothing, or acts,
is spelled out; an object of the Python interface is one line, and in a notebook a table.

A terminal acts on control characters; marks of the writing direction and separators change how a
person reads the text around them; and names that look alike must be alike, so what draws nothing is
shown too. The terminal (`terminal/lines.py`) and the HTML report (`report/html.py`) show the same.

Names and texts in them may be another party's, so both forms spell out what draws nothing or acts,
and the table escapes the rest.
"""

from __future__ import annotations

import html
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping

# Draw nothing, or a blank, though Unicode counts them as letters, marks or symbols: joiners and
# fillers (Hangul, Khmer, Mongolian, Khitan), variation selectors, the empty Braille cell, the null
# notehead. The default-ignorable characters of Unicode 15.1 are these, and those of the categories.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
# Control, format, surrogate, private, unassigned; separators of lines and of paragraphs.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, keep: str = "") -> str:
    """`text` with every such character but those of `keep` as \\xNN, \\uNNNN or \\UNNNNNNNN."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _is_unseen(c) else _spelled(ord(c)) for c in text)


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _CATEGORIES or _BLANK.match(char) is not None


def _spelled(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_MOST = 400  # characters of one value: an object is looked at, not read
_LEAD = 12  # hexadecimal digits of a digest in a line


def value_text(value: object) -> str:
    """A value for people: bytes as hexadecimal, truth as yes and no, numbers with separators."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int):
        return f"{value:,}"
    text = visible(str(value))
    return text if len(text) <= _MOST else text[:_MOST] + "…"


class Tabled(ABC):
    """An object that says its `title` and its facts in a line, and in a notebook as a table."""

    @abstractmethod
    def facts_for_people(self) -> tuple[str, Mapping[str, object]]:
        """The title, and the facts by their names."""

    def __repr__(self) -> str:
        title, facts = self.facts_for_people()
        told = (f"{visible(name)} {_brief(value)}" for name, value in facts.items())
        return f"<{visible(title)}: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        title, facts = self.facts_for_people()
        rows = "".join(
            f"<tr><th>{_escaped(visible(name))}</th><td>{_escaped(value_text(value))}</td></tr>"
            for name, value in facts.items()
        )
        return f"<table><caption>{_escaped(visible(title))}</caption>{rows}</table>"


def _brief(value: object) -> str:
    """A value in a line, digests by their first digits."""
    return value.hex()[:_LEAD] if isinstance(value, bytes) else value_text(value)


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
