"""Quantised weights: one number after the other, from its block's bytes (NUMERICS 19)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.floats import F32

Inputs = list[Any]
Attrs = dict[str, Any]

SIZES = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34),
    "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
}  # fmt: skip


def half(b: bytes, at: int) -> np.float32:
    """The binary16 number at a byte (19.2), by numpy's own widening."""
    return np.frombuffer(b, "<f2", 1, at).astype(F32)[0]


def signed(byte: int) -> int:
    return byte - 256 if byte >= 128 else byte


def four(b: bytes, at: int, high: bool) -> int:
    return b[at] // 16 if high else b[at] % 16


def bit(b: bytes, at: int, number: int) -> int:
    return b[at + number // 8] >> (number % 8) & 1


def of_32(name: str, b: bytes, j: int) -> np.float32:
    """19.3."""
    d = half(b, 0)
    if name == "q8_0":
        return d * F32(signed(b[2 + j]))
    m = half(b, 2) if name in ("q4_1", "q5_1") else None
    start = 2 if m is None else 4
    q = four(b, start + (4 if name[1] == "5" else 0) + j % 16, j >= 16)
    if name[1] == "5":
        q += 16 * bit(b, start, j)
    if m is not None:
        return d * F32(q) + m
    return d * F32(q - (16 if name[1] == "5" else 8))


def six_bits(b: bytes, s: int) -> tuple[int, int]:
    """The scale and the minimum of the 32 numbers s (19.4)."""
    p = b[4:16]
    if s < 4:
        return p[s] % 64, p[s + 4] % 64
    return p[s + 4] % 16 + p[s - 4] // 64 * 16, p[s + 4] // 16 + p[s] // 64 * 16


def of_256(name: str, b: bytes, j: int) -> np.float32:
    """19.4, 19.5."""
    if name == "q6_k":
        h, r = divmod(j, 128)
        q = four(b, 64 * h + r % 64, r >= 64)
        q += 16 * (b[128 + 32 * h + r % 32] >> (2 * (r // 32)) & 3)
        return (half(b, 208) * F32(signed(b[192 + j // 16]))) * F32(q - 32)
    quants = 16 if name == "q4_k" else 48
    q = four(b, quants + 32 * (j // 64) + j % 32, j // 32 % 2 == 1)
    if name == "q5_k":
        q += 16 * (b[16 + j % 32] >> (j // 32) & 1)
    scale, least = six_bits(b, j // 32)
    return (half(b, 0) * F32(scale)) * F32(q) - half(b, 2) * F32(least)


def _dequantize(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (raw,) = inputs
    name = attrs["format"]
    elements, size = SIZES[name]
    of = of_32 if elements == 32 else of_256
    blocks = raw.reshape(-1, size)
    out = [of(name, block.tobytes(), j) for block in blocks for j in range(elements)]
    shape = (*raw.shape[:-1], raw.shape[-1] // size * elements)
    return [np.array(out, F32).reshape(shape)]


QUANTISED = {"tallystick.dequantize": _dequantize}
