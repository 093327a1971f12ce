"""The values of a graph, each computed once, and of a choice only what is chosen."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.numerics.values.graph import INDEX, Expr
from tallystick.opening.approx import Approx

_UNKNOWN = object()
Meaning = Callable[[Expr, tuple[Any, ...]], Any]
# Of whole numbers. numpy's % takes twice as long as what makes up a rest.
_WHOLE: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "over": operator.floordiv,
    "rest": lambda a, b: a - a // b * b, "max": max, "min": min, "convert": lambda x: x,
    "select": lambda where, a, b: a if where else b,
}  # fmt: skip
_COMPARED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def _whole(x: Expr) -> Callable[..., Any] | None:
    """How a value is made of whole numbers, if it is."""
    if x.kind in _COMPARED:
        return _COMPARED[x.kind] if x.of[0].dtype == INDEX else None
    return _WHOLE.get(x.kind) if x.dtype == INDEX else None


class Chosen:
    """Computes values by the meaning of each, given its parts'. A choice computes each of its two
    values only where that one is chosen: then a value is that of `wider` at `places` of `shape`.
    `steady` has the values whose ids are `ids`."""

    def __init__(
        self,
        meaning: Meaning,
        steady: Chosen | None = None,
        ids: frozenset[int] = frozenset(),
        wider: Chosen | None = None,
        places: Any = None,
        shape: tuple[int, ...] = (),
    ) -> None:
        self._meaning, self._steady, self._ids = meaning, steady, ids
        self._wider, self._places, self._shape = wider, places, shape
        self._known: dict[int, Any] = {} if steady is None else dict(steady._known)

    def __call__(self, x: Expr) -> Any:
        found = self._known.get(id(x), _UNKNOWN)
        if found is _UNKNOWN:
            found = self._known[id(x)] = self._made(x)
        return found

    def _made(self, x: Expr) -> Any:
        if self._steady is not None and id(x) in self._ids:
            return self._steady(x)
        wider = self._wider
        if wider is not None and (not x.of or id(x) in wider._known):
            found = wider(x)
            return found[self._places] if np.shape(found) == self._shape else found
        if x.kind == "choice":
            return self._choice(*x.of)
        function = _whole(x)
        if function is not None:
            return function(*map(self, x.of))
        return self._meaning(x, tuple(map(self, x.of)))

    def _choice(self, where: Expr, a: Expr, b: Expr) -> Any:
        mask = np.asarray(self(where))
        if mask.all() or not mask.any():
            return _shaped(self(a if mask.all() else b), mask.shape)
        places = [np.nonzero(mask), np.nonzero(~mask)]
        one, other = (
            Chosen(self._meaning, self._steady, self._ids, self, at, mask.shape)(x)
            for at, x in zip(places, (a, b), strict=True)
        )
        if isinstance(one, Approx) or isinstance(other, Approx):
            one, other = (x if isinstance(x, Approx) else Approx(x) for x in (one, other))
            value = _joined(mask.shape, places, one.value, other.value)
            return Approx(value, _joined(mask.shape, places, one.error, other.error))
        return _joined(mask.shape, places, one, other)


def _shaped(found: Any, shape: tuple[int, ...]) -> Any:
    """A value for every element that was asked for, where there is one for all of them."""
    if np.shape(found) == shape or not shape:
        return found
    if isinstance(found, Approx):
        return Approx(np.broadcast_to(found.value, shape), np.broadcast_to(found.error, shape))
    return np.broadcast_to(found, shape)


def _joined(shape: tuple[int, ...], places: Any, *values: Any) -> Any:
    """The values at their places, each in order."""
    found = np.empty(shape, np.result_type(*values))
    for at, value in zip(places, values, strict=True):
        found[at] = value
    return found
