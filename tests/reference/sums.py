"""SUM and the reductions (NUMERICS 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.floats import F32, F64, maximum, minimum, rn32_int

Inputs = list[Any]
BLOCK, LANES = 256, 32


def _block(x: np.ndarray) -> np.ndarray:
    """x[n, outputs], n ≤ 256: 32 strided lanes from −0, then the halving tree (3.1)."""
    acc = np.full((LANES, x.shape[1]), -0.0, x.dtype)
    for i in range(x.shape[0]):
        acc[i % LANES] = acc[i % LANES] + x[i]
    s = LANES // 2
    while s >= 1:
        for lane in range(s):
            acc[lane] = acc[lane] + acc[lane + s]
        s //= 2
    return acc[0]


def sum_columns(x: np.ndarray) -> np.ndarray:
    """SUM over the first axis of x[n, outputs]; SUM64 where x is binary64 (3.6)."""
    n = x.shape[0]
    if n == 0:
        return np.zeros(x.shape[1], x.dtype)
    blocks = np.stack([_block(x[b : b + BLOCK]) for b in range(0, n, BLOCK)])
    return blocks[0] if len(blocks) == 1 else sum_columns(blocks)


def sum_rows(x: np.ndarray) -> np.ndarray:
    """SUM over the last axis."""
    rows = np.asarray(x)
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    return sum_columns(flat.T).reshape(rows.shape[:-1])


def total(x: np.ndarray) -> np.float32:
    """SUM over all elements, row-major."""
    return F32(sum_columns(np.asarray(x, F32).reshape(-1, 1))[0])


def axes_of(attrs: dict[str, Any], rank: int) -> tuple[int, ...]:
    """Reduced axes, ascending; none given means all (3.3)."""
    dim = attrs.get("dim", ())
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(sorted(d % rank for d in given)) if given and rank else tuple(range(rank))


def rows_of(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """x as [outputs, n]: kept axes index the outputs, reduced ones are one index (3.3)."""
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = np.transpose(x, [*kept, *axes])
    return moved.reshape(math.prod(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes))


def shape_of(x: np.ndarray, axes: tuple[int, ...], attrs: dict[str, Any]) -> tuple[int, ...]:
    if attrs.get("keepdim", False):
        return tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


def _sum(attrs: dict[str, Any], inputs: Inputs, mean: bool) -> list[np.ndarray]:
    (x,) = inputs
    axes = axes_of(attrs, x.ndim)
    rows, shape = rows_of(x, axes), shape_of(x, axes, attrs)
    if x.dtype != F32:
        sums = [sum(int(v) for v in row) for row in rows]
        wrapped = [(s + 2**63) % 2**64 - 2**63 for s in sums]
        return [np.array(wrapped, np.int64).reshape(shape)]
    out = sum_rows(rows)
    if mean:
        out = out / rn32_int(rows.shape[1])
    return [out.reshape(shape)]


def _extreme(attrs: dict[str, Any], inputs: Inputs, low: bool) -> list[np.ndarray]:
    (x,) = inputs
    axes = axes_of(attrs, x.ndim)
    rows, shape = rows_of(x, axes), shape_of(x, axes, attrs)
    if x.dtype != F32:
        picked = [min(map(int, r)) if low else max(map(int, r)) for r in rows]
        return [np.array(picked, np.int64).reshape(shape)]
    best = rows[:, 0]
    for i in range(1, rows.shape[1]):
        best = minimum(best, rows[:, i]) if low else maximum(best, rows[:, i])
    return [best.reshape(shape)]


def max_rows(x: np.ndarray) -> np.ndarray:
    """The maximum along the last axis (1.11)."""
    best = x[..., 0]
    for i in range(1, x.shape[-1]):
        best = maximum(best, x[..., i])
    return np.asarray(best, F32)


def _argmax(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    axes = axes_of(attrs, x.ndim)
    found = []
    for row in rows_of(x, axes):
        at = 0
        for i, v in enumerate(row):
            best = row[at]
            if np.isnan(best):
                break
            if np.isnan(v) or v > best:
                at = i
        found.append(at)
    return [np.array(found, np.int64).reshape(shape_of(x, axes, attrs))]


def _var_mean(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    axes = axes_of(attrs, x.ndim)
    rows, shape = rows_of(x, axes), shape_of(x, axes, attrs)
    n = rows.shape[1]
    wide = rows.astype(F64)
    mean = sum_rows(wide) / F64(n)
    d = wide - mean[:, None]
    var = sum_rows(d * d) / F64(max(float(n) - attrs["correction"], 0.0))
    return [var.astype(F32).reshape(shape), mean.astype(F32).reshape(shape)]


def _sum_squares(_attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    return [np.asarray(total(x * x), F32)]


def _cumsum(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    """Left to right along dim, each addition rounded (3.8)."""
    (x,) = inputs
    if x.ndim == 0:
        return [x]
    rows = np.moveaxis(x, attrs["dim"], 0)
    sums = list(rows[:1])
    for row in rows[1:]:
        sums.append(sums[-1] + row)
    stacked = np.stack(sums) if sums else rows
    return [np.moveaxis(stacked, 0, attrs["dim"])]


def _before(x: Any, j: int, i: int, descending: bool) -> bool:
    """Whether x_j comes before x_i (3.9)."""

    def smaller(a: Any, b: Any) -> bool:
        return bool(a < b) or bool(b != b and a == a)

    first, second = (x[i], x[j]) if descending else (x[j], x[i])
    return smaller(first, second) or (not smaller(second, first) and j < i)


def _rank(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    """The number of elements before each one of its row (3.9)."""
    (x,) = inputs
    rows = np.moveaxis(x.reshape(1) if x.ndim == 0 else x, attrs["dim"], -1)
    places = np.zeros(rows.shape, np.int64)
    n, down = rows.shape[-1], attrs["descending"]
    for at in np.ndindex(*rows.shape[:-1]):
        for i in range(n):
            places[(*at, i)] = sum(_before(rows[at], j, i, down) for j in range(n))
    return [np.moveaxis(places, -1, attrs["dim"]).reshape(x.shape)]


def _occurrences(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    """How often each class stands in each stretch of the text (3.10)."""
    tokens, first, last = inputs
    counts = np.zeros((len(first), attrs["classes"]), np.int64)
    for r, c in np.ndindex(*counts.shape):
        counts[r, c] = sum(first[r] <= s <= last[r] and tokens[s] == c for s in range(len(tokens)))
    return [counts]


SUMS = {
    "tallystick.occurrences": _occurrences,
    "tallystick.rank": _rank,
    "aten.sum": lambda a, x: _sum(a, x, False),
    "aten.sum.dim_IntList": lambda a, x: _sum(a, x, False),
    "aten.mean": lambda a, x: _sum(a, x, True),
    "aten.mean.dim": lambda a, x: _sum(a, x, True),
    "aten.amax": lambda a, x: _extreme(a, x, False),
    "aten.amin": lambda a, x: _extreme(a, x, True),
    "aten.max": lambda a, x: _extreme(a, x, False),
    "aten.min": lambda a, x: _extreme(a, x, True),
    "aten.argmax": _argmax,
    "aten.var_mean.correction": _var_mean,
    "tallystick.sum_squares": _sum_squares,
    "aten.cumsum": _cumsum,
}
