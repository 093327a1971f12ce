"""Cases of Ed25519 in which implementations differ (COMMITMENTS 9.1.1, 9.1.2), without the package.

Each case says which of the two equations in use holds, and whether the text takes the signature:

    without the cofactor: [S]B = R + [k]A          with it: [8][S]B = [8]R + [8][k]A

The points are computed from the curve's equation, -x^2 + y^2 = 1 + d x^2 y^2 modulo p.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha512
from typing import Any

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
NEUTRAL: Point = (0, 1)
SECRET, NONCE = (int.from_bytes(sha512(name).digest(), "little") % L for name in (b"a", b"r"))


def add(a: Point, b: Point) -> Point:
    t = D * a[0] * b[0] * a[1] * b[1] % P
    both = pow((1 + t) * (1 - t), -1, P)  # one inverse costs as much as all the rest
    x = (a[0] * b[1] + b[0] * a[1]) * both * (1 - t) % P
    y = (a[1] * b[1] + a[0] * b[0]) * both * (1 + t) % P
    return x, y


@cache
def times(n: int, a: Point) -> Point:
    out = NEUTRAL
    while n:
        out, a, n = (add(out, a) if n & 1 else out), add(a, a), n >> 1
    return out


def point_of(data: bytes) -> Point | None:
    """The point of 32 bytes, y modulo p; None if the curve has no such point."""
    value = int.from_bytes(data, "little")
    sign, y = value >> 255, value % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    for x in (root, root * pow(2, (P - 1) // 4, P) % P):
        if x * x % P == square:
            return (x if x & 1 == sign or x == 0 else P - x), y
    return None


def encoded(a: Point) -> bytes:
    return (a[1] | (a[0] & 1) << 255).to_bytes(32, "little")


_base = point_of((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
assert _base is not None
BASE: Point = _base
# A point of order 8: L times a point whose order is a multiple of 8.
_seed = next(
    a for a in (point_of(bytes([y]) + bytes(31)) for y in range(2, 99))
    if a and times(4 * L, a) != NEUTRAL
)  # fmt: skip
EIGHTH = times(L, _seed)
KEY, R = times(SECRET, BASE), times(NONCE, BASE)


def reduced(r: bytes, key: bytes, message: bytes) -> int:
    """k, the hash of R, A and the message, modulo the order of the group."""
    return int.from_bytes(sha512(r + key + message).digest(), "little") % L


def case(name: str, key: bytes, message: bytes, signature: bytes, accepted: bool) -> dict[str, Any]:
    """A case, with what the two equations say of its points; None where a point is missing."""
    a, r, s = point_of(key), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    without = with_it = None
    if a is not None and r is not None:
        right = add(r, times(reduced(signature[:32], key, message), a))
        without = times(s, BASE) == right
        with_it = times(8 * s, BASE) == times(8, right)
    return {
        "name": name, "public_key": key.hex(), "message": message.hex(),
        "signature": signature.hex(), "equation_without_cofactor": without,
        "equation_with_cofactor": with_it, "accepted": accepted,
    }  # fmt: skip


def signed(
    key: bytes, r: bytes, message: bytes, secret: int = SECRET, nonce: int = NONCE, more: int = 0
) -> bytes:
    """A signature by who knows the parts of key and R in the subgroup; S is `more` too large."""
    s = (nonce + reduced(r, key, message) * secret) % L + more
    return r + s.to_bytes(32, "little")


def torsion_cases() -> list[dict[str, Any]]:
    """The 64 pairs of a key A + iT and an R + jT, T of order 8.

    Both equations hold with a message for which 8 divides k*i + j; the second one always does.
    """
    found = []
    for i in range(8):
        for j in range(8):
            key, r = (encoded(add(a, times(n, EIGHTH))) for a, n in ((KEY, i), (R, j)))
            for is_both in (True, False):
                for n in range(64):
                    message = b"message %d" % n
                    if ((reduced(r, key, message) * i + j) % 8 == 0) == is_both:
                        name = f"A + {i}T, R + {j}T, {'both' if is_both else 'one'}"
                        signature = signed(key, r, message)
                        found.append(case(name, key, message, signature, i == j == 0))
                        break
    return found


def edge_cases() -> list[dict[str, Any]]:
    """S out of range, points of small order and of a second form, and no points at all."""
    message = b"message"
    key, r, neutral = encoded(KEY), encoded(R), encoded(NEUTRAL)
    good = signed(key, r, message)
    found = [
        case("ordinary", key, message, good, True),
        case("ordinary, empty message", key, b"", signed(key, r, b""), True),
        case("another message", key, b"massage", good, False),
        case("S + 1", key, message, signed(key, r, message, more=1), False),
        case("S + L", key, message, signed(key, r, message, more=L), False),
        case("S + 15 L", key, message, signed(key, r, message, more=15 * L), False),
        case("S = L", key, message, r + L.to_bytes(32, "little"), False),
        case("S of 256 ones", key, message, r + b"\xff" * 32, False),
        case("-R", key, message, signed(key, encoded((P - R[0], R[1])), message), False),
        case("-A", encoded((P - KEY[0], KEY[1])), message, good, False),
        case("R = 0, S = k a", key, message, signed(key, neutral, message, nonce=0), False),
        case("A = 0, S = r", neutral, message, signed(neutral, r, message, secret=0), False),
        case("A = R = 0, S = 0", neutral, message, neutral + bytes(32), False),
    ]
    for n in range(8):  # the eight points of small order
        small = encoded(times(n, EIGHTH))
        found.append(case(f"A = {n}T", small, message, signed(small, r, message, 0), False))
        found.append(case(f"R = {n}T", key, message, signed(key, small, message, nonce=0), False))
    for y in range(19):  # y + p fits 255 bits
        for sign in (0, 1):
            other = (y + P | sign << 255).to_bytes(32, "little")
            found.append(case(f"A = {y} + p, {sign}", other, message, other + bytes(32), False))
            found.append(case(f"R = {y} + p, {sign}", key, message, other + good[32:], False))
    for name, other in (
        ("0 with the sign bit", neutral[:31] + b"\x80"),
        ("-1 with the sign bit", (P - 1 | 1 << 255).to_bytes(32, "little")),
        (
            "no point",
            next(d for d in (bytes([y]) + bytes(31) for y in range(9)) if not point_of(d)),
        ),
    ):
        found.append(case(f"A is {name}", other, message, good, False))
        found.append(case(f"R is {name}", key, message, other + good[32:], False))
    return found


def ed25519_vectors() -> dict[str, Any]:
    return {"clause": "9.1.2", "cases": torsion_cases() + edge_cases()}
