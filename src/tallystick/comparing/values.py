"""Two arrays of one shape: the first element that differs, and how far apart the two are.

A distance in units in the last place counts the floating-point numbers of the type between two
values. It is None where a value is no number, and for types without one. The real and the imaginary
part of a complex number are two floats: each has its own bits and its own distance.
Zeros of two signs, +0.0 and -0.0, are equal as numbers, and other bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.commit.tensor import Array, widened
from tallystick.job.numbers import count

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
# Bits of the significand that are stored.
SIGNIFICAND = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
PARTS = ("real", "imaginary")

Number = float | int | bool | complex
Bits = str | tuple[str, str]
Distance = int | None | tuple[int | None, int | None]


def units(distance: int) -> str:
    """A distance for a person."""
    return f"{count(distance, 'unit')} in the last place"


@dataclass(frozen=True)
class ElementApart:
    """The first differing element of two tensors of one type, and how many others differ.

    `flipped` is the number of the bit, 0 being the lowest, where the two patterns of the only
    differing element differ in one bit; else None. `most` is the greatest distance in the tensor.
    Of a complex element `first_bits`, `second_bits` and `ulps` are pairs, of the real and of the
    imaginary part, and `flipped` counts within the one part that differs.
    """

    index: tuple[int, ...]
    first: Number
    second: Number
    first_bits: Bits
    second_bits: Bits
    ulps: Distance
    different: int
    total: int
    most: int | None
    flipped: int | None

    @property
    def sign_of_zero(self) -> bool:
        """True if no number differs by its value: zeros differ in their signs."""
        return self.most == 0

    @property
    def flipped_part(self) -> str:
        """The part of a complex element whose bit `flipped` is; empty for other types."""
        if self.flipped is None or isinstance(self.first_bits, str):
            return ""
        return PARTS[self.first_bits[0] == self.second_bits[0]]

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "index": list(self.index),
            "values": [_plain(self.first), _plain(self.second)],
            "bits": [_plain(self.first_bits), _plain(self.second_bits)],
            "ulps": _plain(self.ulps),
            "different_elements": self.different,
            "elements": self.total,
            "most_ulps": self.most,
            "flipped_bit": self.flipped,
        }


def _plain(value: object) -> object:
    """A value as JSON has it: a complex number and a pair as a list."""
    if isinstance(value, complex):
        return [value.real, value.imag]
    return list(value) if isinstance(value, tuple) else value


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.names == ("bf16",)


def in_parts(array: Array) -> Array:
    """A complex array as its floats, the two parts of an element along a last dimension; another
    array as it is."""
    if array.dtype.kind != "c":
        return array
    flat = np.ascontiguousarray(array).reshape(-1)
    parts: Array = flat.view(f"<f{array.dtype.itemsize // 2}").reshape(*array.shape, 2)
    return parts


def float_name(array: Array) -> str:
    """The type of a float array, and of the parts of a complex one; empty for other types."""
    if not is_float(array) and array.dtype.kind != "c":
        return ""
    return "bf16" if array.dtype.names else f"f{8 * in_parts(array).dtype.itemsize}"


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
    parts = 2 if a.dtype.kind == "c" else 1
    floats = in_parts(a), in_parts(b)
    ours, theirs = bits_of(floats[0]), bits_of(floats[1])
    places = np.flatnonzero(ours != theirs)
    if not places.size:
        return None
    at = int(places[0]) // parts
    own, most = _distances_at(floats, places, range(parts * at, parts * at + parts))
    width = 2 * floats[0].dtype.itemsize
    bits = [
        [f"0x{int(word):0{width}x}" for word in words[parts * at : parts * at + parts]]
        for words in (ours, theirs)
    ]
    changed = int(ours[places[0]]) ^ int(theirs[places[0]])
    alone = places.size == 1 and changed.bit_count() == 1
    return ElementApart(
        tuple(int(i) for i in np.unravel_index(at, a.shape)) if a.shape else (),
        numbers_of(a)[at].item(),
        numbers_of(b)[at].item(),
        bits[0][0] if parts == 1 else (bits[0][0], bits[0][1]),
        bits[1][0] if parts == 1 else (bits[1][0], bits[1][1]),
        own[0] if parts == 1 else (own[0], own[1]),
        len(np.unique(places // parts)),
        int(ours.size) // parts,
        most,
        changed.bit_length() - 1 if alone else None,
    )


def _distances_at(
    pair: tuple[Array, Array], places: np.ndarray, asked: range
) -> tuple[list[int | None], int | None]:
    """The distances of two arrays in the places `asked`, None where one has no number there; and
    the greatest of those in `places`, which are all that differ."""
    if not is_float(pair[0]):
        return [None] * len(asked), None
    picked = (elements_at(pair[0], places), elements_at(pair[1], places))
    known = ~(np.isnan(numbers_of(picked[0])) | np.isnan(numbers_of(picked[1])))
    apart = distances(*picked)
    found: list[int | None] = []
    for place in asked:
        at = int(np.searchsorted(places, place))
        if at == len(places) or int(places[at]) != place:
            found.append(0)  # these two are equal
        else:
            found.append(int(apart[at]) if known[at] else None)
    return found, int(apart[known].max()) if known.any() else None


def elements_at(array: Array, places: np.ndarray) -> Array:
    """Some elements, in the array's own type."""
    picked: Array = np.ascontiguousarray(array).reshape(-1)[places]
    return picked


def kept_bits(array: Array) -> int | None:
    """How many bits of the significand the values of a float array use: the most of any of its
    finite values, of a complex one of any part; None where it has none but zeros."""
    name = float_name(array)
    if not name:
        return None
    array, significand = in_parts(array), SIGNIFICAND[name]
    numbers, bits = numbers_of(array), bits_of(array).astype(np.uint64)
    bits = bits[np.isfinite(numbers) & (numbers != 0)] & np.uint64((1 << significand) - 1)
    if not bits.size:
        return None
    every = int(np.bitwise_or.reduce(bits))
    trailing = (every & -every).bit_length() - 1 if every else significand
    return significand - trailing


def signs_said(first: Array, second: Array) -> str:
    """Says that two tensors differ in the signs of zeros alone: which one has which. Empty where
    they differ in anything else, or not at all."""
    if not is_float(first) or first.dtype != second.dtype or first.shape != second.shape:
        return ""
    places = np.flatnonzero(bits_of(first) != bits_of(second))
    ours, theirs = numbers_of(first)[places], numbers_of(second)[places]
    if not places.size or ours.any() or theirs.any():
        return ""
    negative = np.signbit(ours)
    if negative.all():
        return "-0.0 in A and +0.0 in B"
    return "+0.0 in A and -0.0 in B" if not negative.any() else "zeros of other signs"
