"""Data movement and scatter (OPENING 7.2, 7.5)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reference.floats import F32, F64
from reference.judge.quantities import Element, Q, RefusedError, added, at, bcast, flat
from reference.move import DTYPES, constant


def local(f: Any) -> Any:
    return lambda x: Q("local", x.out[0], "out", lambda read: f(x, read))


def one(read: Any, k: int, f: int) -> Any:
    return (yield from read(k, [f]))[0]


def view(x: Element, read: Any) -> Any:
    return (yield from one(read, 0, x.e))


def permute(x: Element, read: Any) -> Any:
    c, b = at(x.e, x.out[1]), [0] * len(x.out[1])
    for j, d in enumerate(x.attrs["dims"]):
        b[d] = c[j]
    return (yield from one(read, 0, flat(b, x.shape(0))))


def expand(x: Element, read: Any) -> Any:
    return (yield from one(read, 0, bcast(x.e, x.out[1], x.shape(0))))


def take(x: Element, read: Any) -> Any:
    c, a = at(x.e, x.out[1]), x.axis(len(x.out[1]))
    c[a] = x.attrs["start"] + c[a] * x.attrs["step"]
    return (yield from one(read, 0, flat(c, x.shape(0))))


def slice_scatter(x: Element, read: Any) -> Any:
    c, a = at(x.e, x.out[1]), x.axis(len(x.out[1]))
    start, end, step = (x.attrs[n] for n in ("start", "end", "step"))
    if start <= c[a] < end and (c[a] - start) % step == 0:
        c[a] = (c[a] - start) // step
        return (yield from one(read, 1, flat(c, x.shape(1))))
    return (yield from one(read, 0, x.e))


def cat(x: Element, read: Any) -> Any:
    c, a, k = at(x.e, x.out[1]), x.axis(len(x.out[1])), 0
    while c[a] >= x.shape(k)[a]:
        c[a] -= x.shape(k)[a]
        k += 1
    return (yield from one(read, k, flat(c, x.shape(k))))


def index(read: Any, k: int, f: int, size: int) -> Any:
    v = int((yield from one(read, k, f)))
    if not 0 <= v < size:
        raise RefusedError
    return v


def embedding(x: Element, read: Any) -> Any:
    rows, w = x.shape(0)
    v = yield from index(read, 1, x.e // w, rows)
    return (yield from one(read, 0, v * w + x.e % w))


def gather(x: Element, read: Any) -> Any:
    shape = x.shape(0)
    c, a = at(x.e, x.out[1]), x.axis(len(shape))
    v = yield from index(read, 1, x.e, shape[a] if shape else 1)
    if shape:
        c[a] = v
    return (yield from one(read, 0, flat(c, shape)))


def index_select(x: Element, read: Any) -> Any:
    c, a = at(x.e, x.out[1]), x.axis(len(x.out[1]))
    c[a] = yield from index(read, 1, c[a], x.shape(0)[a])
    return (yield from one(read, 0, flat(c, x.shape(0))))


def scatter_src(x: Element) -> Q:
    """A chain "out": x's element, then the sources along dim (7.2.3)."""
    shape, c = x.shape(1), at(x.e, x.out[1])
    a = x.axis(len(c))
    n = shape[a] if shape else 1
    if any(c[b] >= shape[b] for b in range(len(c)) if b != a):
        n = 0
    size, mine = (x.out[1][a], c[a]) if c else (1, 0)

    def place(i: int) -> int:
        return flat([*c[:a], i - 1, *c[a + 1 :]], shape) if c else 0

    def f(read: Any, first: int, last: int, state: Any) -> Any:
        if first == 0:
            state = yield from one(read, 0, x.e)
        places = [place(i) for i in range(max(first, 1), last)]
        found = [int(v) for v in (yield from read(1, places))]
        if any(not 0 <= v < size for v in found):
            raise RefusedError
        hits = [p for p, v in zip(places, found, strict=True) if v == mine]
        return (yield from one(read, 2, hits[-1])) if hits else state

    return Q("chain", x.out[0], "out", f, count=1 + n, start=0)


