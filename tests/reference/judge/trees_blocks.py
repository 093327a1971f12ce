"""Blocks of integers (OPENING 12): the DOTs of `exact/1`, link by link."""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import Any

import numpy as np

from reference.exact_blocks import LENGTH
from reference.judge.quantities import Element, Q, at
from reference.judge.trees_dot import NAMES, after, chain, dot_of, factor

INFINITE = 0x7F800000
Side = tuple[int, int, int, int]  # operand, base, stride, each


def width_of(contract: str) -> int:
    found = re.search(r";b=(\d+)", contract)
    assert found is not None
    return int(found.group(1))


def has_blocks(x: Element) -> bool:
    """12.1: an element of a DOT."""
    return x.op in {f"aten.{n}" for n in NAMES} and dot_of(x) is not None


def sides(x: Element) -> tuple[int, int, Side, Side]:
    """Outer values, I, and the rows of 12.2.1."""
    if x.op == "aten.convolution":
        (_, c, h, w), (f, d, kh, kw) = x.shape(0), x.shape(1)
        m, o = at(x.e, x.out[1])[:2]
        c0 = o // (f // x.attrs["groups"]) * d
        taps = kh * kw
        return d, taps, (0, (m * c + c0) * h * w, h * w, h * w), (1, o * d * taps, taps, taps)
    if x.op == "aten.convolution_backward":
        return _gradient(x)
    left, right = (1, 2) if x.op == "aten.addmm" else (0, 1)
    m, k = x.shape(left)[-2:]
    n = x.shape(right)[-1]
    row, j = x.e // n, x.e % n
    return k, 1, (left, row * k, 1, 1), (right, row // m * k * n + j, n, 1)


def _gradient(x: Element) -> tuple[int, int, Side, Side]:
    count, f, y, v = x.shape(0)
    c_all, h, w = x.shape(1)[1:]
    _, d, kh, kw = x.shape(2)
    per, plane, taps = f // x.attrs["groups"], y * v, kh * kw
    there = [k for k, on in enumerate(x.attrs["output_mask"]) if on]
    if there[x.output] == 0:
        m, t = at(x.e, x.out[1])[:2]
        o0 = t // d * per
        left = (0, (m * f + o0) * plane, plane, plane)
        return per, taps, left, (2, (o0 * d + t % d) * taps, d * taps, taps)
    o, c = at(x.e, x.out[1])[:2]
    channel = o // per * d + c
    left = (0, o * plane, f * plane, plane)
    return count, plane, left, (1, channel * h * w, c_all * h * w, h * w)


def value_of(bits: int) -> Fraction:
    return Fraction(float(np.uint32(bits).view(np.float32)))


def exponent(bits: int) -> int:
    """e of NUMERICS 17.4."""
    e = -149
    while Fraction(2) ** e <= value_of(bits):
        e += 1
    return e


def integer(x: Any, bits: int, b: int) -> int:
    """12.4."""
    if bits in (0,) or bits >= INFINITE or not math.isfinite(x):
        return 0
    m = round(Fraction(float(x)) * Fraction(2) ** (b - 1 - exponent(bits)))
    return max(-(2 ** (b - 1)), min(m, 127 if b == 8 else 2 ** (b - 1)))


def ended(total: float, whole: int, mu: int, nu: int, b: int) -> float:
    """12.5."""
    if mu >= INFINITE or nu >= INFINITE:
        return math.nan
    value = 0.0
    if mu and nu:
        value = float(whole) * 2.0 ** (exponent(mu) + exponent(nu) - 2 * (b - 1)) + 0.0
    return total + value


def blocks(x: Element, b: int) -> Q:
    """12.2 to 12.5."""
    dot = dot_of(x)
    assert dot is not None
    outer, inner, left, right = sides(x)
    step = max(1, LENGTH[b] // inner) if inner else 1
    plan: list[tuple[int, int, int, int, int]] = []  # phase, first outer, begin, end, size
    for u in range(0, outer, step):
        n = min(step, outer - u)
        for phase, size in enumerate((n * left[3], n * right[3], n * inner)):
            plan += [(phase, u, k, min(k + 128, size), size) for k in range(0, size, 128)]
    # The factor that is read first is not the left one of a weight gradient (7.3.6).
    turned = dot.name == "weight gradient"

    def f(read: Any, first: int, last: int, state: bytes) -> Any:
        total, whole, mu, nu = struct.unpack("<dqII", state)
        for phase, u, begin, end, size in plan[first:last]:
            if phase < 2:
                operand, base, stride, each = right if phase else left
                places = [base + (u + i // each) * stride + i % each for i in range(begin, end)]
                found = yield from read(operand, places)
                bits = [int(np.float32(v).view(np.uint32)) & 0x7FFFFFFF for v in found]
                if phase:
                    nu = max(nu, *bits)
                else:
                    if begin == 0:
                        whole = mu = nu = 0
                    mu = max(mu, *bits)
                continue
            numbers = range(u * inner + begin, u * inner + end)
            one = yield from factor(read, dot.first, numbers)
            two = yield from factor(read, dot.second, numbers)
            a, c = (two, one) if turned else (one, two)
            whole += sum(integer(p, mu, b) * integer(q, nu, b) for p, q in zip(a, c, strict=True))
            whole = (whole + 2**63) % 2**64 - 2**63
            if end == size or end % LENGTH[b] == 0:
                total, whole = ended(total, whole, mu, nu, b), 0
        total = math.nan if math.isnan(total) else total
        return struct.pack("<dqII", total, whole, mu, nu)

    return Q("chain", "blk", "blocks", f, count=len(plan), start=bytes(24), stretch=1)


def exact_blocks(x: Element, contract: str) -> Q:
    """12.1, 12.6."""
    dot = dot_of(x)
    assert dot is not None

    def f(read: Any, record: bytes, ordinary: Any) -> Any:
        total = struct.unpack("<d", record[:8])[0]
        with np.errstate(all="ignore"):
            d = ordinary if math.isnan(total) else np.float32(total)
            if x.op == "aten.addmm" or (x.op == "aten.convolution" and x.has(2)):
                return (yield from after(x, read, d))
        return d
        yield

    return Q("local", "f32", "RN32(total)", f, [blocks(x, width_of(contract)), chain(dot)])
