"""Two arrays of one shape: the first element that differs, and how far apart the two are.

A distance in units in the last place counts the floating-point numbers of the type between two
values. It is None where a value is no number, and for types without one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.commit.tensor import Array, widened

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
# Bits of the significand that are stored.
SIGNIFICAND = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}


@dataclass(frozen=True)
class ElementApart:
    """The first differing element of two tensors of one type, and how many others differ.

    `flipped` is the number of the bit, 0 being the lowest, where the two patterns of the only
    differing element differ in one bit; else None. `most` is the greatest distance in the tensor.
    """

    index: tuple[int, ...]
    first: float | int | bool
    second: float | int | bool
    first_bits: str
    second_bits: str
    ulps: int | None
    different: int
    total: int
    most: int | None
    flipped: int | None

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "index": list(self.index),
            "values": [self.first, self.second],
            "bits": [self.first_bits, self.second_bits],
            "ulps": self.ulps,
            "different_elements": self.different,
            "elements": self.total,
            "most_ulps": self.most,
            "flipped_bit": self.flipped,
        }


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.names == ("bf16",)


def bits_of(array: Array) -> np.ndarray:
    """The bit patterns of an array's elements, flat."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(_BITS[array.dtype.itemsize])


def numbers_of(array: Array) -> np.ndarray:
    """The elements as numbers of numpy's own types, flat."""
    if array.dtype.names == ("bf16",):
        return widened(array).reshape(-1)
    return np.ascontiguousarray(array).reshape(-1)


def distances(a: Array, b: Array) -> np.ndarray:
    """The distances of two float arrays of one type, of values that are numbers."""
    size = a.dtype.itemsize * 8

    def place(array: Array) -> np.ndarray:
        """The place of each value in the line of all numbers, both zeros at 0."""
        bits = bits_of(array).astype(np.uint64)
        rest = (bits & np.uint64((1 << (size - 1)) - 1)).astype(np.int64)
        placed: np.ndarray = np.where(bits >> np.uint64(size - 1), -rest, rest)
        return placed

    ours, theirs = place(a), place(b)
    # Of binary64 a difference may need 64 bits: it is taken modulo 2^64, the greater one first.
    greater, less = np.maximum(ours, theirs), np.minimum(ours, theirs)
    apart: np.ndarray = greater.view(np.uint64) - less.view(np.uint64)
    return apart


def elements_apart(a: Array, b: Array) -> ElementApart | None:
    """The first element whose bits differ; None for two equal arrays. Both have one type and one
    shape."""
    ours, theirs = bits_of(a), bits_of(b)
    places = np.flatnonzero(ours != theirs)
    if not places.size:
        return None
    at = int(places[0])
    ulps = most = None
    if is_float(a):
        picked = (elements_at(a, places), elements_at(b, places))
        known = ~(np.isnan(numbers_of(picked[0])) | np.isnan(numbers_of(picked[1])))
        apart = distances(*picked)
        ulps = int(apart[0]) if known[0] else None
        most = int(apart[known].max()) if known.any() else None
    width = 2 * a.dtype.itemsize
    changed = int(ours[at]) ^ int(theirs[at])
    alone = places.size == 1 and changed.bit_count() == 1
    return ElementApart(
        tuple(int(i) for i in np.unravel_index(at, a.shape)) if a.shape else (),
        numbers_of(a)[at].item(),
        numbers_of(b)[at].item(),
        f"0x{int(ours[at]):0{width}x}",
        f"0x{int(theirs[at]):0{width}x}",
        ulps,
        int(places.size),
        int(ours.size),
        most,
        changed.bit_length() - 1 if alone else None,
    )


def elements_at(array: Array, places: np.ndarray) -> Array:
    """Some elements, in the array's own type."""
    picked: Array = np.ascontiguousarray(array).reshape(-1)[places]
    return picked


def kept_bits(array: Array) -> int | None:
    """How many bits of the significand the values of a float array use: the most of any of its
    finite values; None where it has none but zeros."""
    if not is_float(array):
        return None
    name = "bf16" if array.dtype.names else f"f{8 * array.dtype.itemsize}"
    significand = SIGNIFICAND[name]
    numbers, bits = numbers_of(array), bits_of(array).astype(np.uint64)
    bits = bits[np.isfinite(numbers) & (numbers != 0)] & np.uint64((1 << significand) - 1)
    if not bits.size:
        return None
    every = int(np.bitwise_or.reduce(bits))
    trailing = (every & -every).bit_length() - 1 if every else significand
    return significand - trailing