def where(x: Element, read: Any) -> Any:
    k = 1 if (yield from one(read, 0, bcast(x.e, x.out[1], x.shape(0)))) else 2
    return (yield from one(read, k, bcast(x.e, x.out[1], x.shape(k))))


def masked_fill(x: Element, read: Any) -> Any:
    if (yield from one(read, 1, bcast(x.e, x.out[1], x.shape(1)))):
        return constant(x.attrs["value"], DTYPES[x.out[0]])[()]
    return (yield from one(read, 0, x.e))


def full(x: Element, read: Any) -> Any:
    yield from read(0, []) if x.has(0) else ()
    return constant(x.attrs["value"], DTYPES[x.out[0]])[()]


def arange(x: Element, read: Any) -> Any:
    yield from read(0, []) if x.has(0) else ()
    start, step = x.attrs["start"], x.attrs["step"]
    if x.out[0] == "i64":
        return int(Fraction(start)) + x.e * int(Fraction(step))
    return F32(F64(start) + F64(x.e) * F64(step))


def triangle(x: Element, read: Any) -> Any:
    row, column = at(x.e, x.out[1])[-2:]
    d = x.attrs["diagonal"]
    if column - row <= d if x.op == "aten.tril" else column - row >= d:
        return (yield from one(read, 0, x.e))
    return np.zeros((), DTYPES[x.out[0]])[()]


def scatter(x: Element, row: int, rows: int, k: int, count: int, places: Any) -> Q:
    """A chain "d": indices in operand k[places(i)[0]], values in places(i)[1] (7.5.1)."""
    values, starts = (2, True) if x.op == "aten.index_add" else (0, False)

    def added_values(read: Any, first: int, last: int) -> Any:
        begin = (yield from one(read, 0, x.e)) if starts and first == 0 else None
        found = yield from read(k, [places(i)[0] for i in range(first, last)])
        if any(not 0 <= int(v) < rows for v in found):
            raise RefusedError
        mine = [i for i in range(first, last) if int(found[i - first]) == row]
        return begin, (yield from read(values, [places(i)[1] for i in mine]))

    return added("d", count, added_values)


def embedding_backward(x: Element) -> Q:
    rows, w = x.out[1]
    row, n = x.e // w, math.prod(x.shape(1))
    if row == x.attrs["padding_idx"]:
        n = 0
    return scatter(x, row, rows, 1, n, lambda i: (i, i * w + x.e % w))


def index_add(x: Element) -> Q:
    shape, a = x.shape(0), x.axis(len(x.shape(0)))
    n = math.prod(x.shape(1))
    if n == 0:
        return Q("local", "f32", "x", lambda read: one(read, 0, x.e))
    inner = math.prod(shape[a + 1 :])
    outer, row = x.e // (inner * shape[a]), x.e // inner % shape[a]
    place = lambda i: (i, (outer * n + i) * inner + x.e % inner)  # noqa: E731
    return scatter(x, row, shape[a], 1, n, place)


def pool_backward(x: Element) -> Q:
    p, z = math.prod(x.shape(1)[-2:]), math.prod(x.shape(0)[-2:])
    plane = x.e // p
    return scatter(x, x.e % p, p, 2, z, lambda i: (plane * z + i, plane * z + i))


MOVE: dict[str, Any] = {
    "aten.view": local(view),
    "aten.permute": local(permute),
    "aten.expand": local(expand),
    "aten.slice": local(take),
    "aten.slice_scatter": local(slice_scatter),
    "aten.cat": local(cat),
    "aten.embedding": local(embedding),
    "aten.gather": local(gather),
    "aten.index_select": local(index_select),
    "aten.scatter.src": scatter_src,
    "aten.where": local(where),
    "aten.masked_fill": local(masked_fill),
    "aten.full": local(full),
    "aten.arange": local(arange),
    "aten.tril": local(triangle),
    "aten.triu": local(triangle),
    "aten.embedding_dense_backward": embedding_backward,
    "aten.index_add": index_add,
    "aten.max_pool2d_with_indices_backward": pool_backward,
}
