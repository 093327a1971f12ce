"""Opening rules against the kernels, and games between an honest claimant and a liar.

The referee of a game has only a sparse source: what was opened of the operands. A liar is
consistent: what he states is what he would get from changed operands, or from one changed
intermediate, all the way up; below the lie he answers by the contract.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.types import type_of
from tallystick.opening.quantity import (
    BLOCKS,
    LIMIT,
    REAL,
    VALUE_DTYPES,
    Array,
    Index,
    Local,
    MissingElements,
    Quantity,
    Scalar,
    Site,
    Source,
    TermsQuantity,
    opening_rule,
)
from tallystick.opening.values import WholeSource, value_of
from tallystick.opening.views import Path, locate, view_dtypes, view_values
from tallystick.protocol.element import Ask, ElementOutcome, resolve, same_bits

Operands = Sequence[np.ndarray | None]
ASKED = 256  # PROTOCOL 6.4: values in one answer
OPENINGS = 8  # PROTOCOL P4
OPENED = 5 * LIMIT  # no rule reads more than five operand elements for a term


class SparseSource:
    """Elements opened one by one of `operands`."""

    def __init__(self, operands: Operands) -> None:
        self._whole = operands
        self._opened: dict[int, set[int]] = {}
        self.elements = 0
        self.openings = 0

    def read(self, operand: int, flat: Index) -> Array:
        have = self._opened.get(operand, set())
        missing = sorted({int(k) for k in flat.reshape(-1)} - have)
        if missing:
            raise MissingElements(operand, np.array(missing, dtype=np.int64))
        return WholeSource(self._whole).read(operand, flat)

    def open(self, operand: int, flat: Index) -> None:
        array = self._whole[operand]
        assert array is not None
        assert ((flat >= 0) & (flat < array.size)).all(), "a rule reads outside an operand"
        opened = self._opened.setdefault(operand, set())
        assert not opened & set(flat.tolist()), "an element is asked for twice"
        opened.update(flat.tolist())
        self.elements += len(flat)
        self.openings += 1


def sites(
    op: str, attrs: dict[str, Any], operands: Operands, contract: str = ORDERED_1
) -> list[tuple[Site, Array]]:
    """A site at element 0 of every output, with that output by the kernel."""
    # Under a contract with logs a kernel's values are one trainer's choice: only types matter.
    kernels = "ordered/1" if contract.startswith("replay") else contract
    result = evaluate(op, *operands, contract=kernels, **attrs)
    outputs = result if isinstance(result, tuple) else (result,)
    ins = tuple(None if x is None else type_of(x) for x in operands)
    outs = tuple(type_of(y) for y in outputs)
    return [(Site(op, attrs, ins, outs, k, 0, contract), y) for k, y in enumerate(outputs)]


def some_elements(count: int, most: int) -> list[int]:
    """`most` elements at most, first and last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).astype(int).tolist()))


def check_values(
    op: str,
    attrs: dict[str, Any],
    *operands: np.ndarray | None,
    most: int = 40,
    contract: str = ORDERED_1,
) -> None:
    """The rule's value of elements of every output is the kernel's, bit for bit."""
    source = WholeSource(operands)
    for site, output in sites(op, attrs, operands, contract):
        flat = output.reshape(-1)
        for element in some_elements(output.size, most):
            quantity = opening_rule(replace(site, element=element))
            value = value_of(quantity, source)
            assert value.dtype == output.dtype
            assert same_bits(value, flat[element]), (
                op,
                attrs,
                site.out,
                element,
                value,
                flat[element],
            )


@dataclass
class Claimant:
    """States values of `root` on `source`; of what his root has not, those of `true`."""

    root: Quantity
    source: Source
    true: Quantity

    def value(self) -> Scalar:
        return value_of(self.root, self.source)

    def state(self, ask: Ask) -> tuple[Scalar, ...]:
        try:
            quantity = locate(self.root, ask.path)
            if view_dtypes(quantity, ask.view) != ask.dtypes:
                raise LookupError(quantity.name)
        except LookupError:
            quantity = locate(self.true, ask.path)
        return view_values(quantity, ask.view, self.source)


def flipped(value: Scalar) -> Scalar:
    """Another value, far enough that rounding above it does not swallow the lie."""
    if value.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return value.dtype.type(value * 1.5 if np.isfinite(value) and value != 0 else 1)
    if value.dtype == REAL:
        lie = np.array(value)
        lie["x"] = lie["x"] * 1.5 if lie["x"] else 1.0
        return lie[()]  # type: ignore[no-any-return]
    if value.dtype == BLOCKS:  # the total, by a sixteenth or more; of 0, to 1
        total = np.frombuffer(value.tobytes()[:8], np.float64)[0]
        lie = np.float64(total * 1.5 if total == total and total != 0 else 1.0)
        return np.frombuffer(lie.tobytes() + value.tobytes()[8:], BLOCKS)[0]
    raw = bytearray(value.tobytes())
    raw[0] ^= 1
    return np.frombuffer(bytes(raw), value.dtype)[0]


