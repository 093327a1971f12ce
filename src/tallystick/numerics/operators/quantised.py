"""Weights in blocks of small integers with a scale, as GGUF files hold them (NUMERICS 19).

The value of a number is made of the bytes of its block: `base` is where the block begins in `raw`,
`j` the number's place in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    STR,
    Result,
    Types,
    check_dtype,
    declares,
    operands,
    text,
)
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.graph import Expr, case, constant, convert, is_, primitive, select
from tallystick.numerics.values.positions import Part, choice, element, local, read


class BlockShape(NamedTuple):
    """Numbers of a block, and its bytes."""

    elements: int
    size: int


BLOCKS: dict[str, BlockShape] = {
    "q4_0": BlockShape(32, 18),
    "q4_1": BlockShape(32, 20),
    "q5_0": BlockShape(32, 22),
    "q5_1": BlockShape(32, 24),
    "q8_0": BlockShape(32, 34),
    "q4_k": BlockShape(256, 144),
    "q5_k": BlockShape(256, 176),
    "q6_k": BlockShape(256, 210),
}
# A whole block as an element. A field of bytes keeps it from being taken for something else, and
# its name says the format to kernels that read blocks in their place (program/fused.py).
BLOCK_DTYPES: dict[str, np.dtype[np.generic]] = {
    name: np.dtype([(name, f"V{shape.size}")]) for name, shape in BLOCKS.items()
}


def block_format(dtype: np.dtype[np.generic]) -> str | None:
    """The format whose blocks are the elements of an array of this dtype; None of another."""
    names = dtype.names
    return names[0] if names is not None and names[0] in BLOCKS else None


_HERE = element()


# --- a block's bytes ------------------------------------------------------------------------------
def _byte(at: Expr) -> Expr:
    """A byte of `raw` as an i64."""
    return convert(read("raw", at, "u8"), "i64")


def _shifted(x: Expr, by: Expr | int) -> Expr:
    """x without its `by` lowest bits."""
    return primitive("right_shift", x, convert(by, "i64") if isinstance(by, Expr) else by)


def _masked(x: Expr, mask: int) -> Expr:
    return primitive("and", x, mask)


def _signed(x: Expr) -> Expr:
    """A byte as a number of two's complement."""
    return select(primitive("ge", x, 128), x - 256, x)


def _f32(x: Expr) -> Expr:
    return convert(x, "f32")


def _half(at: Expr) -> Expr:
    """The binary16 number in two bytes, the lower one first, as a binary32 (19.2)."""
    bits = _byte(at) + _byte(at + 1) * 256
    exponent, fraction = _masked(_shifted(bits, 10), 31), _masked(bits, 1023)
    # In units of 2^-25, in which every finite number is whole.
    units = select(
        primitive("eq", exponent, 0),
        fraction + fraction,
        primitive("left_shift", fraction + 1024, exponent),
    )
    infinity = constant(math.inf, "f32")
    special = primitive("eq", exponent, 31)
    size = select(special, infinity, _f32(units) * 2.0**-25)
    number = select(primitive("ge", bits, 1 << 15), -size, size)
    is_nan = primitive("and", special, primitive("ne", fraction, 0))
    return select(is_nan, infinity - infinity, number)


def _nibble(at: Expr, high: Expr) -> Expr:
    """The lower four bits of a byte, or the higher ones: `high` is 0 or 1."""
    return _masked(_shifted(_byte(at), high * 4), 15)


