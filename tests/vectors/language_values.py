"""Rows of vectors/language/values.json: operands of every primitive, by hand and drawn.

The expected bits are those of tests/reference/language.py.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from reference.exact import ELEMENTARY
from reference.language import WIDTH, encoded, of_float, result, zero

FLOATS, EVERY = ("f32", "f64"), ("f32", "f64", "i64", "i32", "u8", "bool")
DRAWN = 40
CONVERSIONS = (
    ("f64", "f32"), ("f32", "f64"), ("i64", "f32"), ("bool", "f32"), ("bool", "i64"),
    ("f32", "i64"), ("f32", "bool"), ("i64", "bool"), ("i32", "i64"), ("u8", "i64"),
    ("i64", "i32"), ("i64", "u8"), ("bf16", "f32"), ("f16", "f32"),
)  # fmt: skip

_F32 = (
    0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,  # the ends
    0xFFC00000, 0x7F800001, 0xFFFFFFFF,  # other NaNs
    1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x00400000,  # subnormals
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F000000, 0x73000000, 0xF3000000,  # the largest; half of its ulp
    0x33800000, 0x33800001, 0xB3800000, 0xB3000000, 0x3F800001, 0x3F7FFFFF, 0x34000000,  # ties at 1
    0x40000000, 0x40400000, 0xC0400000, 0x3F000000, 0x3EAAAAAB, 0x4B800000, 0x4B800001,
    0x40490FDB, 0x3DCCCCCD, 0x5F000000, 0xDF000000, 0x1F800000, 0x20000000, 0x60AD78EC,
)  # fmt: skip
_F64 = (
    0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
    0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 1, (1 << 63) | 1,
    0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF,
    0x7C90000000000000, 0x3CA0000000000000, 0x3CA0000000000001, 0xBC90000000000000,
    0x3FF0000000000001, 0x3FEFFFFFFFFFFFFF, 0x4000000000000000, 0x4008000000000000,
    0x3FD5555555555555, 0x4340000000000000, 0x4340000000000001, 0x1FF0000000000000,
    0x3FB999999999999A, 0x41DFFFFFFFC00000,
)  # fmt: skip
# f64 numbers where RN32 has ties, overflow and underflow.
_TO_F32 = (
    0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x3FF000000FFFFFFF,
    0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000, 0x47EFFFFFE0000000, 0xC7EFFFFFF0000000,
    0x3690000000000000, 0x3690000000000001, 0xB690000000000000, 0x36A8000000000000,
    0x36A0000000000000, 0x380FFFFFF0000000, 0x380FFFFFEFFFFFFF, 0x3800000010000000,
)  # fmt: skip
_I64 = (0, 1, -1, 2, -2, 3, -3, 7, -7, 10, 31, 32, 62, 63, 64, 65, -63, -64, 127, 128, 255, 256,
        -128, -129, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) + 5, 1 << 32,
        (1 << 53) + 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), -(1 << 63) + 1,
        0x5555555555555555, 3037000500, -3037000500)  # fmt: skip
# i64 numbers where RN32 has ties, which a rounding by way of f64 would get wrong.
_TO_FLOAT = ((1 << 24) + 3, -(1 << 24) - 1, (1 << 54) + (1 << 30) + 1, (1 << 54) + (1 << 30),
             (1 << 55) + (3 << 31), (1 << 62) + (1 << 38) + 1, (1 << 63) - (1 << 38),
             (1 << 63) - (1 << 38) - 1)  # fmt: skip
_I32 = (0, 1, -1, 2, -2, 255, 256, (1 << 31) - 1, -(1 << 31), 1 << 24)
_U8 = (0, 1, 2, 127, 128, 254, 255)
SPECIAL = {
    "f32": _F32,
    "f64": _F64,
    "i64": tuple(x & ((1 << 64) - 1) for x in _I64),
    "i32": tuple(x & ((1 << 32) - 1) for x in _I32),
    "u8": _U8,
    "bool": (0, 1),
    # The ends, other NaNs, subnormals, the largest and the least normal numbers, and some more.
    "bf16": (
        0,
        0x8000,
        0x3F80,
        0xBF80,
        0x7F80,
        0xFF80,
        0x7FC0,
        0xFFC0,
        0x7F81,
        0xFFFF,
        1,
        0x8001,
        0x7F,
        0x807F,
        0x40,
        0x80,
        0x8080,
        0x7F7F,
        0xFF7F,
        0x3F81,
        0x3EAB,
        0x4049,
        0x3DCD,
    ),
    "f16": (
        0,
        0x8000,
        0x3C00,
        0xBC00,
        0x7C00,
        0xFC00,
        0x7E00,
        0xFE00,
        0x7C01,
        0xFFFF,
        1,
        0x8001,
        2,
        3,
        0x3FF,
        0x83FF,
        0x200,
        0x400,
        0x8400,
        0x7BFF,
        0xFBFF,
        0x3C01,
        0x3555,
        0x4248,
    ),
}


def drawn(what: str) -> Iterator[int]:
    """Numbers below 2^64 without end, the same on every machine."""
    for k in itertools.count():
        digest = hashlib.sha256(f"{what} {k}".encode()).digest()
        yield from (int.from_bytes(digest[i : i + 8], "little") for i in (0, 8, 16, 24))


def operand(numbers: Iterator[int], dtype: str) -> int:
    """A special number, or drawn bits; floats of like magnitudes are as frequent as others."""
    choice, at, bits = (next(numbers) for _ in range(3))
    if dtype in FLOATS and choice % 4 == 0:  # an exponent about that of 1
        top, digits = (127, 23) if dtype == "f32" else (1023, 52)
        fraction = bits & ((1 << digits) - 1)
        return (bits >> 63) << (WIDTH[dtype] - 1) | (top - 2 + at % 5) << digits | fraction
    if dtype == "bool" or choice % 4 < 3:
        return SPECIAL[dtype][at % len(SPECIAL[dtype])]
    return bits & ((1 << WIDTH[dtype]) - 1)


def text(bits: int, dtype: str) -> str:
    """Bits as hexadecimal digits, all of them."""
    return f"{bits:0{WIDTH[dtype] // 4}x}"


def _by_hand(kind: str, of: Sequence[str]) -> Iterator[tuple[int, ...]]:
    if len(of) == 1:
        more: dict[tuple[str, str], tuple[int, ...]] = {
            ("convert", "f64"): _TO_F32,
            ("convert", "i64"): tuple(x & ((1 << 64) - 1) for x in _TO_FLOAT),
        }
        yield from ((x,) for x in SPECIAL[of[0]] + more.get((kind, of[0]), ()))
    elif len(of) == 2:
        ends = SPECIAL[of[0]][:7]
        yield from itertools.product(ends, ends)
        if kind.endswith("_shift"):
            counts = [x & ((1 << 64) - 1) for x in (0, 1, 62, 63, 64, 65, 127, 1 << 32, -1, -64)]
            yield from ((a, b) for a in SPECIAL["i64"][-8:] for b in counts)
    elif kind == "fma":
        # Rounded twice, by way of f64 or of f32, these would be other numbers.
        yield 0x3F800001, 0x3F800001, 0x33800000
        yield 0x3F800001, 0x3F7FFFFF, 0xBF800000
        yield 0x3F800000, 0x4B800000, 0x3F800001
        yield 0x3F800001, 0x4B800000, 0x3F000000
        yield 0x7F7FFFFF, 0x40000000, 0xFF7FFFFF
        yield 0x00000001, 0x3F000000, 0x80000000
        yield 0x00000001, 0xBF000000, 0x00000000
        yield from itertools.product((0, 1 << 31, 0x3F800000, 0xFF800000, 0x7FC00000), repeat=3)
    elif kind == "select":
        for where in (0, 1):
            yield from ((where, a, b) for a, b in itertools.product(SPECIAL[of[1]][:8], repeat=2))


def _undefined(kind: str, dtype: str, of: Sequence[str], bits: Sequence[int]) -> bool:
    """True where the operator of that primitive refuses the operands (10.7, 10.10)."""
    if kind == "floor_divide":
        return bits[1] == 0
    if kind == "convert" and of == ("f32",) and dtype == "i64":
        # Finite and −2^63 <= x < 2^63: a magnitude below 2^63, or −2^63 itself.
        return bits[0] & 0x7FFFFFFF >= 0x5F000000 and bits[0] != 0xDF000000
    return False


def _signatures() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Kind, dtype of the result, dtypes of the operands, clause."""
    for kind in ("add", "sub", "mul"):
        yield from ((kind, dtype, (dtype,) * 2, "1.3") for dtype in FLOATS)
        yield kind, "i64", ("i64",) * 2, "10.8"
    yield from (("div", dtype, (dtype,) * 2, "1.3") for dtype in FLOATS)
    yield from (("sqrt", dtype, (dtype,), "1.3") for dtype in FLOATS)
    yield "fma", "f32", ("f32",) * 3, "1.4"
    yield from ((kind, dtype, (dtype,), "10.3") for kind in ("neg", "abs") for dtype in FLOATS)
    yield from ((kind, d, (d,) * 2, "1.11") for kind in ("max", "min") for d in ("f32", "i64"))
    for kind in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield from ((kind, "bool", (dtype,) * 2, "1.10, 10.5") for dtype in EVERY)
    for kind in ("and", "or", "xor"):
        yield from ((kind, d, (d,) * 2, "10.5, 10.11") for d in ("bool", "i64"))
    yield from (("not", d, (d,), "10.5, 10.11") for d in ("bool", "i64"))
    yield "floor_divide", "i64", ("i64",) * 2, "10.10"
    yield from ((f"{way}_shift", "i64", ("i64",) * 2, "10.11") for way in ("left", "right"))
    yield from ((kind, "f32", ("f32",), "5.1") for kind in ELEMENTARY)
    yield "pow", "f32", ("f32",) * 2, "5.8"
    yield from (("convert", new, (old,), "10.7") for old, new in CONVERSIONS)
    yield from (("select", dtype, ("bool", dtype, dtype), "9") for dtype in EVERY)


