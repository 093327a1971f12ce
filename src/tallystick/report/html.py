"""What stands on a page: markup that outside text cannot change, and numbers and digests in a form
for people. Every value is escaped unless it is `Safe`.
"""

from __future__ import annotations

import html
import math
import re
import struct
from collections.abc import Mapping

import numpy as np

from tallystick.job.numbers import count as count
from tallystick.run.show.estimate import human_bytes
from tallystick.visible import visible

MAX_TEXT = 2000  # characters of one outside text on a page
_SEPARATORS = "\n\t"


class Safe(str):
    """Markup that this module made."""


def text(value: object, limit: int | None = MAX_TEXT) -> Safe:
    """`value` as text of a page.

    Texts longer than `limit` are cut. Characters that draw nothing or act (among them those that
    turn the writing direction, and lone surrogates, which no encoding takes) are spelled out.
    """
    if isinstance(value, Safe):
        return value
    raw = str(value)
    if limit is not None and len(raw) > limit:
        raw = raw[:limit] + "…"
    return Safe(html.escape(visible(raw, _SEPARATORS), quote=True))


def el(name: str, *children: object, **attributes: object) -> Safe:
    """The element `name`; children and attribute values are escaped unless they are `Safe`.

    Attribute names are written `class_`, `aria_label`, `viewBox`; None leaves one out. The name
    and the attributes' names are ours, never from outside.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value, None)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Safe(f"<{name}{given}>{join(*children)}</{name}>")


def join(*parts: object) -> Safe:
    """Parts one after the other; None adds no markup."""
    return Safe("".join(text(part) for part in parts if part is not None))


_BITS = re.compile(r"(?P<number>.+) \(0x(?P<bits>[0-9a-f]{2,16})\)", re.DOTALL)
PARTIES = ("Party A", "Party B")  # parties 0 and 1 of the protocol; A and B on the command line
# Said before a page first speaks of one.
FINGERPRINT = (
    "A fingerprint is a short code that changes if anything in what it stands for changes."
)


def size(n: int) -> str:
    """Bytes with a unit that people know, and the exact number where it differs."""
    return f"{count(n, 'byte')}" if n < 1024 else f"{human_bytes(n)} ({n:,} bytes)"


def number(value: float) -> str:
    """A loss to five significant digits."""
    return f"{value:.5g}" if math.isfinite(value) else str(value)


def digest(value: bytes | str) -> Safe:
    """A digest, whole, in a way that may break anywhere."""
    return el("code", value.hex() if isinstance(value, bytes) else value, class_="digest")


def code(value: object) -> Safe:
    """A text as a person types it or a file holds it."""
    return el("code", value)


def bits_of(shown: str) -> tuple[str, str]:
    """The number and the hexadecimal bits in a text of protocol.game.show.

    The bits are empty where the text has none. A binary32 gets the fewest digits that name it.
    """
    found = _BITS.fullmatch(shown)
    if not found:
        return shown, ""
    bits = found["bits"]
    if len(bits) != 8:
        return found["number"], bits
    (value,) = struct.unpack(">f", bytes.fromhex(bits))
    return str(np.float32(value)), bits


def stated(shown: str) -> Safe:
    """A value or a digest as a party stated it: the number, and below it its bits."""
    decimal, bits = bits_of(shown)
    if not bits:
        return el("code", shown)
    return join(el("code", decimal), Safe("<br>"), el("code", f"0x{bits}"))


def binary(bits: str, other: str) -> Safe:
    """The bits of a binary32 in its three fields, those that differ from `other` marked."""
    mine, theirs = (f"{int(h, 16):0{4 * len(h)}b}" for h in (bits, other))
    marked = [el("mark", a) if a != b else Safe(a) for a, b in zip(mine, theirs, strict=True)]
    if len(mine) != 32:
        return el("code", *marked, class_="bits")
    gap = Safe(" ")
    return el("code", *marked[:1], gap, *marked[1:9], gap, *marked[9:], class_="bits")


def facts(rows: Mapping[str, object]) -> Safe:
    """A list of names and values."""
    return el(
        "dl",
        *(join(el("dt", name), el("dd", value)) for name, value in rows.items()),
        class_="facts",
    )


def items(*entries: object) -> Safe:
    """A bulleted list."""
    return el("ul", *(el("li", entry) for entry in entries))


_NTH = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def nth(place: int) -> str:
    """The ordinal of a place that counts from 0: of 4 "fifth"."""
    if place < len(_NTH):
        return _NTH[place]
    n = place + 1
    ending = "th" if n // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"