# --- formats of 32 (19.3) -------------------------------------------------------------------------
def _of_four(base: Expr, quants: int, j: Expr) -> Expr:
    return _nibble(base + quants + j % 16, j // 16)


def _of_five(base: Expr, highs: int, j: Expr) -> Expr:
    """Four bits, and a fifth from a row of 32."""
    high = _masked(_shifted(_byte(base + highs + j // 8), j % 8), 1)
    return _of_four(base, highs + 4, j) + high * 16


# --- formats of 256 (19.4) ------------------------------------------------------------------------
def _scaled(base: Expr, j: Expr, q: Expr) -> Expr:
    """d·scale·q − dmin·minimum: the scale and the minimum of the 32 numbers, six bits each."""
    s, scales = j // 32, base + 4
    packed = _byte(scales + s + 4)
    low = primitive("lt", s, 4)
    scale = choice(
        low,
        _masked(_byte(scales + s), 63),
        _masked(packed, 15) + _shifted(_byte(scales + s - 4), 6) * 16,
    )
    least = choice(
        low, _masked(packed, 63), _shifted(packed, 4) + _shifted(_byte(scales + s), 6) * 16
    )
    return (_half(base) * _f32(scale)) * _f32(q) - _half(base + 2) * _f32(least)


def _of_pair(quants: Expr, j: Expr) -> Expr:
    """Four bits: of 64 numbers the first 32 are the lower halves of 32 bytes."""
    return _nibble(quants + j // 64 * 32 + j % 32, j // 32 % 2)


def _q5_k(base: Expr, j: Expr) -> Expr:
    high = _masked(_shifted(_byte(base + 16 + j % 32), j // 32), 1)
    return _scaled(base, j, _of_pair(base + 48, j) + high * 16)


def _q6_k(base: Expr, j: Expr) -> Expr:
    half, rest = j // 128, j % 128
    low = _nibble(base + half * 64 + rest % 64, rest // 64)
    high = _masked(_shifted(_byte(base + 128 + half * 32 + rest % 32), rest // 32 * 2), 3)
    scale = _signed(_byte(base + 192 + j // 16))
    return (_half(base + 208) * _f32(scale)) * _f32(low + high * 16 - 32)


# Over where a block begins, and the number's place in it.
_VALUES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "q4_0": lambda base, j: _half(base) * _f32(_of_four(base, 2, j) - 8),
    "q4_1": lambda base, j: _half(base) * _f32(_of_four(base, 4, j)) + _half(base + 2),
    "q5_0": lambda base, j: _half(base) * _f32(_of_five(base, 2, j) - 16),
    "q5_1": lambda base, j: _half(base) * _f32(_of_five(base, 4, j)) + _half(base + 2),
    "q8_0": lambda base, j: _half(base) * _f32(_signed(_byte(base + 2 + j))),
    "q4_k": lambda base, j: _scaled(base, j, _of_pair(base + 16, j)),
    "q5_k": _q5_k,
    "q6_k": _q6_k,
}
DEQUANTIZE = "tallystick.dequantize"


def _value() -> Part:
    def of(name: str) -> Expr:
        block = BLOCKS[name]
        return _VALUES[name](_HERE // block.elements * block.size, _HERE % block.elements)

    names = list(BLOCKS)
    value = reduce(
        lambda rest, name: case(is_("format", name), of(name), rest),
        reversed(names[:-1]),
        of(names[-1]),
    )
    return local("out", value)


@declares("composite", only_under=("ordered/1", "rounded/1"))(
    DEQUANTIZE,
    "19",
    ("raw",),
    {"u8": (_value(),)},
    {"format": STR},
    uncaptured="a model's file says which weights are quantised (PROGRAM 3.6)",
)
def _dequantize(op: str, attrs: Attrs, inputs: Types) -> Result:
    (raw,) = operands(op, inputs, 1)
    check_dtype(op, raw, ("u8",))
    name = text(attrs, "format")
    found = BLOCKS.get(name)
    if found is None:
        raise UsageError(f"{op}: {name[:40]!r} is none of the formats {', '.join(BLOCKS)}.")
    if not raw.shape or raw.shape[-1] % found.size:
        raise UsageError(f"{op}: rows of {raw} are no whole blocks of {found.size} bytes.")
    count = raw.shape[-1] // found.size * found.elements
    return (TensorType("f32", (*raw.shape[:-1], count)),)
