"""Philox4x32-10 and the random operators (NUMERICS 8), in Python integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reference.exact import elementary
from reference.floats import F32, bits32, fma, rn32, rn32_int

Inputs = list[Any]
Attrs = dict[str, Any]
MASK = (1 << 32) - 1
C6 = bits32(0x40C90FDB)
UNIT = F32(2.0**-24)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """One block of Philox4x32-10 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def _block(rng: np.ndarray, draw: int, block: int) -> tuple[int, int, int, int]:
    """The block's words with key and counter of 8.1."""
    seed, step = int(rng[0]), int(rng[1])
    return philox((block & MASK, block >> 32, draw, step), (seed & MASK, seed >> 32))


def words(rng: np.ndarray, draw: int, count: int) -> list[int]:
    """The word of each element 0 .. count−1."""
    blocks = [_block(rng, draw, b) for b in range((count + 3) // 4)]
    return [blocks[e // 4][e % 4] for e in range(count)]


def _dropout_mask(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    threshold = round(Fraction(attrs["p"]) * 2**32)  # to even, exact
    w = words(inputs[0], attrs["draw"], math.prod(attrs["shape"]))
    return [np.array([v >= threshold for v in w], bool).reshape(attrs["shape"])]


def _mask_scale(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, mask = inputs
    return [np.where(mask, x * rn32(attrs["scale"]), F32(0.0))]


def _unit(values: list[int]) -> np.ndarray:
    """RN32(word div 2^8), exact."""
    return np.array([v >> 8 for v in values], np.int64).astype(F32)


def _uniform(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    low, high = rn32(attrs["low"]), rn32(attrs["high"])
    u = _unit(words(inputs[0], attrs["draw"], math.prod(attrs["shape"]))) * UNIT
    return [fma(u, high - low, low).reshape(attrs["shape"])]


def _normal(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    first, second = [], []
    for e in range(math.prod(attrs["shape"])):
        block = _block(inputs[0], attrs["draw"], e // 2)
        first.append(block[2 * (e % 2)])
        second.append(block[2 * (e % 2) + 1])
    u1 = (_unit(first) + F32(1.0)) * UNIT
    u2 = _unit(second) * UNIT
    z = np.sqrt(F32(-2.0) * elementary("log", u1)) * elementary("cos", u2 * C6)
    return [fma(z, rn32(attrs["std"]), rn32(attrs["mean"])).reshape(attrs["shape"])]


def gumbel_of(word: int) -> np.ndarray:
    """-log(-log1p(-v)) of one word (8.8)."""
    half = rn32_int(2 * word + 1) * F32(0.5)  # RN32(word + 1/2): halving is exact
    v = min(half * F32(2.0**-32), F32(1 - 2.0**-24))
    return -elementary("log", -elementary("log1p", np.array(-v, F32)))


def _gumbel(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    rng, place = inputs
    classes = attrs["classes"]
    out = np.zeros((len(place), classes), F32)
    for r, p in enumerate(place):
        for c in range(classes):
            block = _block(rng, attrs["draw"], int(p) * -(-classes // 4) + c // 4)
            out[r, c] = gumbel_of(block[c % 4])
    return [out]


RANDOM = {
    "tallystick.gumbel": _gumbel,
    "tallystick.dropout_mask": _dropout_mask,
    "tallystick.mask_scale": _mask_scale,
    "tallystick.uniform": _uniform,
    "tallystick.normal": _normal,
}
