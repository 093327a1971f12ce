"""Phase 3: one element of one output (PROTOCOL 6), from the opened part of the node's operands
(6.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tallystick.commit.tensor import LEAF_BYTES, TensorHeader, TensorOpening
from tallystick.devices.device import refused_operands
from tallystick.errors import CannotCheckError, UnsupportedVersionError, UsageError
from tallystick.numerics.types import DTYPES
from tallystick.opening.quantity import (
    VALUE_DTYPES,
    Array,
    Index,
    Logged,
    MissingElements,
    Quantity,
    opening_rule,
    rules,
)
from tallystick.protocol.element import Ask, ElementOutcome, Open, Resolving, examine, resolve
from tallystick.protocol.facts import Facts, header_of_type
from tallystick.protocol.game import BOTH, Asking, Game, Guilty, Next, Rounds, ask, convict, show
from tallystick.protocol.queries import OUTPUT, Values
from tallystick.protocol.results import (
    NO_ENTRIES,
    ClaimedElement,
    DisputedElement,
    DisputedOutput,
    DisputedStep,
)
from tallystick.protocol.tensors import agreed_element, first_element, open_operand
from tallystick.protocol.verdict import UNDECIDED


class OutsideOperandError(Exception):
    """A rule reads elements that the operand does not have."""

    def __init__(self, operand: int, element: int) -> None:
        super().__init__(f"operand {operand} has no element {element}")


class SparseSource:
    """Elements of operands in verified leaves; asks for the others by MissingElements.

    `headers` are the program's, by operand number.
    """

    def __init__(self, headers: Mapping[int, TensorHeader]) -> None:
        self._headers = headers
        self._leaves: dict[tuple[int, int], Array] = {}

    def add(self, operand: int, opening: TensorOpening) -> None:
        """Take in an opening that was verified against the agreed digest."""
        dtype = DTYPES[self._headers[operand].dtype]
        for leaf, data in opening.leaves.items():
            self._leaves[operand, leaf] = np.frombuffer(data, dtype=dtype)

    def leaves_of(self, operand: int, flat: Index) -> list[int]:
        """The leaves with elements `flat`, ascending, each once. Raises OutsideOperandError."""
        header = self._headers[operand]
        for element in flat.reshape(-1):
            if not 0 <= element < header.elements:
                raise OutsideOperandError(operand, int(element))
        return sorted({header.leaf_of(int(e)) for e in flat.reshape(-1)})

    def read(self, operand: int, flat: Index) -> Array:
        """Elements `flat` of an operand (quantity.Source.read)."""
        header = self._headers[operand]
        flat = np.asarray(flat, dtype=np.int64)
        missing = [
            leaf for leaf in self.leaves_of(operand, flat) if (operand, leaf) not in self._leaves
        ]
        if missing:
            raise MissingElements(operand, flat)
        out = np.empty(flat.shape, DTYPES[header.dtype])
        per_leaf = LEAF_BYTES // header.itemsize
        for at, element in enumerate(flat.reshape(-1)):
            leaf, inside = divmod(int(element), per_leaf)
            out.reshape(-1)[at] = self._leaves[operand, leaf][inside]
        return out

    def missing(self, operand: int, flat: Index) -> list[int]:
        """The leaves with elements `flat` that were not opened yet."""
        return [n for n in self.leaves_of(operand, flat) if (operand, n) not in self._leaves]


_RULE_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, UsageError)


def output(game: Game, at: DisputedOutput) -> Rounds:
    """6.1: the first element of the disputed output whose bytes differ."""
    a, b = at.at.records
    digests = (a.outputs[at.output], b.outputs[at.output])
    facts = game.facts.at(at.step)
    header = at.header(facts)
    place = (at.step, at.node)
    element, claims = yield from first_element(place, OUTPUT, at.output, header, digests)
    game.story.found(element=element)
    stated = (show(claims[0]), show(claims[1]))
    game.story.note(3, "6.1", f"element {element} of output {at.output}", stated)
    logged = facts.section_of(at.node, at.output) is not None
    return Next("log" if logged else "element", ClaimedElement(at, element, NO_ENTRIES, claims))


def _quantity(game: Game, at: DisputedElement) -> Quantity:
    """The disputed element's quantity by the contract (6.2)."""
    site = game.facts.at(at.at.step).site(at.at.node, at.at.output, at.element)
    if site.op not in rules():
        raise UnsupportedVersionError(
            f"This build has no opening rule for {site.op}.", "Use a newer build."
        )
    return opening_rule(site)


def _values(at: DisputedElement, asked: Ask) -> Asking[tuple[tuple[np.generic, ...], ...]]:
    """Both parties state values of a quantity (6.3, 6.4)."""
    where = (at.at.step, at.at.node)
    query = Values(*where, at.at.output, at.element, asked.path, asked.view)
    bodies = yield from ask(dict.fromkeys(BOTH, query))
    dtypes = [VALUE_DTYPES[name] for name in asked.dtypes]
    length = sum(d.itemsize for d in dtypes)
    guilt = {
        p: ("2.7", f"{len(body.data)} bytes are not the {len(dtypes)} values asked for")
        for p, body in bodies.items()
        if len(body.data) != length
    }
    convict(guilt)
    return tuple(_split(bodies[p].data, dtypes) for p in BOTH)


