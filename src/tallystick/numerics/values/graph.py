"""A value: a graph of primitives over operands' elements, attributes, sizes and constants.

A primitive is what a value may be made of (NUMERICS 1, 5, 10). An interpreter has one function for
each. None has an attribute or a size, and each works on one element. `rounds` says that binary32
need not hold the result exactly.

Equal values are one object, so an intermediate that is named once is computed once. Python's
operators build values:

    s = function("sigmoid", x)
    grad * (s * fma(x, 1.0 - s, 1.0))

A `case` has two values of which an attribute, or an operand's presence, chooses one. Before
anything computes, `resolved` takes it away: so no interpreter knows attributes' meanings.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tallystick.numerics.types import AttrValue

FLOATS, NUMBERS, WHOLE = ("f32", "f64"), ("f32", "f64", "i64"), ("bool", "i64")
EVERY = ("f32", "f64", "i64", "i32", "u8", "bool")
# A whole number of no dtype: a position, a size, a count of terms.
INDEX = "index"
# The output's dtype, of an element that is moved: its bits stay what they are.
MOVED = "moved"


@dataclass(frozen=True)
class Primitive:
    """`takes` are the dtypes that its operands may have, all of them one. `gives` is the result's:
    "" for theirs. `clause` is of spec/NUMERICS.md."""

    arity: int
    takes: tuple[str, ...]
    clause: str
    gives: str = ""
    rounds: bool = False


_ROUNDED = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# 5.1's list.
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt",
)  # fmt: skip

PRIMITIVES: dict[str, Primitive] = {
    # On i64 they wrap (10.8), and div and sqrt do not exist.
    **{
        name: Primitive(
            arity, FLOATS if name in ("div", "sqrt") else (*NUMBERS, INDEX), "1.3", rounds=True
        )
        for name, arity in _ROUNDED.items()
    },
    # Of indices: the quotient rounded down, and what it leaves.
    "over": Primitive(2, (INDEX,), "1.1"),
    "rest": Primitive(2, (INDEX,), "1.1"),
    "fma": Primitive(3, ("f32",), "1.4", rounds=True),
    "neg": Primitive(1, FLOATS, "10.3"),
    "abs": Primitive(1, FLOATS, "10.3"),
    "max": Primitive(2, ("f32", "i64", INDEX), "1.11"),
    "min": Primitive(2, ("f32", "i64", INDEX), "1.11"),
    **{name: Primitive(2, (*EVERY, INDEX), "1.10", gives="bool") for name in _COMPARISONS},
    "and": Primitive(2, WHOLE, "10.5"),
    "or": Primitive(2, WHOLE, "10.5"),
    "xor": Primitive(2, WHOLE, "10.11"),
    "not": Primitive(1, WHOLE, "10.5"),
    "floor_divide": Primitive(2, ("i64",), "10.10"),
    "left_shift": Primitive(2, ("i64",), "10.11"),
    "right_shift": Primitive(2, ("i64",), "10.11"),
    **{name: Primitive(1, ("f32",), "5.1", rounds=True) for name in FUNCTIONS},
    "pow": Primitive(2, ("f32",), "10.6", rounds=True),
}


T = TypeVar("T")
Number = bool | int | float


@dataclass(frozen=True)
class Condition:
    """`test` "is": attribute `name` equals `value`, compared as numbers (NUMERICS 1.9). "has": the
    attribute or operand `name` is given."""

    test: str
    name: str
    value: AttrValue | None = None

    def holds(self, attrs: Mapping[str, AttrValue], given: Container[str]) -> bool:
        """`given` are the operands and attributes that are there."""
        if self.test == "has":
            return self.name in given
        return attrs.get(self.name) == self.value


def _operation(kind: str) -> Callable[[Expr, Operand], Expr]:
    return lambda self, other: primitive(kind, self, other)


def _reflected(kind: str) -> Callable[[Expr, Operand], Expr]:
    """Of an operator whose right operand the value is."""
    return lambda self, other: primitive(kind, other, self)


@dataclass(frozen=True, eq=False)
class Expr:
    """One value of dtype `dtype`; see the module.

    `kind` is a primitive's name, or: "operand" (its element), "attribute" (a number attribute as a
    number of `dtype`, NUMERICS 1.9, 10.1), "size" (RN32 of the number of elements of operand
    `name`), "constant" (`number`, and `real`, the real number that it stands for), "convert"
    (NUMERICS 10.7; f64 to f32 is RN32), "select" (the second where the first holds, else the
    third), "case". The values of quantities have more leaves: see `positions`.
    """

    kind: str
    dtype: str
    of: tuple[Expr, ...] = ()
    name: str = ""
    number: Number | None = None
    real: float | None = None
    condition: Condition | None = None
    part: Any = None  # of a "part": the quantity that it is the value of

    __add__, __radd__ = _operation("add"), _reflected("add")
    __sub__, __rsub__ = _operation("sub"), _reflected("sub")
    __mul__, __rmul__ = _operation("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operation("div"), _reflected("div")
    __floordiv__, __mod__ = _operation("over"), _operation("rest")
    __le__, __gt__ = _operation("le"), _operation("gt")

    def __neg__(self) -> Expr:
        return primitive("neg", self)


Operand = Expr | int | float
_MADE: dict[Any, Expr] = {}


def _bits(number: Number | None) -> Any:
    """A number as a key: −0 is not +0, and a NaN is itself."""
    return struct.pack("<d", number) if isinstance(number, float) else (type(number), number)


def interned(kind: str, dtype: str, of: tuple[Expr, ...] = (), **rest: Any) -> Expr:
    """The one value of these parts and facts."""
    made = Expr(kind, dtype, of, **rest)
    key = (kind, dtype, tuple(map(id, of)), made.name, _bits(made.number), _bits(made.real),
           made.condition, id(made.part))  # fmt: skip
    return _MADE.setdefault(key, made)


# -- leaves ----------------------------------------------------------------------------------------
def operand(name: str, dtype: str) -> Expr:
    """The element of operand `name` that goes into this element."""
    return interned("operand", dtype, name=name)


def attribute(name: str, like: Expr | str) -> Expr:
    """A float attribute as a number of a dtype, or of another value's: f32 by RN32."""
    return interned("attribute", like if isinstance(like, str) else like.dtype, name=name)


