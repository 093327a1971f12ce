"""The opening rule of the rounded operators: an exact sum, rounded once (NUMERICS 13).

The terms are those of the operator's rule under `ordered/1`. Their exact sum is a chain of chunks,
and the chain's state is the accumulator record of 13.5: a numpy void of 80 bytes, compared bit by
bit like any other value. A referee adds one chunk. The arithmetic uses Python's integers and shares
no code with the kernels. A prover executes millions of terms, so those of equal exponent are first
added as 64-bit integers.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from tallystick.numerics.grid import UNIT, Grid
from tallystick.opening.dot import Products, Summed
from tallystick.opening.parts import summed
from tallystick.opening.quantity import (
    ACCUMULATOR,
    CHUNK,
    Array,
    Chain,
    Local,
    Needs,
    Scalar,
    Site,
    Source,
)

# --- the record (13.5) ----------------------------------------------------------------------------
_SUM_BYTES = ACCUMULATOR.itemsize - 1
_MODULUS = 1 << 8 * _SUM_BYTES
NAN_TERM, PLUS_TERM, MINUS_TERM = 1, 2, 4  # flags
_INFINITY = Grid(32).infinity
# Products of significands have 48 bits, so this number of them fits a 64-bit integer.
_AT_ONCE = 1 << 14


def accumulator_of(number: int, flags: int) -> Scalar:
    """The record of S = `number`, two's complement, and `flags`."""
    data = (number % _MODULUS).to_bytes(_SUM_BYTES, "little") + bytes([flags])
    return cast(Scalar, np.frombuffer(data, ACCUMULATOR)[0])


EMPTY = accumulator_of(0, 0)


def number_and_flags(accumulator: Any) -> tuple[int, int]:
    """S and the flags of a record."""
    data = np.asarray(accumulator, ACCUMULATOR).tobytes()
    return int.from_bytes(data[:-1], "little", signed=True), data[-1]


def add_products(accumulator: Any, a: Array, b: Array) -> Scalar:
    """The record after the products a[k] * b[k] of binary32 (NUMERICS 13.3 to 13.5)."""
    with np.errstate(all="ignore"):
        real = a.astype(np.float64) * b  # exact: finite stays finite, for the flags
    left, e = _integers(a)
    right, f = _integers(b)
    return _added(accumulator, real, left * right, e + f + UNIT)


def add_terms(accumulator: Any, x: Array) -> Scalar:
    """The record after the terms x of binary32 (NUMERICS 13.3 to 13.5)."""
    significands, exponents = _integers(x)
    return _added(accumulator, x, significands, exponents + UNIT)


def _integers(x: Array) -> tuple[Array, Array]:
    """Signed significands and exponents: x = significand * 2^exponent, where x is finite."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    exponents, significands = bits >> 23 & 0xFF, bits & 0x7FFFFF
    significands = significands | np.where(exponents > 0, 1 << 23, 0)
    return np.where(bits >> 31, -significands, significands), np.maximum(exponents, 1) - 150


def _added(accumulator: Any, real: Array, integers: Array, shifts: Array) -> Scalar:
    """The record after terms of the values `real`, which are integers * 2^(shifts - UNIT)."""
    number, flags = number_and_flags(accumulator)
    finite = np.isfinite(real)
    if not finite.all():
        flags |= NAN_TERM if np.isnan(real).any() else 0
        flags |= PLUS_TERM if np.isposinf(real).any() else 0
        flags |= MINUS_TERM if np.isneginf(real).any() else 0
        integers, shifts = integers[finite], shifts[finite]
    for at in range(0, len(integers), _AT_ONCE):
        shift, integer = shifts[at : at + _AT_ONCE], integers[at : at + _AT_ONCE]
        order = np.argsort(shift, kind="stable")
        shift, integer = shift[order], integer[order]
        first = np.flatnonzero(np.append(True, shift[1:] != shift[:-1]))
        for by, total in zip(shift[first], np.add.reduceat(integer, first), strict=True):
            number += int(total) << int(by)
    return accumulator_of(number, flags)


def special_value(flags: int) -> np.float32 | None:
    """The element if a term is not finite (NUMERICS 13.4); None if all are."""
    if flags & NAN_TERM or (flags & PLUS_TERM and flags & MINUS_TERM):
        return cast(np.float32, np.uint32(0x7FC00000).view(np.float32))
    if flags & (PLUS_TERM | MINUS_TERM):
        return Grid(32).value(_INFINITY if flags & PLUS_TERM else -_INFINITY)
    return None


def rounded(accumulator: Any, bits: int) -> np.float32:
    """R(v*) of the sum in a record (NUMERICS 13.2, 13.4); `bits` is B."""
    number, flags = number_and_flags(accumulator)
    given, grid = special_value(flags), Grid(bits)
    return grid.value(grid.nearest(number)) if given is None else given


def accumulator_text(accumulator: Any) -> str:
    """The sum for a person: its approximate size, and its exact digits."""
    number, flags = number_and_flags(accumulator)
    given = special_value(flags)
    bits = number.bit_length() - 53
    near = math.ldexp(number >> max(bits, 0), max(bits, 0) - UNIT) if given is None else given
    return f"{near!s} ({number:#x} * 2^-{UNIT}, flags {flags})"


# --- the rule -------------------------------------------------------------------------------------
# The terms that a prover gathers at once; the number bounds working memory.
_GATHERED = 1 << 20


def is_sum(x: Summed) -> bool:
    """True if the element is R(v*): what is added to a DOT is its last term (NUMERICS 13.3)."""
    return x.after is None or x.last is not None


def count_of(x: Summed) -> int:
    """K of NUMERICS 14.4: the number of terms, with the last one of a DOT."""
    return x.terms.count + (x.last is not None)


def finished(x: Summed, value: np.float32, source: Source) -> Any:
    """The element, given R(v*) or the entry's value (NUMERICS 13.3, 14.5)."""
    return value if is_sum(x) else x.made_of(value, source)


def exact_chain(x: Summed) -> Chain:
    """v* as an accumulator record: a link adds 128 terms."""
    terms, count = x.terms, count_of(x)

    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        end = min(last * CHUNK, count)
        for at in range(first * CHUNK, min(end, terms.count), _GATHERED):
            index = np.arange(at, min(at + _GATHERED, end, terms.count), dtype=np.int64)
            if isinstance(terms, Products):
                state = add_products(state, *terms.factors(source, index))
            else:
                state = add_terms(state, terms.terms(source, (), index))
        if x.last is not None and end == count:
            state = add_terms(state, x.last(source))
        return state

    return Chain("exact sum", "acc", -(-count // CHUNK), 1, EMPTY, advance, weight=CHUNK)


def rounded_rule(site: Site, bits: int) -> Local:
    """The quantity of an f32 element of a rounded operator on the grid of B = `bits`."""
    element = summed(site)

    def compute(source: Source, needs: Needs) -> Any:
        return finished(element, rounded(needs[0], bits), source)

    return Local("R(exact sum)", "f32", compute, (exact_chain(element),))
