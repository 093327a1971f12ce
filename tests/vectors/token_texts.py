"""Texts for tokenizers: of a play, of programs, of many scripts, and what tokenizers stumble over.

Their seed makes them, so somebody else may make others. Those that are frozen with their token ids
are in vectors/tokens.
"""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Callable

Text = Callable[[random.Random], str]

# By name: the first and the last character of a stretch.
_SCRIPTS = {
    "latin": (0x41, 0x24F), "ipa": (0x250, 0x2AF), "combining": (0x300, 0x36F),
    "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "armenian": (0x531, 0x58A),
    "hebrew": (0x591, 0x5F4), "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F),
    "bengali": (0x980, 0x9FE), "tamil": (0xB82, 0xBFA), "thai": (0xE01, 0xE5B),
    "tibetan": (0xF00, 0xFDA), "myanmar": (0x1000, 0x109F), "georgian": (0x10A0, 0x10FF),
    "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x137C), "cherokee": (0x13A0, 0x13FD),
    "khmer": (0x1780, 0x17F9), "mongolian": (0x1800, 0x18AA), "marks": (0x2010, 0x205E),
    "numbers": (0x2070, 0x218B), "arrows": (0x2190, 0x22FF), "boxes": (0x2500, 0x27BF),
    "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FA5), "hangul": (0xAC00, 0xD7A3),
    "wide": (0xFF01, 0xFFEE), "gothic": (0x10330, 0x1034A), "letters": (0x1D400, 0x1D7FF),
    "emoji": (0x1F300, 0x1F6C5), "han 2": (0x20000, 0x2A6D6),
}  # fmt: skip
_SPACES = [" ", " ", " ", " ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\x85", "\xa0",
           "\u1680", "\u2003", "\u2009", "\u2028", "\u202f", "\u3000", "\u200b",
           "\ufeff"]  # fmt: skip
_SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<empty_output>",
    "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|begin_of_text|>", "<|eot_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "[INST]", "[/INST]", "<<SYS>>", "<0x0A>", "<0xFF>",
    "<fim_prefix>", "<|fim_middle|>", "<|box_start|>", "<think>", "</think>", "<tool_call>",
]  # fmt: skip
_ODD = ["\u2581", "\u0120", "\u010a", "\u0100", "Ġhello", "▁the", "##ing", "\\n", "&lt;", "%20"]
_ENGLISH = (
    "I'm you're he's we've they'll she'd don't I'M YOU'RE HE'S WE'VE THEY'LL it’s 'tis "
    "'twas o'clock "
    'naïve café Straße ﬁne İstanbul ſharp K (and) [so] {on} "or" e.g. i.e. etc... --- -- ? ! ?! '
    "http://example.com/a?b=c&d#e foo@bar.baz C:\\path\\to /usr/bin snake_case camelCase HTMLParser"
).split()


def _word(r: random.Random) -> str:
    first, last = r.choice(list(_SCRIPTS.values()))
    letters = [chr(r.randint(first, last)) for _ in range(r.randint(1, 9))]
    return "".join(letters)


def _scripts(r: random.Random) -> str:
    return r.choice(["", " "]) + " ".join(_word(r) for _ in range(r.randint(1, 6)))


def _spaces(r: random.Random) -> str:
    found = []
    for _ in range(r.randint(1, 6)):
        found.append("".join(r.choice(_SPACES) * r.randint(1, 9) for _ in range(r.randint(1, 3))))
        found.append(r.choice([r.choice(_ENGLISH), "", ".", "7"]))
    return "".join(found)


def _digits(r: random.Random) -> str:
    others = ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "⁰¹²³", "½⅓¾", "ⅠⅡⅫ", "①⑳", "𝟎𝟗", "一二三"]
    kinds = ["0123456789"] * 5 + others
    found = []
    for _ in range(r.randint(1, 7)):
        found.append("".join(r.choices(r.choice(kinds), k=r.randint(1, 12))))
        found.append(r.choice([" ", "", ".", ",", "e+", "%", "x", "-", ":", "\n", "th "]))
    return "".join(found)


def _emoji(r: random.Random) -> str:
    joined = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇨🇭", "1️⃣", "❤️", "🤷🏿‍♀️", "☃", "🫠", "🪿"]
    found = [r.choice([r.choice(joined), chr(r.randint(0x1F300, 0x1FAFF)), r.choice(_ENGLISH), " "])
             for _ in range(r.randint(1, 12))]  # fmt: skip
    return "".join(found)


def _controls(r: random.Random) -> str:
    ranges = [(0, 0x1F), (0x7F, 0x9F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F),
              (0xE000, 0xE0FF), (0xFDD0, 0xFDEF), (0xFFF0, 0xFFFF), (0xE0001, 0xE007F),
              (0x10FFF0, 0x10FFFF)]  # fmt: skip
    found = []
    for _ in range(r.randint(1, 12)):
        first, last = r.choice(ranges)
        found.append(r.choice([chr(r.randint(first, last)), r.choice(_ENGLISH), " "]))
    return "".join(found)


def _specials(r: random.Random) -> str:
    found = []
    for _ in range(r.randint(1, 7)):
        token = r.choice(_SPECIAL)
        if r.random() < 0.3:
            at = r.randrange(len(token))
            token = token[:at] + r.choice(["", " ", "|", token[at].upper()]) + token[at + 1 :]
        found.append(token)
        found.append(r.choice(["", "", " ", "\n", r.choice(_ENGLISH), r.choice(_ODD)]))
    return "".join(found)


def _any(r: random.Random) -> str:
    """Characters from everywhere, surrogates apart."""
    found = []
    while len(found) < 25:
        c = chr(r.randint(0, r.choice([0x7F, 0x7FF, 0xFFFF, sys.maxunicode])))
        if unicodedata.category(c) != "Cs":
            found.append(c)
    return "".join(found[: r.randint(1, 25)])


def _pieces(of: str, longest: int) -> Text:
    def piece(r: random.Random) -> str:
        at = r.randrange(len(of))
        return of[at : at + r.randint(1, longest)]

    return piece


def texts(count: int, seed: int, play: str, programs: str) -> list[str]:
    """`count` different texts, and the empty one first."""
    r = random.Random(seed)
    kinds: list[tuple[int, Text]] = [
        (18, _pieces(play, 250)), (14, _pieces(programs, 200)), (20, _scripts), (12, _spaces),
        (7, _digits), (6, _emoji), (6, _controls), (10, _specials), (7, _any),
        (4, lambda r: " ".join(r.choices(_ENGLISH, k=r.randint(1, 12)))),
    ]  # fmt: skip
    weights, makers = zip(*kinds, strict=True)
    found = {"": None}
    while len(found) < count:
        (make,) = r.choices(makers, weights)
        text = make(r)
        if r.random() < 0.15:
            text += r.choice(makers)(r)[:60]
        found[text[:300]] = None
    return list(found)
