"""Operations of the trees' formulas, on numbers and, lifted, on pairs (OPENING 9.3, 9.3.1).

A lifted formula is the formula of `ordered/1`: what it reads are pairs then, and nothing is rounded
to binary32. A number of f32 or f64 is a numpy scalar or an array; pairs are `P`, or an array of P.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference import floats
from reference.exact import elementary
from reference.floats import F32, F64, rn32, rn32_int
from reference.judge.real import P, function, of


def lifted(v: Any) -> bool:
    return isinstance(v, P) or (isinstance(v, np.ndarray) and v.dtype == object)


def pairs(array: Any) -> Any:
    """What a lifted formula reads: numbers as pairs; integers stay integers (9.3)."""
    if array.dtype.kind != "f":
        return array
    out = np.empty(array.shape, object)
    out[...] = [P(v) for v in array]
    return out


def call(name: str, v: Any) -> Any:
    """An elementary function."""
    if not lifted(v):
        return elementary(name, v)[()]
    if isinstance(v, P):
        return function(name, v)
    out = np.empty(v.shape, object)
    out[...] = [function(name, p) for p in v]
    return out


def sqrt(v: Any) -> Any:
    return call("sqrt", v) if lifted(v) else np.sqrt(v)


def fma(a: Any, b: Any, c: Any) -> Any:
    """Two operations, where it is lifted (9.3.1)."""
    return a * b + c if any(map(lifted, (a, b, c))) else floats.fma(a, b, c)[()]


def by_count(v: Any, n: int) -> Any:
    """v / RN32(n); v / n where it is lifted (9.3.1)."""
    return v / of(n) if lifted(v) else v / rn32_int(n)


def narrow(v: Any) -> Any:
    """RN32 of a result; the result itself where it is lifted (9.3.1)."""
    return v if lifted(v) else F32(v)


def wide(v: Any) -> Any:
    """An element as f64."""
    return v if lifted(v) else v.astype(F64)


def rounded(v: Any, attribute: float) -> Any:
    """RN32(attribute) beside v, where v is of f64 or lifted (9.3.1)."""
    return F64(rn32(attribute)) if lifted(v) else F64(attribute)