def primitives() -> Iterator[dict[str, Any]]:
    """Every primitive on every dtype that it takes."""
    for kind, dtype, of, clause in _signatures():
        numbers = drawn(f"{kind} {dtype} {of}")
        calls = dict.fromkeys(_by_hand(kind, of))
        if len(of) > 1 or of[0] != "bool":
            for _ in range(DRAWN):
                calls[tuple(operand(numbers, one) for one in of)] = None
        rows, refused = [], []
        for bits in calls:
            row = [text(x, one) for x, one in zip(bits, of, strict=True)]
            if _undefined(kind, dtype, of, bits):
                refused.append(row)
            else:
                rows.append([*row, text(result(kind, dtype, of, bits), dtype)])
        group = {"kind": kind, "dtype": dtype, "of": list(of), "clause": clause, "rows": rows}
        if refused:
            group["refused"] = refused
        yield group


# -- leaves ----------------------------------------------------------------------------------------
_ATTRIBUTES: dict[str, tuple[float, ...]] = {
    "f32": (0.0, -0.0, 1.0, 0.1, 1e-60, -1e-60, 1e60, float("inf"), float("-inf"), float("nan"),
            1.0 + 2.0**-24, 1.0 + 3 * 2.0**-24, 2.0**-149, 2.0**-150, 2.0**128 - 2.0**103),
    "f64": (0.0, -0.0, 0.1, 1e-310, float("nan"), float("-inf")),
    "i64": (0.0, -0.0, -3.0, 2.0**53, -(2.0**63), 2.0**63 - 1024),
    "i32": (0.0, -0.0, -1.0, -(2.0**31), 2.0**31 - 1),
    "u8": (0.0, -0.0, 1.0, 255.0),
    "bool": (0.0, -0.0, 1.0),
}  # fmt: skip
_SIZES = (0, 1, 2, 3, (1 << 24) - 1, (1 << 24) + 1, (1 << 24) + 3, (1 << 54) + (1 << 30) + 1)