def size(name: str) -> Expr:
    """RN32 of the number of elements of operand `name`."""
    return interned("size", "f32", name=name)


def constant(number: Number, dtype: str, real: float | None = None) -> Expr:
    """A number that `dtype` holds exactly. `real` is what it stands for, if that is another."""
    if dtype == "f32":
        number = float(number)
        if struct.unpack("<f", struct.pack("<f", number))[0] != number:
            raise ValueError(f"{number!r} is not a binary32 number")
    elif dtype == "f64":
        number = float(number)
    return interned("constant", dtype, number=number, real=real)


def binary32(bits: int, real: float) -> Expr:
    """The binary32 number of these bits, which stands for the real number `real`."""
    return constant(struct.unpack("<f", struct.pack("<I", bits))[0], "f32", real)


# -- what is made of them --------------------------------------------------------------------------
def primitive(kind: str, *of: Operand) -> Expr:
    """A primitive of values; a plain number becomes a constant of their dtype."""
    rule = PRIMITIVES[kind]
    dtypes = {x.dtype for x in of if isinstance(x, Expr)}
    if len(dtypes) != 1 or len(of) != rule.arity or not dtypes <= set(rule.takes):
        raise ValueError(f"{kind} takes {rule.arity} of {rule.takes}, got {of}")
    dtype = dtypes.pop()
    values = tuple(x if isinstance(x, Expr) else constant(x, dtype) for x in of)
    return interned(kind, rule.gives or dtype, values)


def fma(a: Operand, b: Operand, c: Operand) -> Expr:
    """a·b + c, rounded once (NUMERICS 1.4)."""
    return primitive("fma", a, b, c)


def function(name: str, x: Expr) -> Expr:
    """A correctly rounded function of NUMERICS 5."""
    return primitive(name, x)


def convert(x: Expr, dtype: str) -> Expr:
    """x as `dtype` (NUMERICS 10.7; f64 to f32: RN32)."""
    return interned("convert", dtype, (x,))


def select(where: Expr, a: Operand, b: Operand) -> Expr:
    """a where `where` holds, else b."""
    dtype = next(x.dtype for x in (a, b) if isinstance(x, Expr))
    pair = tuple(x if isinstance(x, Expr) else constant(x, dtype) for x in (a, b))
    if where.dtype != "bool" or {x.dtype for x in pair} != {dtype}:
        raise ValueError(f"select of {where.dtype}, {[x.dtype for x in pair]}")
    return interned("select", dtype, (where, *pair))


def case(condition: Condition, a: Expr, b: Expr) -> Expr:
    """a where the condition holds of the attributes, else b."""
    if a.dtype != b.dtype:
        raise ValueError(f"a case of {a.dtype} and {b.dtype}")
    return interned("case", a.dtype, (a, b), condition=condition)


def is_(name: str, value: AttrValue) -> Condition:
    """That attribute `name` is `value`."""
    return Condition("is", name, value)


def has(name: str) -> Condition:
    """That the operand or attribute `name` is given."""
    return Condition("has", name)


# -- walks -----------------------------------------------------------------------------------------
def interpreted(roots: Sequence[Expr], meaning: Callable[[Expr, tuple[T, ...]], T]) -> list[T]:
    """The meanings of the roots. Each value below them gets its meaning once, after its parts."""
    known: dict[int, T] = {}
    return [_meaning(root, meaning, known) for root in roots]


# A function of the module, not of the call, which would be in a cycle of references with itself:
# a step makes many calls.
def _meaning(value: Expr, meaning: Callable[[Expr, tuple[T, ...]], T], known: dict[int, T]) -> T:
    found = known.get(id(value))
    if found is None:
        parts = tuple(_meaning(part, meaning, known) for part in value.of)
        found = known[id(value)] = meaning(value, parts)
    return found


def resolved(roots: Sequence[Expr], choose: Callable[[Condition], bool]) -> tuple[Expr, ...]:
    """The roots without a case: `choose` says whether a condition holds."""
    known: dict[int, Expr] = {}
    return tuple(_resolved(root, choose, known) for root in roots)


def _resolved(value: Expr, choose: Callable[[Condition], bool], known: dict[int, Expr]) -> Expr:
    found = known.get(id(value))
    if found is None:
        if value.condition is not None:
            chosen = value.of[0 if choose(value.condition) else 1]
            found = _resolved(chosen, choose, known)
        elif value.of:
            parts = tuple(_resolved(part, choose, known) for part in value.of)
            same = all(map(operator.is_, parts, value.of))
            found = value if same else interned(value.kind, value.dtype, parts, name=value.name)
        else:
            found = value
        known[id(value)] = found
    return found


def values_below(roots: Sequence[Expr], leaves: Container[int] = ()) -> list[Expr]:
    """Every value of the graph once, parts before what is made of them. None below `leaves`, by
    their ids."""
    found: dict[int, Expr] = {}
    for root in roots:
        _visit(root, leaves, found)
    return list(found.values())


def _visit(value: Expr, leaves: Container[int], found: dict[int, Expr]) -> None:
    if id(value) not in found:
        for part in () if id(value) in leaves else value.of:
            _visit(part, leaves, found)
        found[id(value)] = value
