"""Phase 3: one element of one output (PROTOCOL 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick.commit.tensor import TensorHeader
from tallystick.errors import CannotCheckError, UsageError
from tallystick.numerics.kernels import refused_operands
from tallystick.numerics.opening.quantity import (
    VALUE_DTYPES,
    Logged,
    Quantity,
    opening_rule,
    rules,
)
from tallystick.protocol.element import Ask, Open, Outcome, Resolving, examine, resolve
from tallystick.protocol.facts import header_of_type
from tallystick.protocol.game import (
    BOTH,
    Asking,
    Game,
    Guilty,
    Rounds,
    ask,
    convict,
    show,
)
from tallystick.protocol.queries import OUTPUT, Values
from tallystick.protocol.sparse import OutsideOperandError, SparseSource
from tallystick.protocol.states import UNDECIDED
from tallystick.protocol.tensors import agreed_element, first_element, open_operand

_RULE_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, UsageError)


def output(game: Game) -> Rounds:
    """6.1: the first element of the disputed output whose bytes differ."""
    header = header_of_type(game.facts.program.nodes[game.node].out_types[game.output])
    a, b = game.records
    digests = (a.outputs[game.output], b.outputs[game.output])
    game.element, game.claims = yield from first_element(game, OUTPUT, game.output, header, digests)
    game.found(element=game.element)
    stated = (show(game.claims[0]), show(game.claims[1]))
    game.note(3, "6.1", f"element {game.element} of output {game.output}", stated)
    return "element" if game.facts.section_of(game.node, game.output) is None else "log"


def _quantity(game: Game) -> Quantity:
    """What the disputed element is by the contract (6.2)."""
    site = game.facts.site(game.node, game.output, game.element)
    if site.op not in rules():
        raise CannotCheckError(
            f"This build has no opening rule for {site.op}.", "Use a newer build."
        )
    return opening_rule(site)


def _values(game: Game, asked: Ask) -> Asking[tuple[tuple[np.generic, ...], ...]]:
    """Both parties state values of a quantity (6.3, 6.4)."""
    query = Values(game.step, game.node, game.output, game.element, asked.path, asked.view)
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


def _sources(game: Game) -> tuple[SparseSource, dict[int, TensorHeader]]:
    headers = {number: header_of_type(type_) for number, _, type_ in game.facts.operands(game.node)}
    return SparseSource(headers), headers


def element(game: Game) -> Rounds:
    """6.2 to 6.12: down to the contract's own partials, and at most 256 executed terms."""
    published = game.facts.log_form == "published"
    source, headers = _sources(game)
    claims = (game.claims[0], game.claims[1])
    play = resolve(_quantity(game), claims, source, (), game.entries, published)
    outcome = yield from _played(game, play, source, headers)
    claimed = _convicted_below(game, outcome)
    game.note(3, "6.12", "each may be what that party's own log makes of it", claimed)
    return UNDECIDED


def entry(game: Game) -> Rounds:
    """6.13: whose entry no admissible kernel can have led to, or says another value."""
    quantity = _logged(game)
    if quantity is None:
        return "beyond"
    source, headers = _sources(game)
    header = header_of_type(game.facts.program.nodes[game.node].out_types[game.output])
    digest = game.records[0].outputs[game.output]
    value = yield from agreed_element(game, game.output, header, game.element, digest)
    play = examine(quantity, game.entries, value, source, game.facts.log_form == "published")
    outcome = yield from _played(game, play, source, headers)
    _convicted_below(game, outcome)
    return "beyond"


def _logged(game: Game) -> Logged | None:
    """What the element of the differing entry is; None where no clause speaks about it.

    Convicts at once whoever has an entry for an element that does not exist (NUMERICS 14.7).
    """
    given = game.facts.program.nodes[game.node]
    if game.element >= given.out_types[game.output].numel:
        why = f"its log has an entry for element {game.element}, which does not exist"
        raise Guilty({p: ("6.13", why) for p in BOTH if game.entries[p] is not None}, "3")
    quantity = _quantity(game)
    return quantity if isinstance(quantity, Logged) else None


def _played(
    game: Game, play: Resolving, source: SparseSource, headers: dict[int, TensorHeader]
) -> Asking[Outcome]:
    """Fetch and verify what `play` asks for, to its outcome."""
    reply: object = None
    while True:
        try:
            wanted = play.send(reply)
        except StopIteration as end:
            outcome = end.value
            assert isinstance(outcome, Outcome)
            return outcome
        except (OutsideOperandError, *_RULE_FAULTS) as error:
            if isinstance(error, OutsideOperandError) or refused_operands(error):
                # Kernels refuse such operands: no party can have executed this node honestly.
                why = f"its operands, as both state them, are none the operator takes: {error}"
                raise Guilty(dict.fromkeys(BOTH, ("6.5", why)), "3") from None
            raise CannotCheckError(
                f"The opening rule of {game.place.operator} fails: {error}.", "Report it."
            ) from error
        if isinstance(wanted, Open):
            leaves = source.missing(wanted.operand, wanted.flat)
            opening = yield from open_operand(game, wanted.operand, headers[wanted.operand], leaves)
            source.add(wanted.operand, opening)
            reply = None
        else:
            reply = yield from _values(game, wanted)


def _convicted_below(game: Game, outcome: Outcome) -> tuple[str, str]:
    """Convict by the outcome below an element; without a conviction, what the two have claimed."""
    game.found(quantity=outcome.quantity)
    game.terms_executed += outcome.terms
    game.choices = outcome.choices
    claimed = outcome.shown or (show(outcome.claimed[0]), show(outcome.claimed[1]))
    value = "" if outcome.value is None else show(outcome.value)
    where = f"{outcome.quantity} of element {game.element} of its node {game.node}"
    guilt = {}
    for party in BOTH:
        if outcome.convicted[party]:
            told = outcome.why[party]
            says = f"{where} is {claimed[party]}"
            why = f"; by the contract it is {value}" if value else ", and contradicts itself"
            guilt[party] = (outcome.clause, f"{where}: {told}" if told else says + why)
    if guilt:
        raise Guilty(guilt, "3", claimed, value)
    game.claimed, game.value = claimed, value
    return claimed