def attributes() -> Iterator[dict[str, Any]]:
    """A float attribute as a number of each dtype."""
    for dtype, values in _ATTRIBUTES.items():
        rows = [[value.hex(), text(of_float(value, dtype), dtype)] for value in values]
        yield {"kind": "attribute", "dtype": dtype, "clause": "1.9, 10.1", "rows": rows}


def sizes() -> Iterator[dict[str, Any]]:
    """A number of elements as f32 (1.2)."""
    rows = [[n, text(result("convert", "f32", ("i64",), (n,)), "f32")] for n in _SIZES]
    yield {"kind": "size", "dtype": "f32", "clause": "1.2", "rows": rows}


def constants() -> Iterator[dict[str, Any]]:
    """A constant's number, which its dtype holds exactly, as bits."""
    for dtype in FLOATS:
        exact = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 2.0**-149]
        rows: list[list[Any]] = [[x.hex(), text(of_float(x, dtype), dtype)] for x in exact]
        yield {"kind": "constant", "dtype": dtype, "clause": "1.1", "rows": rows}
    for dtype, numbers in (("i64", (0, 1, -1, -(1 << 63), (1 << 63) - 1)), ("i32", (0, -1)),
                           ("u8", (0, 255))):  # fmt: skip
        width = (1 << WIDTH[dtype]) - 1
        rows = [[x, text(x & width, dtype)] for x in numbers]
        yield {"kind": "constant", "dtype": dtype, "clause": "1.1", "rows": rows}
    yield {"kind": "constant", "dtype": "bool", "clause": "1.1",
           "rows": [[False, "00"], [True, "01"]]}  # fmt: skip


