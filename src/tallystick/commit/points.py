"""Points that Ed25519 must not be used with (COMMITMENTS 9.1.1)."""

from __future__ import annotations

ORDER = (1 << 252) + 27742317777372353535851937790883648493
_P = (1 << 255) - 19
_D = -121665 * pow(121666, -1, _P) % _P


def unfit_point(encoded: bytes) -> str:
    """The reason why 32 bytes are no public key and no R of a signature; empty if they may be one.

    A point has small order exactly if y is 0, 1 or -1 (orders 4, 1 and 2), or doubling it gives a
    point of order 4, that is x^2 = -y^2: with the curve's equation, d*y^4 + 2*y^2 = 1 (order 8).
    """
    y = int.from_bytes(encoded, "little") & (1 << 255) - 1
    if y >= _P:
        return "it is not in canonical form"
    if y in (0, 1, _P - 1) or (_D * y**4 + 2 * y**2 - 1) % _P == 0:
        return "it is a point of small order, under which one signature fits many messages"
    return ""
