"""Layouts, hashes, canonical JSON and DSSE envelopes (COMMITMENTS 1, 9)."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from functools import lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PRIME = 2**255 - 19
GROUP = 2**252 + 27742317777372353535851937790883648493


class RefusedError(Exception):
    """The evidence is not judged, and nobody is convicted (PROTOCOL 8.3)."""


class MalformedError(Exception):
    """Bytes that do not follow their layout (1.6)."""


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tag(name: str) -> bytes:
    return b"tallystick/" + name.encode() + b"\0"


def u8(n: int) -> bytes:
    return struct.pack("<B", n)


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def blob(data: bytes) -> bytes:
    return u64(len(data)) + data


def text(value: str) -> bytes:
    return u32(len(value.encode())) + value.encode()


class Reader:
    """Takes the fields of a layout from its bytes, in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise MalformedError("bytes missing")
        self.at += n
        return self.data[self.at - n : self.at]

    def tag(self, name: str) -> None:
        if self.take(len(tag(name))) != tag(name):
            raise MalformedError("another tag")

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def hash(self) -> bytes:
        return self.take(32)

    def hashes(self, limit: int) -> list[bytes]:
        n = self.u64()
        if n > limit:
            raise MalformedError("too many hashes")
        return [self.hash() for _ in range(n)]

    def blob(self, limit: int) -> bytes:
        n = self.u64()
        if n > limit:
            raise MalformedError("too long")
        return self.take(n)

    def text(self) -> str:
        n = self.u32()
        if n > 1024:
            raise MalformedError("a text too long")
        try:
            return self.take(n).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("no UTF-8") from error

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedError("bytes left over")


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({k for k, _ in items}) != len(items):
        raise MalformedError("a key twice")
    return dict(items)


def _no_float(_text: str) -> Any:
    raise MalformedError("a float")


def dumped(value: Any, depth: int = 0) -> str:
    """Canonical JSON (1.8 to 1.11); raises MalformedError for a value that has none."""
    if depth > 64:
        raise MalformedError("nested too deeply")
    if isinstance(value, list):
        return "[" + ",".join(dumped(v, depth + 1) for v in value) + "]"
    if isinstance(value, dict):
        # RFC 8785 sorts by UTF-16 code units.
        keys = sorted(value, key=lambda k: k.encode("utf-16-be"))
        pairs = (f"{dumped(k)}:{dumped(value[k], depth + 1)}" for k in keys)
        return "{" + ",".join(pairs) + "}"
    if type(value) is int and abs(value) >= 2**53:
        raise MalformedError("an integer out of range")
    return json.dumps(value, ensure_ascii=False)


def canonical_json(data: bytes) -> Any:
    """The value of canonical JSON (1.8 to 1.11); raises MalformedError."""
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_pairs,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
        same = dumped(value).encode() == data
    except (ValueError, RecursionError) as error:
        raise MalformedError("no canonical JSON") from error
    if not same:
        raise MalformedError("not in canonical form")
    return value


D = -121665 * pow(121666, PRIME - 2, PRIME) % PRIME


def _neutral_after_group(x1: int, y1: int) -> bool:
    """Whether GROUP times the point is the neutral one.

    Projective coordinates, a complete addition (Bernstein, Lange 2007), and the doubling that
    follows from it with the curve's equation (Bernstein and others 2008).
    """

    def plus(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
        zz = a[2] * b[2] % PRIME
        xx, yy = a[0] * b[0] % PRIME, a[1] * b[1] % PRIME
        e = D * xx * yy % PRIME
        f, g = zz * zz - e, zz * zz + e
        cross = (a[0] + a[1]) * (b[0] + b[1]) - xx - yy
        return zz * f * cross % PRIME, zz * g * (yy + xx) % PRIME, f * g % PRIME

    def twice(a: tuple[int, int, int]) -> tuple[int, int, int]:
        xx, yy, zz = a[0] * a[0] % PRIME, a[1] * a[1] % PRIME, a[2] * a[2] % PRIME
        sum_, f = (a[0] + a[1]) ** 2 - xx - yy, yy - xx
        j = f - 2 * zz
        return sum_ * j % PRIME, f * (-xx - yy) % PRIME, f * j % PRIME

    power, rest, found = (x1, y1, 1), GROUP, (0, 1, 1)
    while rest:
        if rest & 1:
            found = plus(found, power)
        power, rest = twice(power), rest >> 1
    return found[0] == 0 and found[1] == found[2]


@lru_cache(maxsize=8192)
def good_point(data: bytes) -> bool:
    """A canonical encoding of a point of the subgroup, and not of the neutral one (9.1.1)."""
    value = int.from_bytes(data, "little")
    y, sign = value % 2**255, value >> 255
    if y >= PRIME:
        return False
    xx = (y * y - 1) * pow(D * y * y + 1, PRIME - 2, PRIME) % PRIME
    x = pow(xx, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != xx:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    if x * x % PRIME != xx or x == 0:  # no point; or 1 or -1, of order 1 or 2
        return False
    return _neutral_after_group(x if x & 1 == sign else PRIME - x, y)


def verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is key's over the bytes (9.1.2).

    R is multiplied by GROUP here, so this judge decides the same with a library of either equation.
    """
    if len(signature) != 64 or not good_point(key) or not good_point(signature[:32]):
        return False
    if int.from_bytes(signature[32:], "little") >= GROUP:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=8192)
def signed(key: bytes, signature: bytes, kind: str, payload: bytes) -> bool:
    """Whether `signature` is key's over the pre-authentication encoding (9.2)."""
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    return verifies(key, signature, encoded)


def _base64(value: Any) -> bytes:
    try:
        data = base64.b64decode(value, validate=True)
    except (ValueError, TypeError) as error:
        raise MalformedError("no base64") from error
    if base64.b64encode(data).decode() != value:
        raise MalformedError("base64 with other bits")
    return data


def envelope(data: bytes, kind: str, signer: str) -> dict[str, Any]:
    """The payload of an envelope signed by the key in its member `signer` alone (9.3, 9.5)."""
    outer = canonical_json(data)
    if not isinstance(outer, dict) or set(outer) != {"payload", "payloadType", "signatures"}:
        raise MalformedError("no envelope")
    signatures = outer["signatures"]
    if outer["payloadType"] != kind or not isinstance(signatures, list) or len(signatures) != 1:
        raise MalformedError("another envelope")
    payload = _base64(outer["payload"])
    inner = canonical_json(payload)
    one = signatures[0]
    if not isinstance(inner, dict) or not isinstance(one, dict) or set(one) != {"keyid", "sig"}:
        raise MalformedError("no envelope")
    key = digest_of(inner.get(signer))
    if one["keyid"] != sha(key).hex() or not signed(key, _base64(one["sig"]), kind, payload):
        raise MalformedError("a signature that does not verify")
    return inner


def digest_of(value: Any) -> bytes:
    """32 bytes from 64 lower-case hexadecimal digits (1.1)."""
    if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise MalformedError("no digest")
    return bytes.fromhex(value)