def conditions() -> Iterator[dict[str, Any]]:
    """Whether a condition holds of attributes, by their kinds, and of the operands there."""
    kinds = {"alpha": "float", "dim": "int", "mean": "bool", "reduction": "str", "max": "float"}
    zero_, one = (0.0).hex(), (1.0).hex()
    for condition, attrs, given, holds in (
        ({"is": "alpha", "equal": zero_}, {"alpha": (-0.0).hex()}, [], True),
        ({"is": "alpha", "equal": (-0.0).hex()}, {"alpha": zero_}, [], True),
        ({"is": "alpha", "equal": zero_}, {"alpha": (1e-60).hex()}, [], False),
        ({"is": "alpha", "equal": one}, {"alpha": one}, [], True),
        ({"is": "alpha", "equal": one}, {"alpha": (1.0 + 2.0**-52).hex()}, [], False),
        ({"is": "alpha", "equal": one}, {"alpha": "nan"}, [], False),
        ({"is": "dim", "equal": -1}, {"dim": -1}, [], True),
        ({"is": "dim", "equal": -1}, {"dim": 1}, [], False),
        ({"is": "mean", "equal": True}, {"mean": True}, [], True),
        ({"is": "mean", "equal": True}, {"mean": False}, [], False),
        ({"is": "reduction", "equal": "mean"}, {"reduction": "mean"}, [], True),
        ({"is": "reduction", "equal": "mean"}, {"reduction": "sum"}, [], False),
        ({"has": "max"}, {"max": (-0.0).hex()}, [], True),
        ({"has": "max"}, {}, [], False),
        ({"has": "weight"}, {}, ["x", "weight"], True),
        ({"has": "weight"}, {}, ["x"], False),
    ):
        yield {"condition": condition, "kinds": {name: kinds[name] for name in attrs},
               "attributes": attrs, "given": given, "holds": holds}  # fmt: skip


def document() -> dict[str, list[dict[str, Any]]]:
    """The members of the file that are lists, a row of which is a line."""
    assert encoded(zero(True), "f32") == 1 << 31
    return {
        "primitives": [*primitives()],
        "leaves": [*attributes(), *sizes(), *constants()],
        "conditions": [*conditions()],
    }
