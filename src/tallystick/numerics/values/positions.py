"""Quantities as data (OPENING 2): one element of an output, in parts that a referee can execute.

A part is a value over elements that it reads, over other parts, and over whole numbers: the
element's row-major position, the number of a term, sizes. A whole number is a value of dtype
"index"; `//` rounds down and `%` is what that leaves. An element that is only moved has the dtype
"moved", which stands for the output's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.numerics.values.graph import (
    INDEX,
    MOVED,
    Condition,
    Expr,
    Operand,
    constant,
    convert,
    interned,
    primitive,
    values_below,
)

ELEMENT, TERM = "element", "term"


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of a DOT's terms: `value` is that of one term. `exact/1` measures the factors in
    groups (NUMERICS 17.3), which may have more members: `each` of them for every value of the outer
    coordinate, `member` being number `term()` of them all."""

    value: Expr
    member: Expr
    each: Expr


@dataclass(frozen=True, eq=False)
class Part:
    """`kind` "local": `value` is its value. "tree": SUM (NUMERICS 3.1) of `count` terms, `value`
    being one. "extremum": the largest, smallest, or the lowest index of the largest (`extreme` is
    "max", "min", "argmax") of `count` elements, `value` being one. "chain": `start`, and one after
    the other the `count` terms `value`, of which those stay out that `kept` does not hold of.
    "latest": a chain whose link 0 is `start`; each of the `count` links after it replaces the state
    by its `value`, if `kept` holds of it. "terms": SUM of `count` terms, each a quantity of its
    own: term i is the part in `of` for element i. "fold": S (NUMERICS 10.12) of `count` values,
    divided by `divisor`; each is a need, number i being the local part in `of` for term i. "dot":
    DOT (NUMERICS 2) of `count` terms, each the product of the two `factors`; `inner` are those of
    one value of the outer coordinate (17.2). "case": the first of `of` where `condition` holds,
    else the second.

    Where `alone` holds, the operator's first output is the terms, and row i of each operand goes
    into term i: so a prover has many at once. `[i]` in a name stands for the element's number.

    `first` are parts that come before those that appear in the values, `reads` elements that are
    read before those in the value: both orders are the protocol's (OPENING 6).
    """

    kind: str
    name: str
    dtype: str
    value: Expr | None = None
    count: Expr | None = None
    extreme: str = ""
    start: Expr | None = None
    kept: Expr | None = None
    divisor: Expr | None = None
    first: tuple[Part, ...] = ()
    reads: tuple[Expr, ...] = ()
    condition: Condition | None = None
    of: tuple[Part, ...] = ()
    alone: Condition | None = None
    factors: tuple[Factor, ...] = ()
    inner: Expr | None = None


Parts = tuple[Part, ...]


def local(name: str, value: Expr, first: Parts = (), reads: tuple[Expr, ...] = ()) -> Part:
    """A value of at most LIMIT terms."""
    return Part("local", name, value.dtype, value, first=first, reads=reads)


def tree(name: str, count: Expr, term: Expr, reads: tuple[Expr, ...] = ()) -> Part:
    """A sum of `count` terms of the term's dtype."""
    return Part("tree", name, term.dtype, term, count, reads=reads)


def extremum(name: str, count: Expr, element: Expr, extreme: str) -> Part:
    """The extreme one of `count` elements."""
    dtype = "i64" if extreme == "argmax" else element.dtype
    return Part("extremum", name, dtype, element, count, extreme)


def chain(name: str, count: Expr, term: Expr, start: Expr, kept: Expr | None = None) -> Part:
    """`start` and `count` additions one after the other, without those terms that are not kept."""
    return Part("chain", name, term.dtype, term, count, start=start, kept=kept)


def latest(name: str, count: Expr, value: Expr, start: Expr, kept: Expr) -> Part:
    """The last of `count` values that are kept, or `start`."""
    return Part("latest", name, value.dtype, value, count, start=start, kept=kept)


def terms(name: str, count: Expr, of: Part, alone: Condition | None = None) -> Part:
    """A sum of `count` terms that are each too long to execute: `of` for element 0, 1, ..."""
    return Part("terms", name, of.dtype, count=count, of=(of,), alone=alone)


def fold(name: str, count: Expr, of: Part, divisor: Expr) -> Part:
    """S of `count` values that are needs, `of` for term 0, 1, ..., divided by `divisor`."""
    return Part("fold", name, of.dtype, count=count, of=(of,), divisor=divisor)


def dot(
    name: str, outer: Expr, inner: Expr, *by: Expr | Factor, reads: tuple[Expr, ...] = ()
) -> Part:
    """A DOT of outer · inner terms, each the product of two factors. The group of one that is a
    value has no other members than the factors themselves."""
    factors = tuple(x if isinstance(x, Factor) else Factor(x, x, inner) for x in by)
    return Part("dot", name, "f32", None, outer * inner, reads=reads, factors=factors, inner=inner)


def either(condition: Condition, a: Part, b: Part) -> Part:
    """One of two parts, as an attribute or an operand's presence decides."""
    return Part("case", a.name, a.dtype, condition=condition, of=(a, b))


def part(of: Part) -> Expr:
    """The value of another part, on which the parties agree first."""
    return interned("part", of.dtype, name=of.name, part=of)


