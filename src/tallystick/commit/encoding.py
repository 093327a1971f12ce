"""Fixed binary layouts and canonical JSON (COMMITMENTS 1).

Every digest is over one of these layouts: a domain tag that ends in a zero byte, then fields of
fixed width or with a length in front. JSON is for people. Signed JSON is RFC 8785, and the parser
takes no byte sequence but the canonical one.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import NoReturn, Protocol, Union

from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.limits import LIMITS

HASH_BYTES = 32
U64_MAX = (1 << 64) - 1
MAX_SAFE_INTEGER = (1 << 53) - 1  # COMMITMENTS 1.9: RFC 8785 keeps these exact

JsonValue = Union[None, bool, int, str, "list[JsonValue]", "dict[str, JsonValue]"]


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """SHA-256 of `data`: 32 bytes."""
    return hashlib.sha256(data).digest()


def tag(name: str) -> bytes:
    """The domain tag for `name`: b"tallystick/" + name + a zero byte (COMMITMENTS 1.3)."""
    return b"tallystick/" + name.encode("ascii") + b"\0"


def check_hash(value: bytes, what: str) -> bytes:
    """Return `value` if it is 32 bytes; raise UsageError naming `what` otherwise."""
    if not isinstance(value, bytes) or len(value) != HASH_BYTES:
        raise UsageError(
            f"The {what} must be a 32-byte digest.", "Pass the raw digest bytes, not hexadecimal."
        )
    return value


class Writer:
    """Builds one layout (COMMITMENTS 1.2): little-endian integers, length-prefixed strings."""

    def __init__(self, domain: bytes = b"") -> None:
        self._parts: list[bytes] = [domain]

    def u8(self, value: int) -> Writer:
        return self._integer(value, 1)

    def u32(self, value: int) -> Writer:
        return self._integer(value, 4)

    def u64(self, value: int) -> Writer:
        return self._integer(value, 8)

    def f64(self, value: float) -> Writer:
        """The 8 bytes of a binary64, little-endian."""
        self._parts.append(struct.pack("<d", value))
        return self

    def hash(self, value: bytes, what: str = "digest") -> Writer:
        """32 bytes as they are."""
        self._parts.append(check_hash(value, what))
        return self

    def raw(self, value: bytes) -> Writer:
        """Bytes whose length the layout fixes elsewhere."""
        self._parts.append(value)
        return self

    def blob(self, value: bytes) -> Writer:
        """A u64 length, then the bytes."""
        return self.u64(len(value)).raw(value)

    def text(self, value: str) -> Writer:
        """A u32 length, then UTF-8. Raises UsageError for a lone surrogate or an endless name."""
        encoded = encode_name(value)
        return self.u32(len(encoded)).raw(encoded)

    def _integer(self, value: int, width: int) -> Writer:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 8 * width:
            raise UsageError(
                f"{value!r} does not fit an unsigned field of {8 * width} bits.",
                "Pass an integer in range.",
            )
        self._parts.append(value.to_bytes(width, "little"))
        return self

    def finish(self) -> bytes:
        return b"".join(self._parts)

    def digest(self) -> bytes:
        """SHA-256 of the written bytes."""
        return sha256(self.finish())


class Reader:
    """Reads one layout from untrusted bytes; every fault is a CorruptFileError naming `what`."""

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self._view = memoryview(data)
        self._at = 0
        self._what = what

    def fail(self, why: str) -> NoReturn:
        raise CorruptFileError(
            f"The {self._what} is malformed: {why}.", "Ask its sender for an intact copy."
        )

    def raw(self, n: int) -> bytes:
        if n < 0 or n > self.left:
            self.fail("it ends too early")
        out = bytes(self._view[self._at : self._at + n])
        self._at += n
        return out

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._view) - self._at

    def u8(self) -> int:
        return int.from_bytes(self.raw(1), "little")

    def u32(self) -> int:
        return int.from_bytes(self.raw(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.raw(8), "little")

    def hash(self) -> bytes:
        return self.raw(HASH_BYTES)

    def count(self, limit: int, what: str) -> int:
        """A u64 that counts `what` and may not exceed `limit`."""
        n = self.u64()
        if n > limit:
            self.fail(f"it declares {n} {what}, more than the limit of {limit}")
        return n

    def hashes(self, limit: int) -> list[bytes]:
        """A counted list of hashes. The count is checked against the remaining bytes first."""
        n = self.count(limit, "hashes")
        if n * HASH_BYTES > self.left:
            self.fail("it ends too early")
        return [self.hash() for _ in range(n)]

    def blob(self, limit: int) -> bytes:
        return self.raw(self.count(limit, "bytes"))

    def text(self, limit: int = LIMITS.name_bytes) -> str:
        n = self.u32()
        if n > limit:
            self.fail(f"a string of {n} bytes is longer than the limit of {limit}")
        try:
            return self.raw(n).decode("utf-8")
        except UnicodeDecodeError:
            self.fail("a string is not UTF-8")

    def expect(self, constant: bytes) -> None:
        if self.raw(len(constant)) != constant:
            self.fail(f"it does not begin with {constant[:-1].decode('ascii', 'replace')!r}")

    def end(self) -> None:
        if self.left:
            self.fail(f"{self.left} bytes follow its end")


def encode_name(name: str) -> bytes:
    """UTF-8 of a slot, field or operator name. Raises UsageError if it cannot be one."""
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            f"The name {name!r} is not valid Unicode.", "Use names without lone surrogates."
        ) from None
    if len(encoded) > LIMITS.name_bytes:
        raise UsageError(
            f"The name {name[:40]!r}... is longer than {LIMITS.name_bytes} bytes.",
            "Use shorter names.",
        )
    return encoded


# ---- canonical JSON (COMMITMENTS 1.8 to 1.11) ---------------------------------------------------


class _Sink(Protocol):
    """A receiver of the pieces of canonical JSON."""

    def append(self, piece: str, /) -> None: ...


def canonical_json(value: JsonValue) -> bytes:
    """RFC 8785 bytes of a value made of str, int, bool, None, list and dict (COMMITMENTS 1.8).

    Raises UsageError for any other type (floats are written as hexadecimal strings), an integer
    beyond 2^53 - 1, a lone surrogate, or nesting beyond the limit.
    """
    out: list[str] = []
    _write_json(value, out, 0)
    try:
        return "".join(out).encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(
            "A string holds a lone surrogate, which canonical JSON cannot carry.",
            "Use valid Unicode.",
        ) from None


def _write_json(value: object, out: _Sink, depth: int) -> None:
    if depth >= LIMITS.json_depth and isinstance(value, (list, tuple, dict)):
        raise UsageError(f"JSON nested deeper than {LIMITS.json_depth}.", "Flatten it.")
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(_quote(value))
    elif isinstance(value, int):
        if abs(value) > MAX_SAFE_INTEGER:
            raise UsageError(
                f"The integer {value} does not fit canonical JSON (2^53 - 1).",
                "Write it as a string.",
            )
        out.append(str(int(value)))
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for i, item in enumerate(value):
            if i:
                out.append(",")
            _write_json(item, out, depth + 1)
        out.append("]")
    elif isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise UsageError("JSON object keys must be strings.", "Convert them.")
        out.append("{")
        # RFC 8785 3.2.3: keys in the order of their UTF-16 code units.
        for i, key in enumerate(sorted(value, key=_utf16)):
            if i:
                out.append(",")
            out.append(_quote(key))
            out.append(":")
            _write_json(value[key], out, depth + 1)
        out.append("}")
    else:
        raise UsageError(
            f"A {type(value).__name__} has no canonical JSON here.",
            "Write floats with float_hex and bytes as hexadecimal.",
        )


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")


def _quote(text: str) -> str:
    """RFC 8785 3.2.2.2: short escapes where they exist, else \\u00xx in lower case for controls."""
    return json.encoder.encode_basestring(text)


class _Expected:
    """A sink that keeps nothing: the pieces must be `data`, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def append(self, piece: str, /) -> None:
        encoded = piece.encode("utf-8")
        if not self._data.startswith(encoded, self._at):
            raise ValueError(_DIFFERS)
        self._at += len(encoded)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(_DIFFERS)


