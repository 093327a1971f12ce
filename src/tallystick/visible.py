"""Text of other parties for people: each character that draws nothing, or acts, is spelled out.

A terminal acts on control characters; marks of the writing direction and separators change how a
person reads the text around them; and names that look alike must be alike, so what draws nothing is
shown too. The terminal (`terminal/lines.py`) and the HTML report (`report/html.py`) show the same.
"""

from __future__ import annotations

import re
import unicodedata

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
