"""Lengths of true answers, and of a game's evidence (PROTOCOL 2.6.1, 8.5).

The length of a true answer follows from the query, the program and the run commitment, and never
from the party's conduct. So the referee knows two things before it asks: whether an honest party
can answer, and whether the evidence can still hold every possible rest of the game. And the judge
knows from the job alone that no game can have left some evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tallystick.commit.checkpoint import checkpoint_count
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.tensor import LEAF_BYTES
from tallystick.errors import CannotCheckError
from tallystick.limits import LIMITS
from tallystick.opening.quantity import VALUE_DTYPES
from tallystick.opening.views import FAN_OUT
from tallystick.program.expand import extremes
from tallystick.program.ir import COMMIT
from tallystick.protocol.facts import Facts, header_of_type
from tallystick.protocol.game import Game, Round
from tallystick.protocol.messages import (
    ANSWER_TAG,
    SIGNATURE_BYTES,
    U64_BYTES,
    Query,
    list_bytes,
    path_bytes,
)
from tallystick.protocol.queries import (
    DEPTH,
    OPENING_HEAD,
    encode_query,
    record_answer_bytes,
    record_bytes,
)

_PARTS = 1 << DEPTH
# Rounds in which values of quantities are stated (4·d of P4) and in which operands are opened
# (twice the o of P4), and leaves opened in each on the average: a rule reads 5 * 256 at most.
_VALUE_ROUNDS, _OPENINGS, _OPENED_LEAVES = 64, 16, 96


def _message(body: int, query: int) -> int:
    """Bytes of a signed answer with such a body and query (2.3, 2.5)."""
    head = len(ANSWER_TAG) + 2 * HASH_BYTES + U64_BYTES
    return U64_BYTES + head + query + 1 + body + SIGNATURE_BYTES


def message_bytes(game: Game, party: int, query: Query[Any]) -> int:
    """Bytes that a true signed answer of `party` to `query` has at most."""
    return _message(query.most(game.facts, game.runs[party]), len(encode_query(query)))


# --- a whole game (8.5) ---------------------------------------------------------------------------
def _logarithm(count: int, base: int) -> int:
    """The least k with base**k >= count."""
    k, reached = 0, 1
    while reached < count:
        k, reached = k + 1, reached * base
    return k


def _game_parts(facts: Facts, arity: int) -> Iterable[tuple[int, int]]:
    """(messages, bytes of each at most) of every kind that a game about a step of `facts` may
    have."""
    c, program = facts.job, facts.program
    checkpoints = checkpoint_count(c.steps, c.checkpoint_interval)
    searches = _logarithm(checkpoints, arity)
    width, height = max(arity - 1, 2), max(checkpoints - 1, 1).bit_length()
    query, slots, nodes = 32 + U64_BYTES * width, path_bytes(len(facts.slots)), len(program.nodes)
    yield 2 * (3 + 2 * searches), _message(HASH_BYTES * width + list_bytes(width * height), query)
    interval = _logarithm(min(c.checkpoint_interval, c.steps), arity)
    yield 2 * (1 + interval), _message(HASH_BYTES * width, query)
    small = 64 + LIMITS.name_bytes
    # Under a contract with logs a second step may be played for (6.14), found by halving.
    plays = 2 if facts.sections else 1
    if facts.sections:
        halvings = _logarithm(checkpoints, 2) + _logarithm(c.checkpoint_interval, 2) + 3
        yield 2 * halvings, _message(HASH_BYTES + list_bytes(height + 1), small)
        yield 2 * halvings, _message(HASH_BYTES + slots, small)
    yield 4 * plays, _message(HASH_BYTES + 4 + slots, small)  # loss, number of nodes, a slot
    yield 2 * plays, _message(record_bytes(facts, facts.last_node), small)
    different = extremes(program)
    yield 4 * plays, _message(max(record_bytes(facts, n) for n in different), small)
    yield plays, _message(record_answer_bytes(facts), small)
    types = [t for n in different for _, _, t in facts.operands(n)]
    made = [program.nodes[n] for n in different]
    types += [t for node in made for t in node.out_types if node.op != COMMIT]
    headers = {header_of_type(t) for t in types}
    leaves = max((h.leaves for h in headers), default=1)
    # The tensor is descended for a disputed element, and for the value under an entry (6.13).
    descents = _logarithm(nodes, _PARTS) + 2 * _logarithm(leaves, _PARTS) + 2
    yield 2 * plays * descents, _message(HASH_BYTES * _PARTS, small)
    yield 4 * plays, _message(U64_BYTES + LEAF_BYTES, small)
    opened = min(leaves, _OPENED_LEAVES)
    proof = opened * max(leaves - 1, 1).bit_length()
    opening = U64_BYTES + OPENING_HEAD + opened * (U64_BYTES + LEAF_BYTES) + list_bytes(proof)
    yield plays * _OPENINGS, _message(opening, small + U64_BYTES * opened)
    needs = max(len(node.inputs) for node in made)
    widest = max(VALUE_DTYPES["acc"].itemsize if facts.rounds_exactly else U64_BYTES, U64_BYTES)
    values = _message(widest * FAN_OUT + U64_BYTES * needs, small + U64_BYTES * 64)
    yield 2 * plays * _VALUE_ROUNDS, values
    if facts.sections:
        blocks = max(section.blocks for section in facts.sections)
        yield 4, _message(HASH_BYTES + 2 * slots + list_bytes(len(facts.sections)), small)
        yield 4 * (1 + _logarithm(blocks, _PARTS)), _message(U64_BYTES + HASH_BYTES * _PARTS, small)
        yield 4, _message(U64_BYTES + LIMITS.log_block_bytes + path_bytes(blocks), small)


@dataclass(frozen=True)
class GameBounds:
    """The most `messages` of a game of given terms, and `size`, their bytes in the evidence.

    Two more messages may follow, of any length up to `answer_bytes` (8.5): the answers that
    convict.
    """

    messages: int
    size: int

    @property
    def evidence_bytes(self) -> int:
        """Bytes of the whole evidence of such a game, at most."""
        return self.size + LIMITS.evidence_frame


def game_bounds(facts: Facts, arity: int) -> GameBounds:
    """The bounds of any game of this arity about a job.

    Raises CannotCheckError where a node of the program has a record that no answer can hold: a
    liar would choose that node.
    """
    messages, size = 0, 0
    for there in facts.all:
        _check_nodes(there)
        parts = list(_game_parts(there, arity))
        messages = max(messages, sum(count for count, _ in parts))
        size = max(size, sum(count * (U64_BYTES + 1 + each) for count, each in parts))
    return GameBounds(messages, min(size, LIMITS.game_bytes))


def _check_nodes(facts: Facts) -> None:
    for node in extremes(facts.program):
        if _message(record_bytes(facts, node), LIMITS.query_bytes) > LIMITS.answer_bytes:
            raise CannotCheckError(
                f"Node {node} of this program has more inputs or longer attributes than an answer "
                "can hold.",
                "No game about this job can be played; make the program of smaller operators.",
            )


def check_room(game: Game, bounds: GameBounds, round_: Round, messages: int, received: int) -> None:
    """Raise CannotCheckError if true answers to the round may be too long (2.6.1, 8.5).

    They are too long over the limit of an answer, and where they leave no room in the evidence for
    a conviction. `messages` and `received` are the number of earlier answers and their bytes.
    """
    asked = [message_bytes(game, party, query) for party, query in round_.items()]
    framed = received + sum(asked) + (U64_BYTES + 1) * (messages + len(asked))
    longest = max(asked, default=0)
    queries = max((len(encode_query(query)) for query in round_.values()), default=0)
    if longest > LIMITS.answer_bytes or queries > LIMITS.query_bytes:
        why = f"A true answer has up to {longest} bytes, its query {queries}"
    elif framed > bounds.size or messages + len(asked) > bounds.messages:
        why = f"The {messages + len(asked)} answers of this game would have {framed} bytes"
    else:
        return
    raise CannotCheckError(
        f"{why}: more than the evidence of a conviction can hold.",
        "No party is at fault. Repeat the dispute with a smaller --arity, or make the job of a "
        "program whose operators have fewer inputs.",
    )
