"""Points that Ed25519 must not be used with (COMMITMENTS 9.1.1)."""

from __future__ import annotations

from functools import lru_cache

ORDER = (1 << 252) + 27742317777372353535851937790883648493
_P = (1 << 255) - 19
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)
_ORDER_BITS = tuple(bit == "1" for bit in f"{ORDER:b}"[1:])  # below the highest one


@lru_cache(maxsize=4096)
def unfit_key(encoded: bytes) -> str:
    """The reason why 32 bytes are no public key; empty if they are one (9.1.1).

    A first look takes 0.8 ms, so answers are remembered: a session has few keys.
    """
    if why := unfit_point(encoded):
        return why
    point = _decoded(encoded)
    if point is None:
        return "it is no point of the curve"
    if not _in_subgroup(*point):
        return "its point is outside of the subgroup of prime order, where verifiers differ"
    return ""


def unfit_point(encoded: bytes) -> str:
    """The reason why 32 bytes are no key and no R of a signature, by their form and small orders.

    A point has small order exactly if y is 0, 1 or -1 (orders 4, 1 and 2), or doubling it gives a
    point of order 4, that is x^2 = -y^2: with the curve's equation, d*y^4 + 2*y^2 = 1 (order 8).
    """
    y = int.from_bytes(encoded, "little") & (1 << 255) - 1
    if y >= _P:
        return "it is not in canonical form"
    if y in (0, 1, _P - 1) or (_D * y**4 + 2 * y**2 - 1) % _P == 0:
        return "it is a point of small order, under which one signature fits many messages"
    return ""


def _decoded(encoded: bytes) -> tuple[int, int] | None:
    """x and y of a canonical encoding (RFC 8032 5.1.3); None where the curve has no such point."""
    value = int.from_bytes(encoded, "little")
    sign, y = value >> 255, value & (1 << 255) - 1
    above, below = (y * y - 1) % _P, (_D * y * y + 1) % _P  # x^2 = above / below
    x = above * pow(below, 3, _P) * pow(above * pow(below, 7, _P), (_P - 5) // 8, _P) % _P
    if (below * x * x - above) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (below * x * x - above) % _P:
        return None
    return (x if x & 1 == sign else _P - x), y


def _in_subgroup(x0: int, y0: int) -> bool:
    """Whether ORDER times the point is the neutral one.

    Double and add, in extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x*y = T/Z (Hisil,
    Wong, Carter, Dawson 2008: 3.3 and 3.1, complete on this curve). Only an addition reads T.
    """
    x, y, z = x0, y0, 1
    t0 = 2 * _D * x0 * y0 % _P
    for is_added in _ORDER_BITS:
        xx, yy = x * x, y * y
        h, g = xx + yy, yy - xx
        e, f = (x + y) ** 2 - h, g - 2 * z * z
        e, f, g, h = e % _P, f % _P, g % _P, -h % _P
        x, y, z = e * f % _P, g * h % _P, f * g % _P
        if is_added:
            t = e * h % _P
            a, b = (y - x) * (y0 - x0), (y + x) * (y0 + x0)
            c, d = t * t0, 2 * z
            e, f, g, h = (b - a) % _P, (d - c) % _P, (d + c) % _P, (b + a) % _P
            x, y, z = e * f % _P, g * h % _P, f * g % _P
    return x == 0 and y == z
