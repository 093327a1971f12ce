"""Trees of `ordered/1` lifted to pairs (OPENING 9.2 to 9.3.4)."""

from __future__ import annotations

from typing import Any

from reference.floats import F64
from reference.judge.either import pairs
from reference.judge.quantities import Q
from reference.judge.real import P, of, widened
from reference.judge.trees_point import done


def kept(q: Q) -> bool:
    """Whether a quantity is lifted to itself."""
    return q.kind == "extremum" or q.dtype == "i64"


def _read(read: Any) -> Any:
    def f(k: int, positions: Any) -> Any:
        return pairs((yield from read(k, positions)))

    return f


def _need(q: Q, value: Any) -> Any:
    """A need's agreed value in a lifted formula (9.3): a pair, or an integer."""
    if q.dtype == "real":
        return P(*value)
    return value if q.dtype == "i64" else P(value)


def _stated(p: Any) -> tuple[Any, Any]:
    found = of(p)
    return found.x, found.e


def lift(q: Q) -> Q:
    """The quantity in the real numbers; one that is kept is lifted to itself."""
    if kept(q):
        return q
    needs = [lift(n) for n in q.needs]

    def values(agreed: Any) -> list[Any]:
        return [_need(n, v) for n, v in zip(needs, agreed, strict=True)]

    def local(read: Any, *agreed: Any) -> Any:
        formula = q.f if q.lifted is None else q.lifted
        return _stated((yield from formula(_read(read), *values(agreed))))

    def tree(read: Any, numbers: range, *agreed: Any) -> Any:
        found = yield from q.f(_read(read), numbers, *values(agreed))
        return [_stated(widened(of(v), q.count)) for v in found]

    def chain(read: Any, first: int, last: int, state: Any, *agreed: Any) -> Any:
        begin, found = yield from q.values(_read(read), first, last, *values(agreed))
        x, e = state if begin is None else _stated(widened(begin, q.count))
        for v in found:
            more = widened(v, q.count)
            x, e = x + more.x, e + more.e
        return x, e

    def terms(i: int) -> Q:
        inner = lift(q.f(i))
        term = lambda _r, agreed: done(_stated(widened(_need(inner, agreed), q.count)))  # noqa: E731
        return Q("local", "real", f"term {i}", term, [inner])

    f = {"local": local, "tree": tree, "chain": chain, "terms": terms}[q.kind]
    start = (F64(q.start), F64(0))
    return Q(q.kind, "real", q.name, f, needs, q.count, start, q.stretch)
