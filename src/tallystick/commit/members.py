"""The members of a JSON object that somebody else wrote, each taken by its name and type.

The bytes come first: `parse_canonical_json` has checked size, depth, numbers and repeated keys
(COMMITMENTS 1.11). Why this is written by hand: docs/adr/0009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from tallystick.commit.encoding import HASH_BYTES, JsonValue

Kind = TypeVar("Kind", str, int, bool, list[JsonValue])

_KINDS = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}
_HEX = frozenset("0123456789abcdef")


class Members:
    """Typed access to an untrusted object. Of every fault `fail` makes an error and raises it;
    it is told what is wrong, in half a sentence."""

    def __init__(self, value: object, fail: Callable[[str], NoReturn]) -> None:
        self.fail = fail
        if not isinstance(value, dict):
            fail("what should be an object is not one")
        self.value: dict[str, JsonValue] = value

    def only(self, *names: str) -> None:
        """The members are exactly `names`."""
        if odd := set(self.value) ^ set(names):
            self.fail(f"member {min(odd)[:80]!r} is missing or unknown")

    def of(self, name: str, kind: type[Kind]) -> Kind:
        """The member `name`, a `kind` and nothing else: true is no integer."""
        value = self.value.get(name)
        if type(value) is not kind:
            self.fail(f"{name!r} is not {_KINDS[kind]}")
        return value

    def hex(self, name: str, length: int | None = HASH_BYTES) -> bytes:
        """The bytes of member `name`, lower-case hexadecimal digits; any number where `length` is
        None."""
        return self.hex_of(self.value.get(name), name, length)

    def hex_of(self, text: JsonValue, name: str, length: int | None = HASH_BYTES) -> bytes:
        """As `hex`, of a value that stands inside of the member `name`."""
        if not isinstance(text, str) or len(text) % 2 or not _HEX.issuperset(text):
            self.fail(f"{name!r} is not lower-case hexadecimal digits, two for each byte")
        if length is not None and len(text) != 2 * length:
            self.fail(f"{name!r} has {len(text)} hexadecimal digits, not {2 * length}")
        return bytes.fromhex(text)

    def decimal(self, name: str, digits: int) -> int:
        """The number that member `name` spells in at most `digits` digits, without zeros before."""
        text = self.of(name, str)
        if (
            len(text) > digits
            or not (text.isdecimal() and text.isascii())
            or str(int(text)) != text
        ):
            self.fail(f"{name!r} is not a decimal number")
        return int(text)

    def child(self, name: str) -> Members:
        """The object at member `name`."""
        return Members(self.value.get(name), self.fail)