def in_reals(value: Expr, real: Expr) -> Expr:
    """A value that is another one in the real numbers (OPENING 10)."""
    return interned("in reals", value.dtype, (value, real))


def parts_below(roots: Sequence[Expr], first: Parts = ()) -> list[Part]:
    """The parts that values are made of, in the order in which they appear."""
    found = dict.fromkeys(first)
    found |= dict.fromkeys(x.part for x in values_below(roots) if x.kind == "part")
    return list(found)


# -- whole numbers ---------------------------------------------------------------------------------
def element() -> Expr:
    """The element's row-major position in its output."""
    return interned(ELEMENT, INDEX)


def term() -> Expr:
    """The number of the term, or of the element of an extremum."""
    return interned(TERM, INDEX)


def whole(number: int) -> Expr:
    """A whole number."""
    return interned("constant", INDEX, number=number)


def _axis(axis: str | int) -> Expr:
    return whole(axis) if isinstance(axis, int) else interned("axis", INDEX, name=axis)


def extent(operand: str, axis: str | int = "dim") -> Expr:
    """The size of an axis of an operand, or of the output (""): its number, from the end if that is
    negative, or the attribute that names it. A tensor without axes has one of size 1."""
    return interned("extent", INDEX, (_axis(axis),), name=operand)


def inner(operand: str, axis: str | int = "dim") -> Expr:
    """The product of the sizes of the axes after that one."""
    return interned("inner", INDEX, (_axis(axis),), name=operand)


def numel(operand: str) -> Expr:
    """The number of an operand's elements."""
    return interned("numel", INDEX, name=operand)


def at(axis: str | int = "dim") -> Expr:
    """The element's coordinate along an axis of the output."""
    return element() // inner("", axis) % extent("", axis)


def placed(operand: str, axis: str | int, coordinate: Expr) -> Expr:
    """The position in an operand of the element's coordinates, that along `axis` replaced."""
    return interned("placed", INDEX, (_axis(axis), coordinate), name=operand)


def reaches(operand: str, axis: str | int) -> Expr:
    """1 if an operand has the element's coordinates, that along `axis` apart; else 0."""
    return interned("reaches", INDEX, (_axis(axis),), name=operand)


def permuted(operand: str, attribute: str) -> Expr:
    """The position in an operand whose axis number attribute[j] is the output's axis j."""
    return interned("permuted", INDEX, (_axis(attribute),), name=operand)


def broadcast_place(operand: str) -> Expr:
    """The position of the element in an operand that is broadcast (NUMERICS 10.1)."""
    return interned("broadcast", INDEX, name=operand)


def inside_of(x: Expr, count: Expr) -> Expr:
    """Whether a whole number is one of 0, 1, ..., count − 1: a bool."""
    return primitive("and", primitive("ge", x, 0), primitive("lt", x, count))


def word(operand: str, draw: Expr, block: Expr, number: Expr) -> Expr:
    """A word of a Philox block (NUMERICS 8.1). The operand has seed and step, which are one read;
    refused where they are no key."""
    return interned("word", INDEX, (draw, block, number), name=operand)


def product(attribute: str) -> Expr:
    """The product of the whole numbers of an attribute."""
    return interned("product", INDEX, name=attribute)


def entry(attribute: str, number: int = 0) -> Expr:
    """One whole number of an attribute; a single number stands for all."""
    return interned("entry", INDEX, (whole(number),), name=attribute)


def given(name: str) -> Expr:
    """How many operands a name with a star stands for."""
    return interned("given", INDEX, name=name)


def reduced() -> Expr:
    """How many elements of the first operand go into one of the output (NUMERICS 3.3)."""
    return interned("reduced", INDEX)


def reduced_place() -> Expr:
    """The position of number `term()` of these: the reduced axes' indices in row-major order, the
    others the output's (NUMERICS 3.3)."""
    return interned("reduced place", INDEX)


# -- elements --------------------------------------------------------------------------------------
def read(operand: str, position: Operand, dtype: str = "f32", number: Expr | None = None) -> Expr:
    """The element of an operand at a row-major position. `number` is the operand's among those that
    a name with a star stands for."""
    at = position if isinstance(position, Expr) else whole(int(position))
    return interned("read", dtype, (at,) if number is None else (at, number), name=operand)


def joined(operands: str, axis: str | int = "dim") -> Expr:
    """The element of any number of operands, one after the other along an axis."""
    return interned("joined", MOVED, (_axis(axis),), name=operands)


def choice(where: Expr, a: Expr, b: Expr | float) -> Expr:
    """a where `where` holds, else b. What is read or refused for one of them alone is read and
    refused only where that one is chosen."""
    other = b if isinstance(b, Expr) else constant(b, a.dtype)
    return interned("choice", a.dtype, (where, a, other))


def as_float(index: Expr, dtype: str = "f32") -> Expr:
    """A whole number as RN32 or RN64 of it."""
    return convert(index, dtype)


def as_index(x: Expr) -> Expr:
    """An i64 as a whole number."""
    return convert(x, INDEX)


def inside(x: Expr, count: Expr, what: str = "index") -> Expr:
    """An i64 as a whole number below `count`. The operands are refused where it is none."""
    return interned("inside", INDEX, (x, count), name=what)
