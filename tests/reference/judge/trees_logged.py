"""Quantities under a contract with logs (OPENING 8, 9)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.floats import F64
from reference.judge.logs import MOVES, Bounded, published, true_sum
from reference.judge.quantities import Element, Q
from reference.judge.trees_dot import dot_of
from reference.judge.trees_exact import (
    bits_of,
    exact_sum,
    follows,
    from_bits,
    last_term,
    products,
    rounds,
    summed,
)
from reference.logs import C
from reference.rounded import rounded_record


def squares(x: Element, which: int) -> Q:
    """SUM64(a*a) or SUM64(b*b): a and b by 7.3, whichever is read first."""
    dot = dot_of(x)
    assert dot is not None
    swapped = dot.name == "weight gradient"

    def f(read: Any, numbers: range) -> Any:
        pair = yield from products(dot, read, numbers)
        v = pair[1 - which if swapped else which]
        return v * v

    return Q("tree", "f64", f"SUM64({'ab'[which]}*{'ab'[which]})", f, count=dot.length)


def absolutes(x: Element) -> Q:
    length, terms = summed(x)

    def f(read: Any, numbers: range) -> Any:
        return np.abs((yield from terms(read, numbers)).astype(F64))

    return Q("tree", "f64", "SUM64(|x|)", f, count=length)


def bound(k: int, sums: list[Any], last: Any) -> float:
    """E (8.6.2)."""
    with np.errstate(all="ignore"):
        e = F64(k) * F64(C)
        if len(sums) == 2:
            e = e * np.sqrt(F64(sums[0])) * np.sqrt(F64(sums[1]))
            if last is not None:
                e = e + (F64(k) * F64(C)) * abs(F64(last))
        else:
            e = e * F64(sums[0])
    return float(e) if 0 <= e < math.inf else float.fromhex("0x1.fffffffffffffp+1023")


def logged_sum(x: Element, contract: str) -> Q:
    """R(exact sum): f gives (its bound or None, what an entry makes of it)."""
    chain, k = exact_sum(x)
    is_sum = "sum" in x.op or "mean" in x.op or dot_of(x) is None
    sums = [absolutes(x)] if is_sum else [squares(x, 0), squares(x, 1)]
    b = bits_of(contract)

    def f(read: Any, acc: bytes, *agreed: Any) -> Any:
        if acc[79] != 0:
            if published(contract):
                return None, {}
            v = yield from follows(x, read, from_bits(rounded_record(acc, b)))
            return None, dict.fromkeys((None, 0, 1), v)
        steps = x.op.startswith("aten.mean") or (
            x.op == "aten.addmm" and (x.attrs["alpha"] != 1 or x.attrs["beta"] not in (0, 1))
        )
        if published(contract) and steps:
            return None, {}
        place = last_term(x)
        last = None
        if place is not None:
            last = (yield from read(place[0], [place[1]]))[0]
        of = Bounded(true_sum(acc), bound(k, list(agreed), last), b)
        if published(contract):
            return of, {}
        due = {}
        for entry in (None, 0, 1):
            due[entry] = yield from follows(x, read, from_bits(of.value(entry)))
        return of, due

    return Q("logged", "f32", "R(exact sum)", f, [chain, *sums])


def logged(x: Element, contract: str) -> Q | None:
    """The quantity of an element that is more than its tree of `ordered/1`, lifted or not."""
    means = x.op.startswith("aten.mean")
    if rounds(x) and not (published(contract) and means):
        return logged_sum(x, contract)
    if not published(contract) or x.out[0] != "f32" or x.op in MOVES:
        return None
    from reference.judge.trees_real import NAMES, noise, random, single

    if x.op in NAMES:
        return single(x, contract)
    if x.op in ("tallystick.uniform", "tallystick.normal"):
        return random(x, contract)
    if x.op == "tallystick.gumbel":
        return noise(x, contract)
    return None