_DIFFERS = "its bytes differ from the canonical form"


def parse_canonical_json(
    data: bytes, what: str = "manifest", limit: int = LIMITS.manifest_bytes
) -> JsonValue:
    """Parse RFC 8785 bytes, and refuse every other form than the canonical one.

    Raises CorruptFileError (naming `what`) for size over `limit`, too many values, syntax errors,
    duplicate keys, floats, big integers, and any bytes that differ from the canonical ones
    (COMMITMENTS 1.11). It checks sizes first: a parsed value takes many times its bytes in memory.
    """

    def fail(why: str) -> NoReturn:
        raise CorruptFileError(
            f"The {what} is not canonical JSON: {why}.", "Ask its sender for an intact copy."
        )

    def integer(text: str) -> int:
        if len(text) > 17:
            fail("an integer is out of range")
        return int(text)

    def number(text: str) -> NoReturn:
        fail(f"{text[:20]} is not an integer")

    def members(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found = dict(pairs)
        if len(found) != len(pairs):
            fail("an object repeats a key")
        return found

    if len(data) > limit:
        fail(f"{len(data)} bytes exceed the limit of {limit}")
    if sum(map(data.count, (b",", b"[", b"{"))) > LIMITS.json_values:
        fail(f"it has more than {LIMITS.json_values} values")
    try:
        value: JsonValue = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=number,
            parse_constant=number,
        )
        expected = _Expected(data)
        _write_json(value, expected, 0)
        expected.end()
    except CounterpartyError:
        raise
    except RecursionError:
        fail("it is nested too deeply")
    except (ValueError, UsageError) as error:
        fail(str(error).split("\n")[0][:120])
    return value


def float_decimal(value: float) -> str:
    """The shortest decimal that reads back to the same binary64, for people."""
    return repr(float(value)).removesuffix(".0")


def float_hex(value: float) -> str:
    """A binary64 as the hexadecimal string manifests use: float.hex(), "inf", "-inf", "nan"."""
    return "nan" if value != value else value.hex()


def parse_float_hex(text: JsonValue, what: str) -> float:
    """Inverse of float_hex. Raises CorruptFileError unless float_hex writes exactly `text`."""
    if isinstance(text, str) and len(text) <= 32:
        try:
            value = float.fromhex(text)
        except (ValueError, OverflowError):
            value = None
        if value is not None and float_hex(value) == text:
            return value
    raise CorruptFileError(
        f"The {what} is not a hexadecimal binary64.", "Write it as Python's float.hex() does."
    )
