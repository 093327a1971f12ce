"""The values of a graph, each computed once, and of a choice only what is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.numerics.values.graph import Value
from tallystick.opening.approx import Approx

_UNKNOWN = object()
Meaning = Callable[[Value, tuple[Any, ...]], Any]


class Chosen:
    """Computes values by the meaning of each, given its parts'. A choice computes each of its two
    values only where that one is chosen: with `mask`, the values are those of `wider` there.
    `other` has the values whose ids are `others`."""

    def __init__(
        self,
        meaning: Meaning,
        other: Chosen | None = None,
        others: frozenset[int] = frozenset(),
        wider: Chosen | None = None,
        mask: Any = None,
    ) -> None:
        self._meaning, self._other, self._others = meaning, other, others
        self._wider, self._mask = wider, mask
        self._known: dict[int, Any] = {}

    def __call__(self, x: Value) -> Any:
        found = self._known.get(id(x), _UNKNOWN)
        if found is _UNKNOWN:
            found = self._known[id(x)] = self._made(x)
        return found

    def _made(self, x: Value) -> Any:
        if self._other is not None and id(x) in self._others:
            return self._other(x)
        wider = self._wider
        if wider is not None and (not x.of or id(x) in wider._known):
            found = wider(x)
            return found[self._mask] if np.shape(found) == self._mask.shape else found
        if x.kind == "choice":
            return self._choice(*x.of)
        return self._meaning(x, tuple(map(self, x.of)))

    def _choice(self, where: Value, a: Value, b: Value) -> Any:
        mask = np.asarray(self(where))
        if mask.all() or not mask.any():
            return _shaped(self(a if mask.all() else b), mask.shape)
        one, other = (
            Chosen(self._meaning, self._other, self._others, self, m)(x)
            for m, x in ((mask, a), (~mask, b))
        )
        if isinstance(one, Approx) or isinstance(other, Approx):
            one, other = (x if isinstance(x, Approx) else Approx(x) for x in (one, other))
            value = _joined(mask, one.value, other.value)
            return Approx(value, _joined(mask, one.error, other.error))
        return _joined(mask, one, other)


def _shaped(found: Any, shape: tuple[int, ...]) -> Any:
    """A value for every element that was asked for, where there is one for all of them."""
    if np.shape(found) == shape or not shape:
        return found
    if isinstance(found, Approx):
        return Approx(np.broadcast_to(found.value, shape), np.broadcast_to(found.error, shape))
    return np.broadcast_to(found, shape)


def _joined(mask: Any, one: Any, other: Any) -> Any:
    """The values where the mask holds, in order, and the others elsewhere."""
    found = np.empty(mask.shape, np.result_type(one, other))
    found[mask], found[~mask] = one, other
    return found
