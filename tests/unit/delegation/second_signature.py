"""A second signature of one key over one message (RFC 8032 with another r), for tests.

A signer that draws its r at random signs so. Both signatures verify.
"""

from __future__ import annotations

import hashlib

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)
Point = tuple[int, int]


def _add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P,
    )


def _times(n: int) -> Point:
    out, step = (0, 1), BASE
    while n:
        if n & 1:
            out = _add(out, step)
        step, n = _add(step, step), n >> 1
    return out


def _encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def signed_again(seed: bytes, message: bytes, r: int) -> bytes:
    """A signature over `message` by the key of `seed`, with this r."""
    clamped = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little")
    clamped = clamped & ~7 & (1 << 254) - 1 | 1 << 254
    key, first = _encoded(_times(clamped)), _encoded(_times(r))
    h = int.from_bytes(hashlib.sha512(first + key + message).digest(), "little") % ORDER
    return first + ((r + h * clamped) % ORDER).to_bytes(32, "little")
