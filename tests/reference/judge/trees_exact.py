"""Exact sums (OPENING 8): the elements of rounded operators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from reference.floats import F64, rn32_int
from reference.judge.quantities import Element, Q, bcast
from reference.judge.trees_dot import after, bias_gradient, dot_of, factor
from reference.judge.trees_reduce import places
from reference.rounded import record, rounded_record

ROUNDED = {
    f"aten.{n}"
    for n in (
        "mm bmm addmm convolution convolution_backward sum sum.dim_IntList mean mean.dim"
    ).split()
}
START = bytes(80)


def rounds(x: Element) -> bool:
    """Whether it is an f32 output of a rounded operator (8.1)."""
    return x.op in ROUNDED and x.out[0] == "f32"


def bits_of(contract: str) -> int:
    found = re.search(r";b=(\d+)", contract)
    return int(found.group(1)) if found else 32


def add(state: bytes, values: list[float]) -> bytes:
    """8.5: the sum is modulo 2^632; the upper flags are kept as they are."""
    after_all = record(values, START)
    total = int.from_bytes(state[:79], "little") + int.from_bytes(after_all[:79], "little")
    return (total % 2**632).to_bytes(79, "little") + bytes([state[79] | after_all[79]])


def last_term(x: Element) -> tuple[int, int] | None:
    """The operand and position of the term after the products, if there is one (8.2)."""
    if x.op == "aten.convolution" and x.has(2):
        return 2, x.e // int(np.prod(x.out[1][2:])) % x.out[1][1]
    if x.op == "aten.addmm" and x.attrs["alpha"] == 1 and x.attrs["beta"] == 1:
        return 0, bcast(x.e, x.out[1], x.shape(0))
    return None


def summed(x: Element) -> tuple[int, Any]:
    """L of a sum, and its reads: (read, numbers) -> the terms."""
    count, place = bias_gradient(x) if x.op == "aten.convolution_backward" else places(x)

    def f(read: Any, numbers: range) -> Any:
        return (yield from read(0, [place(i) for i in numbers]))

    return count, f


def products(dot: Any, read: Any, numbers: range) -> Any:
    a = yield from factor(read, dot.first, numbers)
    b = yield from factor(read, dot.second, numbers)
    return np.array(a, np.float32).astype(F64), np.array(b, np.float32).astype(F64)


def exact_sum(x: Element) -> tuple[Q, int]:
    """The chain, and K."""
    dot = dot_of(x) if not x.op.startswith(("aten.sum", "aten.mean")) else None
    length, terms = (dot.length, None) if dot is not None else summed(x)
    last = last_term(x)
    k = length + (last is not None)

    def f(read: Any, first: int, end: int, state: bytes) -> Any:
        for c in range(first, end):
            numbers = range(128 * c, min(128 * (c + 1), length))
            if terms is None:
                a, b = yield from products(dot, read, numbers)
                values = [float(v) for v in a * b]
            else:
                values = [float(v) for v in (yield from terms(read, numbers))]
            if last is not None and length < 128 * (c + 1):
                values.append(float((yield from read(last[0], [last[1]]))[0]))
            state = add(state, values)
        return state

    return Q("chain", "acc", "exact sum", f, count=-(-k // 128), start=START, stretch=1), k


def follows(x: Element, read: Any, v: Any) -> Any:
    """8.5.2: what follows R."""
    if x.op.startswith("aten.mean"):
        return v / rn32_int(places(x)[0])
    plain = x.op != "aten.addmm" or (x.attrs["alpha"] == 1 and x.attrs["beta"] in (0, 1))
    if plain:
        return v
    return (yield from after(x, read, v))


def from_bits(bits: int) -> Any:
    return np.uint32(bits).view(np.float32)


def exact(x: Element, contract: str) -> Q:
    chain, _ = exact_sum(x)

    def f(read: Any, acc: bytes) -> Any:
        return (yield from follows(x, read, from_bits(rounded_record(acc, bits_of(contract)))))

    return Q("local", "f32", "R(exact sum)", f, [chain])
