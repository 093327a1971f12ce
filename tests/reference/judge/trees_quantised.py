"""Quantised weights (OPENING 7.12, NUMERICS 19)."""

from __future__ import annotations

from typing import Any

from reference.judge.quantities import Element, Q
from reference.judge.trees_move import one
from reference.quantised import SIZES, of_32, of_256


def bytes_of(name: str, j: int) -> list[int]:
    """The bytes of a block in the order in which number j reads them; a repeated one is read once
    (7.12.1)."""
    s, r = j // 32, j % 128
    if name == "q6_k":
        low, up = 64 * (j // 128) + r % 64, 128 + 32 * (j // 128) + r % 32
        return [208, 209, 192 + j // 16, low, up]
    if name == "q8_0":
        return [0, 1, 2 + j]
    if name in ("q4_0", "q4_1"):
        return [0, 1, 2 + j % 16] if name == "q4_0" else [0, 1, 4 + j % 16, 2, 3]
    if name == "q5_0":
        return [0, 1, 6 + j % 16, 2 + j // 8]
    if name == "q5_1":
        return [0, 1, 8 + j % 16, 4 + j // 8, 2, 3]
    scale, least = ([4 + s], 8 + s) if s < 4 else ([8 + s, s], 4 + s)
    quants = (16 if name == "q4_k" else 48) + 32 * (j // 64) + j % 32
    fifth = [16 + j % 32] if name == "q5_k" else []
    return [0, 1, *scale, quants, *fifth, 2, 3, least]


def out(x: Element) -> Q:
    name = x.attrs["format"]
    elements, size = SIZES[name]
    block, j = divmod(x.e, elements)

    def value(read: Any) -> Any:
        found = bytearray(size)
        for i in dict.fromkeys(bytes_of(name, j)):
            found[i] = int((yield from one(read, 0, block * size + i)))
        return (of_32 if elements == 32 else of_256)(name, bytes(found), j)

    return Q("local", "f32", "out", value)


QUANTISED: dict[str, Any] = {"tallystick.dequantize": out}
