"""Quantities: one element of an operator's output, in parts that a referee can execute.

Theory of operation. Two parties claim different values for one output element. An *opening rule*
describes that element by the operator's clause of spec/NUMERICS.md. The description is a tree of
*quantities*. Each quantity is the contract's own partial: a chunk of a DOT, a block of a SUM, a
named intermediate of a micro-graph. The parties state the values of a quantity's parts. The first
part on which they differ is disputed next. In the end the disputed part needs at most `LIMIT`
terms, and the referee executes it. The same rule serves prover, referee and judge: they differ only
in the source of operand elements.

A quantity's value is a numpy scalar of its `dtype`, compared bit by bit. `needs` are quantities
on which the parties must agree before the referee executes any other part of it. The functions get
their values in that order. All arithmetic in a rule is the contract's. numpy's binary32 and
binary64 +, -, *, / and sqrt are IEEE-754 and may be used on arrays of the right dtype. Every other
function goes through `tallystick.evaluate` or `dot.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tallystick.errors import RefusedOperandsError as RefusedOperandsError
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.grid import Doubt, Reach
from tallystick.numerics.types import DTYPES, Attrs, TensorType

# PROTOCOL 6.1: the most terms that a referee executes for one verdict.
LIMIT = 256
# NUMERICS 2.1, 3.1.
CHUNK, BLOCK = 128, 256

# A quantity's dtypes: those of tensors, the record of an exact sum (NUMERICS 13.5), that of blocks
# of integers (OPENING 12.3), and the pair of a real number and its bound (NUMERICS 14.11).
ACCUMULATOR = np.dtype("V80")
BLOCKS = np.dtype("V24")
REAL = np.dtype([("x", "<f8"), ("e", "<f8")])
VALUE_DTYPES: dict[str, np.dtype[Any]] = {**DTYPES, "acc": ACCUMULATOR, "real": REAL, "blk": BLOCKS}

Index = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Scalar = np.generic


class Source(Protocol):
    """The source of the operands' elements: whole tensors, or their opened parts."""

    def read(self, operand: int, flat: Index) -> Array:
        """Elements of operand number `operand` at row-major positions `flat`, any shape.

        A sparse source raises MissingElements for elements that it lacks.
        """


class MissingElements(Exception):  # noqa: N818 (a request for more, not an error)
    """A sparse source lacks elements `flat` of operand `operand`: open them and try again."""

    def __init__(self, operand: int, flat: Index) -> None:
        super().__init__(f"elements of operand {operand} are not opened")
        self.operand = operand
        self.flat = flat


# The values of a quantity's needs, in that order: numpy scalars of their dtypes.
Needs = tuple[Any, ...]


@dataclass(frozen=True)
class Local:
    """A value made of at most LIMIT terms: operand elements and agreed quantities."""

    name: str
    dtype: str
    compute: Callable[[Source, Needs], Any]
    needs: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class TreeQuantity:
    """SUM over `count` terms (NUMERICS 3.1): f32, f64 (SUM64), or i64 (wrapping).

    `terms(source, needs, index)` gives the terms number `index` (int64, 1-d), in `dtype`.
    """

    name: str
    dtype: str
    count: int
    terms: Callable[[Source, Needs, Index], Array]
    needs: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class TermsQuantity:
    """SUM over `count` terms (NUMERICS 3.1), each too long to execute: a quantity of its own.

    `term(index)` is term number `index`, of the same dtype. `terms(source, needs, index)` gives the
    values of many of them at once, bit for bit those of `term`. Only a prover calls it, because
    only a prover has whole operands. In a path, term i is step len(needs) + i (PROTOCOL 6.4).
    """

    name: str
    dtype: str
    count: int
    term: Callable[[int], Quantity]
    terms: Callable[[Source, Needs, Index], Array]
    needs: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class Chain:
    """A value reached by `count` links one after the other, from `start` (DOT's chunks, a scatter).

    `advance(source, needs, state, first, last)` is the state after links first..last-1, given the
    state before link `first`. `start` is the state before link 0. A referee executes at most
    `stretch` links at once. Each link is `weight` terms, and stretch * weight <= LIMIT. If count is
    0, the value is `start`. A prover calls `advance` over long ranges, so it should be fast there.
    A state that is only `moved` keeps its bits; of another, a NaN is the canonical one.
    """

    name: str
    dtype: str
    count: int
    stretch: int
    start: Scalar
    advance: Callable[[Source, Needs, Any, int, int], Any]
    needs: tuple[Quantity, ...] = ()
    weight: int = 1
    moved: bool = False


@dataclass(frozen=True)
class Extremum:
    """The largest of `count` >= 1 elements by NUMERICS 1.11, or its lowest index.

    `element(source, needs, index)` gives elements in f32 or i64. `kind`: "max", "min", or
    "argmax" (value: i64, the lowest index of the largest by NUMERICS 3.5). Witnesses resolve it:
    a party that claims a value names an element that has the value.
    """

    name: str
    dtype: str
    count: int
    kind: str
    element: Callable[[Source, Needs, Index], Array]
    needs: tuple[Quantity, ...] = ()


@dataclass(frozen=True)
class Logged:
    """An output element whose value also depends on its party's rounding log (PROTOCOL 6.11).

    `compute(source, needs, entry)` is the value given the entry's direction, 0 or 1, or None
    without an entry. `doubtful(source, needs)` gives V (NUMERICS 14.5), None where a term is not
    finite. For a published log `reach(source, needs)` gives the values that each entry allows
    (NUMERICS 14.10), None where no bound exists. For a bounded log `reach` is None.
    """

    name: str
    dtype: str
    compute: Callable[[Source, Needs, int | None], Any]
    doubtful: Callable[[Source, Needs], Doubt | None]
    reach: Callable[[Source, Needs], Reach | None]
    needs: tuple[Quantity, ...] = ()


Quantity = Local | TreeQuantity | TermsQuantity | Chain | Extremum | Logged


@dataclass(frozen=True)
class Site:
    """One element of one output of one operator application, the subject of a rule.

    `inputs` are the operand types, None where an optional one is absent; operand numbers in
    `Source.read` are positions in it. `element` is the row-major position in output `out`.
    `contract` is a full identifier.
    """

    op: str
    attrs: Attrs
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    out: int
    element: int
    contract: str = ORDERED_1

    def has(self, operand: int) -> bool:
        """True if an optional operand is present."""
        return operand < len(self.inputs) and self.inputs[operand] is not None

    def type_of(self, operand: int) -> TensorType:
        """The type of a present operand."""
        t = self.inputs[operand]
        assert t is not None  # the shape rule refused an absent operand
        return t


Rule = Callable[[Site], Quantity]
opening: Attachments[Rule] = Attachments("opening rule", "tallystick.opening.rules")


def rules() -> dict[str, Rule]:
    """Every opening rule by operator name."""
    return dict(opening)


def opening_rule(site: Site) -> Quantity:
    """The quantity of the element at `site` (PROTOCOL 6)."""
    return parse_contract(site.contract).rule(site, opening[site.op])
