"""Quantities of a site from the parts of its operator's declaration (numerics/values/positions)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from tallystick.kernels.elements import numpy_primitive
from tallystick.kernels.evaluate import evaluate
from tallystick.kernels.loops import names_of
from tallystick.numerics.operators.common import axis_of, constant, integer, integers, number
from tallystick.numerics.registry import OpSpec, all_ops, lookup
from tallystick.numerics.types import DTYPES
from tallystick.numerics.values.graph import Condition, Value, interpreted, resolved
from tallystick.numerics.values.positions import ELEMENT, TERM, Part, parts_below
from tallystick.numerics.values.primitives import INDEX
from tallystick.opening.approx import Approx, RealSource, real
from tallystick.opening.arithmetic import accumulated, canonical, started
from tallystick.opening.pointwise import check_inside
from tallystick.opening.quantity import (
    LIMIT,
    VALUE_DTYPES,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    Terms,
    Tree,
    opening,
)
from tallystick.opening.real_pointwise import real_primitive
from tallystick.opening.reduced import Reduced, reduced
from tallystick.opening.values import value_of


def _as_operand(x: Any) -> Any:
    """A number as a real one; bools and integers as they are."""
    return x if isinstance(x, Approx) or np.asarray(x).dtype.kind != "f" else real(x)


_WHOLE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "over": lambda a, b: a // b, "rest": lambda a, b: a % b, "max": max, "min": min,
    "eq": lambda a, b: a == b, "select": lambda where, a, b: a if where else b,
    "convert": lambda x: x,
}  # fmt: skip
Meaning = Callable[[Value, tuple[Any, ...]], Any]
# The elements of an operand that a prover holds at once while it makes many terms.
_BATCH = 1 << 20
# The values of a part's terms, given its needs; index None: of the part itself.
Computed = Callable[[Source, Needs, Index | None], Array]


def _one(terms: Computed) -> Callable[[Source, Needs], Any]:
    """The one value of a local part."""

    def compute(source: Source, given: Needs) -> Any:
        found = terms(source, given, None)
        if not isinstance(found, Approx) and np.asarray(found).dtype.kind == "f":
            found = canonical(found)
        return (found if isinstance(found, Approx) else np.asarray(found)).reshape(-1)[0]

    return compute


class _Values:
    """The values of a graph, each computed once. A choice computes its second value only where the
    first holds: with `mask`, the values are those of `wider` there."""

    def __init__(self, meaning: Meaning, wider: _Values | None = None, mask: Any = None) -> None:
        self._meaning, self._wider, self._mask = meaning, wider, mask
        self._known: dict[int, Any] = {}

    def __call__(self, x: Value) -> Any:
        if id(x) not in self._known:
            self._known[id(x)] = self._made(x)
        return self._known[id(x)]

    def _made(self, x: Value) -> Any:
        wider = self._wider
        if wider is not None and (not x.of or id(x) in wider._known):
            found = wider(x)
            return found[self._mask] if np.shape(found) == self._mask.shape else found
        if x.kind == "only where":
            return self._chosen(*x.of)
        return self._meaning(x, tuple(map(self, x.of)))

    def _chosen(self, where: Value, value: Value, otherwise: Value) -> Any:
        mask = np.asarray(self(where))
        if mask.all():
            return self(value)
        rest = self(otherwise)
        made = _Values(self._meaning, self, mask)(value) if mask.any() else rest
        if isinstance(made, Approx):
            return Approx(_filled(mask, made.value, rest), _filled(mask, made.error, 0.0))
        return _filled(mask, made, rest)


def _filled(mask: Any, values: Any, rest: Any) -> Array:
    """The values where the mask holds, in order, and `rest` elsewhere."""
    found = np.full(mask.shape, rest)
    found[mask] = values
    return found


def _places(rows: Index, shape: tuple[int, ...]) -> Index:
    """The places of all elements of some rows, each of `shape`."""
    within = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    return rows.reshape(-1, *(1 for _ in shape)) * within.size + within


class _Opened:
    """The parts of one site; each becomes one quantity."""

    def __init__(self, site: Site, spec: OpSpec) -> None:
        self.site, self.spec = site, spec
        self.names = names_of(spec)
        present = [n for k, n in enumerate(self.names) if site.has(k)]
        self.given = frozenset((*site.attrs, *present))
        self._known: dict[int, Quantity] = {}

    @cached_property
    def _reduced(self) -> Reduced:
        return reduced(self.site)

    def quantity(self, part: Part) -> Quantity:
        found = self._known.get(id(part))
        if found is None:
            found = self._known[id(part)] = self._made(part)
        return found

    def _made(self, part: Part) -> Quantity:
        if part.condition is not None:
            holds = part.condition.holds(self.site.attrs, self.given)
            return self.quantity(part.of[0 if holds else 1])
        if part.kind == "terms":
            return self._terms(part)
        assert part.value is not None
        roots = self._decided([x for x in (part.value, part.start, part.kept) if x is not None])
        reads = self._decided(part.reads)
        made_of = parts_below(roots, part.first)
        below = tuple(map(self.quantity, made_of))
        terms = self._computed(roots[0], made_of, reads)
        if part.kind == "local":
            name = part.name.replace("[i]", f"[{self.site.element}]")
            return Local(name, part.dtype, _one(terms), below)
        count = self._count(part)
        if part.kind == "tree":
            return Tree(part.name, part.dtype, count, terms, below)
        if part.kind == "extremum":
            return Extremum(part.name, part.dtype, count, part.extreme, terms, below)
        return self._chain(part, count, terms, roots[1:], made_of)

    def _count(self, part: Part) -> int:
        assert part.count is not None  # only a local part has none
        return int(self._index(self._decided([part.count])[0], None))

    # -- terms that are quantities -----------------------------------------------------------------
    def _terms(self, part: Part) -> Terms:
        (of,), count = part.of, self._count(part)

        def term(i: int) -> Quantity:
            return _Opened(replace(self.site, element=i), self.spec).quantity(of)

        def each(source: Source, _: Needs, index: Index) -> Array:
            found = [value_of(term(int(i)), source) for i in index]
            return np.array(found, VALUE_DTYPES[part.dtype])

        terms = each if part.alone is None else self._rows(part.alone)
        return Terms(part.name, part.dtype, count, term, terms)

    def _rows(self, alone: Condition) -> Callable[[Source, Needs, Index], Array]:
        """A prover's answer: the operator itself on many rows of its operands, some at a time."""
        op = self.site.op
        attrs: dict[str, Any] = {**self.site.attrs, alone.name: alone.value}
        shapes = [t.shape[1:] for t in self.site.inputs if t is not None]
        at_once = max(1, _BATCH // max(1, *map(math.prod, shapes)))

        def terms(source: Source, _: Needs, index: Index) -> Array:
            found = np.empty(len(index), np.float32)
            for first in range(0, len(index), at_once):
                rows = index[first : first + at_once]
                given = [source.read(k, _places(rows, shape)) for k, shape in enumerate(shapes)]
                found[first : first + at_once] = evaluate(op, *given, **attrs)[0]
            return found

        return terms

    def _chain(
        self, part: Part, count: int, terms: Computed, rest: tuple[Value, ...], made_of: list[Part]
    ) -> Quantity:
        start = self._computed(rest[0], made_of)
        if count == 0 and rest[0].kind != "constant":
            # A chain without links is its start, which is a constant.
            return Local("x", part.dtype, _one(start))
        kept = self._computed(rest[1], made_of) if part.kept is not None else None
        begins = rest[0].number if rest[0].kind == "constant" else 0.0

        @np.errstate(all="ignore")
        def advance(source: Source, given: Needs, state: Any, first: int, last: int) -> Any:
            if first == 0 and rest[0].kind != "constant":
                state = started(start(source, given, None)[0], count)
            index = np.arange(first, last, dtype=np.int64)
            if kept is not None:
                index = index[kept(source, given, index)]
            return accumulated(state, terms(source, given, index), count)

        return Chain(
            part.name, part.dtype, count, LIMIT, DTYPES[part.dtype].type(begins), advance,
            tuple(map(self.quantity, made_of)),
        )  # fmt: skip

    def _decided(self, roots: Sequence[Value]) -> tuple[Value, ...]:
        attrs, given = self.site.attrs, self.given
        return resolved(roots, lambda condition: condition.holds(attrs, given))

    def _computed(self, value: Value, parts: list[Part], reads: tuple[Value, ...] = ()) -> Computed:
        numbers = {id(part): k for k, part in enumerate(parts)}

        def terms(source: Source, given: Needs, index: Index | None) -> Array:
            as_real = isinstance(source, RealSource)

            def meaning(x: Value, of: tuple[Any, ...]) -> Any:
                if x.dtype == INDEX:
                    return self._index_of(x, of, index)
                if x.kind == "part":
                    return given[numbers[id(x.part)]]
                if x.kind == "read":
                    at = np.atleast_1d(np.asarray(of[0], np.int64))
                    return source.read(self.names.index(x.name) + sum(of[1:]), at)
                return self._value(x, of, as_real)

            values = _Values(meaning)
            with np.errstate(all="ignore"):
                return cast(Array, [values(x) for x in (*reads, value)][-1])

        return terms

    def _value(self, x: Value, of: tuple[Any, ...], as_real: bool) -> Any:
        """Numbers are exact in the real numbers; what binary64 attributes and sizes alone make is
        rounded there too (NUMERICS 14.9.1)."""
        if x.kind == "attribute":
            held = constant(self.site.op, x.name, number(self.site.attrs, x.name), x.dtype)
            return np.float64(held) if as_real else held
        if x.kind == "constant":
            if as_real and x.dtype in ("f32", "f64"):
                return np.float64(x.number if x.real is None else x.real)
            return np.array(x.number, DTYPES[x.dtype])
        if x.kind == "convert" and x.of[0].dtype == INDEX:
            return np.float64(of[0]) if as_real else DTYPES[x.dtype].type(of[0])
        if x.kind == "in reals":
            return of[1] if as_real else of[0]
        if as_real and (x.dtype == "f32" or any(isinstance(part, Approx) for part in of)):
            return real_primitive(x.kind, tuple(map(_as_operand, of)))
        return numpy_primitive(x, of)

    # -- whole numbers -----------------------------------------------------------------------------
    def _index(self, value: Value, index: Index | None) -> Any:
        return interpreted([value], lambda x, of: self._index_of(x, of, index))[0]

    def _index_of(self, x: Value, of: tuple[Any, ...], index: Index | None) -> Any:
        kind, site = x.kind, self.site
        if kind == ELEMENT:
            return site.element
        if kind == TERM:
            return index
        if kind == "constant":
            return x.number
        if kind == "axis":
            return x.name
        if kind in ("extent", "inner"):
            return self._along(kind, x.name, of[0])
        if kind == "numel":
            return math.prod(self._shape(x.name))
        if kind == "entry":
            return self._entry(x.name, of[0])
        if kind == "given":
            return len(site.inputs) - self.names.index(x.name)
        if kind == "inside":
            check_inside(site.op, of[0], of[1], x.name)
            return of[0]
        if kind == "product":
            return math.prod(integers(site.attrs, x.name))
        if kind == "reduced":
            return self._reduced.count
        if kind == "reduced place":
            assert index is not None  # only terms have a place among the reduced ones
            return self._reduced.places(index)
        return _WHOLE[kind](*of)

    def _shape(self, operand: str) -> tuple[int, ...]:
        if not operand:
            return self.site.outputs[0].shape
        return self.site.type_of(self.names.index(operand)).shape

    def _entry(self, attribute: str, number: int) -> int:
        held = self.site.attrs[attribute]
        if isinstance(held, tuple):
            return int(held[min(number, len(held) - 1)])
        return integer(self.site.attrs, attribute)

    def _along(self, kind: str, operand: str, axis: Any) -> int:
        shape = self._shape(operand) or (1,)
        if isinstance(axis, str):
            axis = axis_of(self.site.op, integer(self.site.attrs, axis), len(shape))
        return shape[axis] if kind == "extent" else math.prod(shape[axis + 1 :])


def _rule(site: Site) -> Quantity:
    spec = lookup(site.op)
    mask = site.attrs.get(spec.masked_by)
    parts = spec.parts[site.type_of(0).dtype]
    there = [part for k, part in enumerate(parts) if not isinstance(mask, tuple) or mask[k]]
    return _Opened(site, spec).quantity(there[site.out])


opening(*(name for name, spec in all_ops().items() if spec.parts))(_rule)