def _split(data: bytes, dtypes: Sequence[np.dtype[np.generic]]) -> tuple[np.generic, ...]:
    values, at = [], 0
    for dtype in dtypes:
        values.append(np.frombuffer(data, dtype, 1, at)[0])
        at += dtype.itemsize
    return tuple(values)


def _sources(facts: Facts, node: int) -> tuple[SparseSource, dict[int, TensorHeader]]:
    headers = {number: header_of_type(type_) for number, _, type_ in facts.operands(node)}
    return SparseSource(headers), headers


def element(game: Game, at: ClaimedElement) -> Rounds:
    """6.2 to 6.12: down to the contract's own partials, and at most 256 executed terms."""
    published = game.facts.log_form == "published"
    source, headers = _sources(game.facts.at(at.at.step), at.at.node)
    play = resolve(_quantity(game, at), at.claims, source, (), at.entries, published)
    outcome = yield from _played(game, at, play, source, headers)
    claimed = _convicted_below(game, at, outcome)
    game.story.note(3, "6.12", "each may follow from that party's own log", claimed)
    return Next(UNDECIDED)


def entry(game: Game, at: DisputedElement) -> Rounds:
    """6.13: convict each party whose entry is forged or gives another value."""
    output, past = at.at, Next("beyond", DisputedStep(at.at.step))
    quantity = _logged(game, at)
    if quantity is None:
        return past
    facts = game.facts.at(output.step)
    source, headers = _sources(facts, output.node)
    header, place = output.header(facts), (output.step, output.node)
    digest = output.at.records[0].outputs[output.output]
    value = yield from agreed_element(place, output.output, header, at.element, digest)
    play = examine(quantity, at.entries, value, source, game.facts.log_form == "published")
    outcome = yield from _played(game, at, play, source, headers)
    _convicted_below(game, at, outcome)
    return past


def _logged(game: Game, at: DisputedElement) -> Logged | None:
    """The quantity of the differing entry's element; None where no clause speaks about it.

    Convicts at once a party with an entry for an element that does not exist (NUMERICS 14.7).
    """
    if at.element >= at.at.header(game.facts.at(at.at.step)).elements:
        why = f"its log has an entry for element {at.element}, which does not exist"
        raise Guilty({p: ("6.13", why) for p in BOTH if at.entries[p] is not None}, "3")
    quantity = _quantity(game, at)
    return quantity if isinstance(quantity, Logged) else None


def _played(
    game: Game,
    at: DisputedElement,
    play: Resolving,
    source: SparseSource,
    headers: dict[int, TensorHeader],
) -> Asking[ElementOutcome]:
    """Fetch and verify the values and elements that `play` asks for, up to its outcome."""
    reply: object = None
    node, place = at.at.at, (at.at.step, at.at.node)
    facts = game.facts.at(at.at.step)
    while True:
        try:
            wanted = play.send(reply)
        except StopIteration as end:
            outcome = end.value
            assert isinstance(outcome, ElementOutcome)
            return outcome
        except (OutsideOperandError, *_RULE_FAULTS) as error:
            if isinstance(error, OutsideOperandError) or refused_operands(error):
                # Kernels refuse such operands: no party can have executed this node honestly.
                why = f"the operator refuses its operands, as both state them: {error}"
                raise Guilty(dict.fromkeys(BOTH, ("6.5", why)), "3") from None
            raise CannotCheckError(
                f"The opening rule of {game.story.place.operator} fails: {error}.", "Report it."
            ) from error
        if isinstance(wanted, Open):
            leaves = source.missing(wanted.operand, wanted.flat)
            number = wanted.operand
            digest = node.input_digest(facts, 0, number)  # both state the same inputs
            opening = yield from open_operand(place, number, headers[number], leaves, digest)
            source.add(number, opening)
            reply = None
        else:
            reply = yield from _values(at, wanted)


def _convicted_below(game: Game, at: DisputedElement, outcome: ElementOutcome) -> tuple[str, str]:
    """Convict by the outcome below an element; without a conviction, return the two claims."""
    game.story.found(quantity=outcome.quantity)
    game.story.terms += outcome.terms
    game.story.choices = outcome.choices
    claimed = outcome.shown or (show(outcome.claimed[0]), show(outcome.claimed[1]))
    value = "" if outcome.value is None else show(outcome.value)
    where = f"{outcome.quantity} of element {at.element} of its node {at.at.node}"
    guilt = {}
    for party in BOTH:
        if outcome.convicted[party]:
            told = outcome.why[party]
            says = f"{where} is {claimed[party]}"
            why = f"; by the contract it is {value}" if value else ", and contradicts itself"
            guilt[party] = (outcome.clause, f"{where}: {told}" if told else says + why)
    if guilt:
        raise Guilty(guilt, "3", claimed, value)
    game.story.claimed, game.story.value = claimed, value
    return claimed