def corrupted(quantity: Quantity, path: Path, source: Source) -> Quantity:
    """`quantity` with the part at `path` stated wrongly and everything above consistent."""
    if not path:
        lie = flipped(value_of(quantity, source))
        return Local(quantity.name, quantity.dtype, lambda _, __: lie)
    step, rest = path[0], path[1:]
    if step < len(quantity.needs):
        needs = list(quantity.needs)
        needs[step] = corrupted(needs[step], rest, source)
        return replace(quantity, needs=tuple(needs))
    assert isinstance(quantity, TermsQuantity)
    at, old = step - len(quantity.needs), quantity
    changed = corrupted(old.term(at), rest, source)

    def terms(source: Source, needs: Any, index: Index) -> Array:
        values = np.array(old.terms(source, needs, index))
        values[index == at] = value_of(changed, source)
        return values

    return replace(old, term=lambda i: changed if i == at else old.term(i), terms=terms)


def paths(quantity: Quantity, at: Path = ()) -> Iterator[Path]:
    """The paths of `quantity` and everything below; of many terms only some."""
    yield at
    for k, need in enumerate(quantity.needs):
        yield from paths(need, (*at, k))
    if isinstance(quantity, TermsQuantity) and quantity.count:
        for i in some_elements(quantity.count, 3):
            yield from paths(quantity.term(i), (*at, len(quantity.needs) + i))


class Player(Protocol):
    """One of the two: a value of the element, and answers to what is asked below it."""

    def value(self) -> Scalar: ...

    def state(self, ask: Ask) -> tuple[Scalar, ...]: ...


class Liar(Player, Protocol):
    """`true` is what the element is by the rule."""

    true: Quantity


def drive(
    site: Site, operands: Operands, players: tuple[Player, Player]
) -> tuple[ElementOutcome, SparseSource]:
    """The game between two players, with what was opened; checks what it asks and opens."""
    claims = (players[0].value(), players[1].value())
    sparse = SparseSource(operands)
    published = parse_contract(site.contract).form == "published"
    game = resolve(opening_rule(site), claims, sparse, published=published)
    sent: Any = None
    while True:
        try:
            step = game.send(sent)
        except StopIteration as end:
            outcome: ElementOutcome = end.value
            break
        if isinstance(step, Ask):
            assert 0 < len(step.dtypes) <= ASKED
            sent = tuple(player.state(step) for player in players)
            for values in sent:
                assert [v.dtype for v in values] == [VALUE_DTYPES[d] for d in step.dtypes]
        else:
            sparse.open(step.operand, step.flat)
            sent = None
    assert any(outcome.convicted), outcome
    assert outcome.terms <= LIMIT
    assert sparse.elements <= OPENED
    assert sparse.openings <= OPENINGS
    return outcome, sparse


def play(site: Site, operands: Operands, liar: Liar, liar_first: bool) -> ElementOutcome:
    """The game between an honest claimant and `liar`, who alone is convicted."""
    honest = Claimant(liar.true, WholeSource(operands), liar.true)
    players = (liar, honest) if liar_first else (honest, liar)
    outcome, _ = drive(site, operands, players)
    assert outcome.convicted == (liar_first, not liar_first), outcome
    return outcome


def check_lies(
    op: str,
    attrs: dict[str, Any],
    *operands: np.ndarray | None,
    most: int = 3,
    contract: str = ORDERED_1,
) -> list[ElementOutcome]:
    """A lie about every quantity below some elements of every output convicts the liar alone.

    Returns the verdicts, so that a test can say which clauses they were to be.
    """
    outcomes = []
    for site, output in sites(op, attrs, operands, contract):
        for element in some_elements(output.size, most):
            here = replace(site, element=element)
            true, whole = opening_rule(here), WholeSource(operands)
            value = value_of(true, whole)
            for n, path in enumerate(paths(true)):
                liar = Claimant(corrupted(true, path, whole), whole, true)
                if not same_bits(liar.value(), value):  # else it changes nothing: no dispute
                    outcomes.append(play(here, operands, liar, n % 2 == 0))
    assert outcomes
    return outcomes


def check_changed_operand(
    op: str,
    attrs: dict[str, Any],
    *operands: np.ndarray | None,
    operand: int,
    positions: Sequence[int],
    value: float,
    out: int = 0,
    element: int = 0,
    contract: str = ORDERED_1,
) -> ElementOutcome:
    """A liar who computed output element from an operand with other elements, and is consistent."""
    changed = list(operands)
    array = changed[operand]
    assert array is not None
    copy = array.copy()
    copy.reshape(-1)[list(positions)] = value
    changed[operand] = copy
    site = replace(sites(op, attrs, operands, contract)[out][0], element=element)
    true = opening_rule(site)
    liar = Claimant(true, WholeSource(changed), true)
    first = play(site, operands, liar, True)
    second = play(site, operands, liar, False)
    assert (first.quantity, first.path) == (second.quantity, second.path)
    return first
