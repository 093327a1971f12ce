"""Quantities of an element, and their values as bytes (OPENING 1, 2)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference.floats import canonical
from reference.judge.merkle import NUMPY, Type
from reference.sums import sum_columns

F32, F64 = np.float32, np.float64
ZERO = F32(0)
WIDTHS = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "u8": 1, "bool": 1, "bf16": 2, "f16": 2,
          "acc": 80, "real": 16, "blk": 24}  # fmt: skip
Formula = Callable[..., Generator[Any, Any, Any]]
Shape = tuple[int, ...]


class RefusedError(Exception):
    """A formula refuses what it reads (OPENING 5.4)."""


@dataclass
class Q:
    """A quantity. `f` by kind: local (read, *needs); tree (read, numbers, *needs);
    chain (read, first, last, state, *needs); extremum: the position of element i in operand 0;
    terms: the quantity of term i; logged (game part, *needs).

    `lifted` is the lifted formula of a local, where it is another one (OPENING 9.3.4). `values` is
    what a link-by-link sum adds: (read, first, last) -> (what the state begins with, or None; the
    values that are added).
    """

    kind: str
    dtype: str
    name: str
    f: Any
    needs: list[Q] = field(default_factory=list)
    count: int = 0
    start: Any = ZERO
    stretch: int = 256
    word: str = "max"
    lifted: Any = None
    values: Any = None


def encode(dtype: str, value: Any) -> bytes:
    """1.3, with the canonical NaN (1.6)."""
    if dtype in ("acc", "blk"):
        return bytes(value)
    if dtype == "real":
        x, e = value
        return canonical(np.asarray(x, F64)).tobytes() + struct.pack("<d", float(e))
    if dtype in ("f32", "f64"):
        return canonical(np.asarray(value, NUMPY[dtype])).tobytes()
    return np.asarray(int(value)).astype(NUMPY[dtype]).tobytes()


def decode(dtype: str, data: bytes) -> Any:
    if dtype in ("acc", "blk"):
        return data
    if dtype == "real":
        x, e = struct.unpack("<dd", data)
        return F64(x), F64(math.inf if not e >= 0 else e)
    value = np.frombuffer(data, NUMPY[dtype])[0]
    return value if dtype in ("f32", "f64") else int(value)


def block(dtype: str, values: Sequence[Any]) -> Any:
    """At most 256 values added as one block (2.1, 2.7); +0 of none."""
    if dtype == "i64":
        return (sum(int(v) for v in values) + 2**63) % 2**64 - 2**63
    if dtype == "real":
        x, e = ([v[k] for v in values] for k in (0, 1))
        return block("f64", x), canonical(np.asarray(block("f64", e), F64))[()]
    array = np.array(values, F32 if dtype == "f32" else F64)
    with np.errstate(all="ignore"):
        return sum_columns(array.reshape(-1, 1))[0]


def added(name: str, count: int, values: Any, start: Any = ZERO) -> Q:
    """A chain whose links add values, one after the other (7.4.2, 7.5.1)."""

    def f(read: Any, first: int, last: int, state: Any) -> Any:
        begin, found = yield from values(read, first, last)
        state = state if begin is None else begin
        for v in found:
            state = state + v
        return state

    return Q("chain", "f32", name, f, count=count, start=start, values=values)


def at(f: int, shape: Shape) -> list[int]:
    c = []
    for n in reversed(shape):
        c.append(f % n)
        f //= n
    return c[::-1]


def flat(c: Sequence[int], shape: Shape) -> int:
    f = 0
    for i, n in zip(c, shape, strict=True):
        f = f * n + i
    return f


def bcast(f: int, out: Shape, shape: Shape) -> int:
    c = at(f, out)[len(out) - len(shape) :]
    return flat([0 if n == 1 else i for i, n in zip(c, shape, strict=True)], shape)


@dataclass
class Element:
    """One element of an output of a node (1.1)."""

    op: str
    attrs: dict[str, Any]
    operands: list[Type | None]
    out: Type
    output: int
    e: int

    def shape(self, k: int) -> Shape:
        kind = self.operands[k]
        assert kind is not None
        return kind[1]

    def has(self, k: int) -> bool:
        return k < len(self.operands) and self.operands[k] is not None

    def axis(self, rank: int) -> int:
        return int(self.attrs["dim"]) % rank if rank else 0
