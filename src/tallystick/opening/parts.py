"""Quantities of a site from the parts of its operator's declaration (numerics/values/positions)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, cast

import numpy as np

from tallystick.commit.order import philox4x32
from tallystick.kernels.elements import numpy_primitive
from tallystick.kernels.evaluate import evaluate
from tallystick.kernels.loops import names_of
from tallystick.numerics.operators.common import axis_of, constant, integer, integers, number
from tallystick.numerics.operators.reduction import folded
from tallystick.numerics.registry import OpSpec, lookup
from tallystick.numerics.types import DTYPES
from tallystick.numerics.values.graph import INDEX, MOVED, Condition, Expr, resolved, values_below
from tallystick.numerics.values.positions import ELEMENT, TERM, Factor, Part, parts_below
from tallystick.opening.approx import Approx, RealSource, real
from tallystick.opening.chosen import Chosen
from tallystick.opening.dot import Group, Products, Summed, accumulated, canonical, dot, started
from tallystick.opening.places import (
    Reduced,
    broadcast_position,
    check_inside,
    coordinates,
    one,
    position,
    reduced,
)
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
    RefusedOperandsError,
    Site,
    Source,
    TermsQuantity,
    TreeQuantity,
)
from tallystick.opening.real_pointwise import real_primitive
from tallystick.opening.values import value_of


def _as_operand(x: Any) -> Any:
    """A number as a real one; bools and integers as they are."""
    return x if isinstance(x, Approx) or np.asarray(x).dtype.kind != "f" else real(x)


# The elements of an operand that a prover holds at once while it makes many terms.
_BATCH = 1 << 20
# The values of a part's terms, given its needs; index None: of the part itself.
Computed = Callable[[Source, Needs, Index | None], Array]


def _one(terms: Computed, moved: bool = False) -> Callable[[Source, Needs], Any]:
    """The one value of a local part. What is moved keeps even the bits of a NaN (NUMERICS 1.5)."""

    def compute(source: Source, given: Needs) -> Any:
        found = terms(source, given, None)
        if not isinstance(found, Approx) and np.asarray(found).dtype.kind == "f" and not moved:
            found = canonical(found)
        return (found if isinstance(found, Approx) else np.asarray(found)).reshape(-1)[0]

    return compute


def _places(rows: Index, shape: tuple[int, ...]) -> Index:
    """The places of all elements of some rows, each of `shape`."""
    within = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    return rows.reshape(-1, *(1 for _ in shape)) * within.size + within


# What follows from a declaration alone is found once: a rule is asked for many elements.
@cache
def _conditions(roots: tuple[Expr, ...]) -> tuple[Condition, ...]:
    below = (value.condition for value in values_below(roots))
    return tuple(dict.fromkeys(found for found in below if found is not None))


@cache
def _decided(roots: tuple[Expr, ...], holds: tuple[bool, ...]) -> tuple[Expr, ...]:
    """The roots, as each of their conditions holds or not."""
    held = dict(zip(_conditions(roots), holds, strict=True))
    return resolved(roots, held.__getitem__)


@cache
def _steady(roots: tuple[Expr, ...]) -> frozenset[int]:
    """The whole numbers below values that are the same for every term, by their ids."""
    found: set[int] = set()
    for value in values_below(roots):
        follows = value.kind not in (TERM, "reduced place", "word")
        if value.dtype == INDEX and follows and found.issuperset(map(id, value.of)):
            found.add(id(value))
    return frozenset(found)


@cache
def _below(roots: tuple[Expr, ...], first: tuple[Part, ...] = ()) -> list[Part]:
    return parts_below(roots, first)


class OpenedElement:
    """The parts of one site; each becomes one quantity."""

    def __init__(self, site: Site, spec: OpSpec) -> None:
        self.site, self.spec = site, spec
        self.names = names_of(spec)
        present = [n for k, n in enumerate(self.names) if site.has(k)]
        self.given = frozenset((*site.attrs, *present))
        self._known: dict[int, Quantity] = {}
        # Whole numbers that no term is part of.
        self._whole = Chosen(lambda x, of: self._index_of(x, of, None))

    @cached_property
    def _reduced(self) -> Reduced:
        return reduced(self.site)

    def quantity(self, part: Part) -> Quantity:
        found = self._known.get(id(part))
        if found is None:
            found = self._known[id(part)] = self._made(part)
        return found

    def chosen(self, part: Part) -> Part:
        """The part, or that of a case for which its condition decides."""
        while part.condition is not None:
            holds = part.condition.holds(self.site.attrs, self.given)
            part = part.of[0 if holds else 1]
        return part

    def _made(self, part: Part) -> Quantity:
        if part.condition is not None:
            return self.quantity(self.chosen(part))
        if part.kind == "terms":
            return self._terms(part)
        if part.kind == "fold":
            return self._fold(part)
        if part.kind == "dot":
            return dot(self._products(part))
        assert part.value is not None
        roots = self._decided([x for x in (part.value, part.start, part.kept) if x is not None])
        reads = self._decided(part.reads)
        made_of = _below(roots, part.first)
        below = tuple(map(self.quantity, made_of))
        terms = self._computed(roots[0], made_of, reads)
        dtype = self._dtype(part.dtype)
        if part.kind == "local":
            name = part.name.replace("[i]", f"[{self.site.element}]")
            return Local(name, dtype, _one(terms, part.dtype == MOVED), below)
        count = self._count(part)
        if part.kind == "tree":
            return TreeQuantity(part.name, part.dtype, count, terms, below)
        if part.kind == "extremum":
            return Extremum(part.name, part.dtype, count, part.extreme, terms, below)
        if part.kind == "latest":
            return self._latest(part, count, terms, roots[1:], made_of)
        return self._chain(part, count, terms, roots[1:], made_of)

    # -- sums --------------------------------------------------------------------------------------
    def summed(self, part: Part) -> Summed:
        """The element as a sum, or as what is made of one."""
        part = self.chosen(part)
        if part.kind == "dot":
            return Summed(self._products(part))
        if part.kind == "tree":
            return Summed(cast(TreeQuantity, self.quantity(part)))
        assert part.kind == "local" and part.value is not None
        (value,) = self._decided([part.value])
        (below,) = _below((value,))
        after = _one(self._computed(value, [below]))
        added = {x.kind: x for x in value.of} if value.kind == "add" else {}
        if added.keys() != {"part", "read"}:
            return Summed(self.summed(below).terms, after)
        read = self._computed(added["read"], [])
        return Summed(self.summed(below).terms, after, lambda source: read(source, (), None))

    def _products(self, part: Part) -> Products:
        sides = part.factors
        values = self._values(self._decided([*part.reads, *(side.value for side in sides)]), [])

        def factors(source: Source, index: Index) -> tuple[Array, Array]:
            *_, left, right = values(source, (), index)
            return left, right

        def groups() -> tuple[Group, Group]:
            left, right = map(self._group, sides)
            return left, right

        assert part.inner is not None  # as every DOT has
        return Products(part.name, self._count(part), factors, self._number(part.inner), groups)

    def _group(self, side: Factor) -> Group:
        (member,) = self._decided([side.member])
        members = self._computed(member, [])
        return Group(self._number(side.each), lambda source, index: members(source, (), index))

    def _count(self, part: Part) -> int:
        assert part.count is not None  # only a local part has none
        return self._number(part.count)

    def _number(self, value: Expr) -> int:
        """A whole number that no term is part of."""
        return int(self._whole(self._decided([value])[0]))

    # -- terms that are quantities -----------------------------------------------------------------
    def _terms(self, part: Part) -> TermsQuantity:
        (of,), count = part.of, self._count(part)

        def term(i: int) -> Quantity:
            return OpenedElement(replace(self.site, element=i), self.spec).quantity(of)

        def each(source: Source, _: Needs, index: Index) -> Array:
            found = [value_of(term(int(i)), source) for i in index]
            return np.array(found, VALUE_DTYPES[part.dtype])

        terms = each if part.alone is None else self._rows(part.alone)
        return TermsQuantity(part.name, part.dtype, count, term, terms)

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

    # -- needs that are folded ---------------------------------------------------------------------
    def _fold(self, part: Part) -> Quantity:
        """The parties agree on all values at once, and the game opens the operand of the first one
        that they do not."""
        (of,) = part.of
        assert of.value is not None and part.divisor is not None
        values, divisor = (
            self._computed(root, []) for root in self._decided([of.value, part.divisor])
        )

        def term(i: int) -> Quantity:
            def compute(source: Source, _: Needs) -> Any:
                return canonical(values(source, (), np.array(i, np.int64))).reshape(-1)[0]

            return Local(of.name.replace("[i]", f"[{i}]"), of.dtype, compute)

        @np.errstate(all="ignore")
        def compute(source: Source, given: Needs) -> Any:
            total = folded([np.asarray(x, DTYPES[part.dtype]) for x in given], operator.add)
            return canonical(total / divisor(source, (), None)).reshape(-1)[0]

        return Local(part.name, part.dtype, compute, tuple(map(term, range(self._count(part)))))

    def _latest(
        self, part: Part, count: int, terms: Computed, rest: tuple[Expr, ...], made_of: list[Part]
    ) -> Quantity:
        start, kept = (self._computed(x, made_of) for x in rest)
        dtype = self._dtype(part.dtype)

        def advance(source: Source, given: Needs, state: Any, first: int, last: int) -> Any:
            if first == 0:
                state = start(source, given, None)[0]
            index = np.arange(max(first, 1) - 1, last - 1, dtype=np.int64)
            index = index[kept(source, given, index)]
            return terms(source, given, index[-1:])[0] if index.size else state

        zero = DTYPES[dtype].type(0)
        return Chain(part.name, dtype, 1 + count, LIMIT, zero, advance, moved=True)

    def _chain(
        self, part: Part, count: int, terms: Computed, rest: tuple[Expr, ...], made_of: list[Part]
    ) -> Quantity:
        start = self._computed(rest[0], made_of)
        if count == 0 and rest[0].kind != "constant":
            # The start of a chain has to be a constant; without links a local value stands for it.
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

    def _decided(self, roots: Sequence[Expr]) -> tuple[Expr, ...]:
        roots, attrs, given = tuple(roots), self.site.attrs, self.given
        return _decided(roots, tuple(c.holds(attrs, given) for c in _conditions(roots)))

    def _computed(self, value: Expr, parts: list[Part], reads: tuple[Expr, ...] = ()) -> Computed:
        values = self._values((*reads, value), parts)
        return lambda source, given, index: values(source, given, index)[-1]

    def _values(
        self, roots: tuple[Expr, ...], parts: list[Part]
    ) -> Callable[[Source, Needs, Index | None], list[Array]]:
        numbers, steady = {id(part): k for k, part in enumerate(parts)}, _steady(roots)

        def computed(source: Source, given: Needs, index: Index | None) -> list[Array]:
            as_real = isinstance(source, RealSource)

            def meaning(x: Expr, of: tuple[Any, ...]) -> Any:
                if x.kind == "word":
                    return self._word(source, self.names.index(x.name), *of)
                if x.dtype == INDEX:
                    return self._index_of(x, of, index)
                if x.kind == "joined":
                    return self._joined(source, self.names.index(x.name), of[0])
                if x.kind == "part":
                    return given[numbers[id(x.part)]]
                if x.kind == "read":
                    at = np.atleast_1d(np.asarray(of[0], np.int64))
                    return source.read(self.names.index(x.name) + int(sum(of[1:])), at)
                return self._value(x, of, as_real)

            values = Chosen(meaning, self._whole, steady)
            with np.errstate(all="ignore"):
                return [values(x) for x in roots]

        return computed

    def _value(self, x: Expr, of: tuple[Any, ...], as_real: bool) -> Any:
        """Numbers are exact in the real numbers; what binary64 attributes and sizes alone make is
        rounded there too (NUMERICS 14.9.1)."""
        if x.kind == "attribute":
            dtype = self._dtype(x.dtype)
            held = constant(self.site.op, x.name, number(self.site.attrs, x.name), dtype)
            return np.float64(held) if as_real else held
        if x.kind == "constant":
            if as_real and x.dtype in ("f32", "f64"):
                return np.float64(x.number if x.real is None else x.real)
            return np.array(x.number, DTYPES[self._dtype(x.dtype)])
        if x.kind == "convert" and x.of[0].dtype == INDEX:
            return np.float64(of[0]) if as_real else DTYPES[x.dtype].type(of[0])
        if x.kind == "in reals":
            return of[1] if as_real else of[0]
        if as_real and (x.dtype == "f32" or any(isinstance(part, Approx) for part in of)):
            return real_primitive(x.kind, tuple(map(_as_operand, of)))
        return numpy_primitive(x, of)

    def _dtype(self, name: str) -> str:
        return self.site.outputs[self.site.out].dtype if name == MOVED else name

    def _word(self, source: Source, operand: int, draw: int, block: Any, number: int) -> int:
        """NUMERICS 8.1. What a block follows from is read first, and may be an element."""
        block = np.asarray(block).item()
        seed, step = (int(v) for v in source.read(operand, np.array([0, 1], np.int64)))
        if seed < 0 or not 0 <= step < 1 << 32:
            raise RefusedOperandsError(self.site.op, f"the key ({seed}, {step}) is out of range.")
        mask = (1 << 32) - 1
        words = philox4x32((block & mask, block >> 32, draw, step), (seed & mask, seed >> 32))
        return words[number]

    def _joined(self, source: Source, operand: int, axis: Any) -> Array:
        here = coordinates(self.site.element, self.site.outputs[0].shape)
        axis = self._axis(axis, len(here))
        k = here[axis]
        while k >= (shape := self.site.type_of(operand).shape)[axis]:
            operand, k = operand + 1, k - shape[axis]
        return one(source, operand, position((*here[:axis], k, *here[axis + 1 :]), shape))

    # -- whole numbers -----------------------------------------------------------------------------
    def _index_of(self, x: Expr, of: tuple[Any, ...], index: Index | None) -> Any:
        kind, site = x.kind, self.site
        if kind == ELEMENT:
            return site.element
        if kind == TERM:
            return index
        if kind == "constant":
            return x.number
        if kind == "axis":
            return x.name
        if kind == "attribute":
            return integer(site.attrs, x.name)
        if kind == "broadcast":
            return broadcast_position(site.element, site.outputs[0].shape, self._shape(x.name))
        if kind in ("placed", "reaches", "permuted"):
            return self._placed(x, of)
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
        if x.dtype != INDEX:  # what a whole number is chosen by
            return numpy_primitive(x, of)
        raise LookupError(f"a whole number {kind}")

    def _placed(self, x: Expr, of: tuple[Any, ...]) -> Any:
        """Of the element's coordinates in an operand."""
        site, shape = self.site, self._shape(x.name) or (1,)
        here: tuple[Any, ...] = coordinates(site.element, site.outputs[0].shape or (1,))
        if x.kind == "permuted":
            dims = integers(site.attrs, of[0])
            here = tuple(here[dims.index(k)] for k in range(len(dims)))
            return position(here, self._shape(x.name))
        axis = self._axis(of[0], len(shape))
        if x.kind == "placed":
            return position((*here[:axis], of[1], *here[axis + 1 :]), shape)
        return int(all(here[b] < n for b, n in enumerate(shape) if b != axis))

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
        axis = self._axis(axis, len(shape))
        return shape[axis] if kind == "extent" else math.prod(shape[axis + 1 :])

    def _axis(self, axis: Any, rank: int) -> int:
        """An axis of an attribute, or a number, counted from the front."""
        held = integer(self.site.attrs, axis) if isinstance(axis, str) else axis
        return axis_of(self.site.op, held, rank)


def _opened(site: Site) -> tuple[OpenedElement, Part]:
    """The site's parts, and that which is the element."""
    spec = lookup(site.op)
    mask = site.attrs.get(spec.masked_by)
    first = site.type_of(0) if site.inputs else site.outputs[0]
    parts = spec.parts[first.dtype if first.dtype in spec.parts else MOVED]
    there = [part for k, part in enumerate(parts) if not isinstance(mask, tuple) or mask[k]]
    return OpenedElement(site, spec), there[site.out]


def summed(site: Site) -> Summed:
    """The element of an operator of which a contract adds up the terms in its own way."""
    opened, part = _opened(site)
    return opened.summed(part)


def parts_rule(site: Site) -> Quantity:
    """The element of an operator with parts."""
    opened, part = _opened(site)
    return opened.quantity(part)
