"""How long a true answer is, and how long a game's evidence may get (PROTOCOL 2.6.1, 8.5).

The length of a true answer follows from the query, the program and the run commitment, never from
what the party did. So the referee knows before it asks whether an honest party may answer, and
whether the evidence of whatever follows can still be written; and the judge knows from the job
alone which evidence no game can have left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_count
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.tensor import LEAF_BYTES, TensorHeader
from tallystick.errors import CannotCheckError
from tallystick.limits import LIMITS
from tallystick.numerics.opening.quantity import VALUE_DTYPES, Site, opening_rule
from tallystick.numerics.opening.views import FAN_OUT, locate, view_dtypes
from tallystick.program.ir import COMMIT
from tallystick.protocol.answers import ANSWER_TAG, SIGNATURE_BYTES
from tallystick.protocol.game import Game, Round, header_of_type
from tallystick.protocol.queries import (
    DEPTH,
    Checkpoints,
    Leaf,
    Log,
    LogBlock,
    LogHashes,
    Loss,
    NodeHashes,
    NodeRecord,
    Nodes,
    Opening,
    Query,
    Record,
    Slot,
    States,
    TensorHashes,
    Values,
    encode_query,
)

_PARTS = 1 << DEPTH
_U64 = 8
_OPENING_HEAD = 64 + _U64 * LIMITS.tensor_rank
# Rounds in which values of quantities are stated (4·d of P4) and in which operands are opened
# (twice the o of P4), and leaves opened in each on the average: a rule reads 5 * 256 at most.
_VALUE_ROUNDS, _OPENINGS, _OPENED_LEAVES = 64, 16, 96


def _list(hashes: int) -> int:
    """Bytes of a counted list of hashes."""
    return _U64 + HASH_BYTES * hashes


def _path(leaves: int) -> int:
    """Bytes of an inclusion proof in a tree of so many leaves, at most."""
    return _list(max(leaves - 1, 0).bit_length())


def _message(body: int, query: int) -> int:
    """Bytes of a signed answer with such a body and query (2.3, 2.5)."""
    return _U64 + len(ANSWER_TAG) + 2 * HASH_BYTES + _U64 + query + 1 + body + SIGNATURE_BYTES


def message_bytes(game: Game, party: int, query: Query) -> int:
    """Bytes that a true signed answer of `party` to `query` has at most."""
    return _message(_body(game, party, query), len(encode_query(query)))


def _body(game: Game, party: int, query: Query) -> int:
    slots = _path(len(game.slots))
    if isinstance(query, Checkpoints):
        size = game.runs[party].checkpoints
        proof = merkle.multi_proof_length(query.indices, size)
        return HASH_BYTES * len(query.indices) + _list(proof)
    if isinstance(query, States):
        return HASH_BYTES * len(query.steps)
    if isinstance(query, Loss):
        return HASH_BYTES + 4 + slots
    if isinstance(query, Nodes):
        return _U64 + HASH_BYTES
    if isinstance(query, NodeHashes | TensorHashes):
        return HASH_BYTES * len(merkle.parts_of(0, query.count, DEPTH))
    if isinstance(query, NodeRecord):
        return _record(game, query.node)
    if isinstance(query, Slot):
        return HASH_BYTES + slots
    if isinstance(query, Leaf):
        return _U64 + LEAF_BYTES
    if isinstance(query, Values):
        return _values(game, query)
    if isinstance(query, Opening):
        return _opening(_operand(game, query.node, query.operand), query.leaves)
    if isinstance(query, Record):
        return _U64 + game.terms.schema.record_size + _path(game.job.record_count)
    if isinstance(query, Log):
        return HASH_BYTES + 2 * slots + _list(len(game.sections))
    if isinstance(query, LogHashes):
        return _U64 + HASH_BYTES * len(merkle.parts_of(0, query.count, DEPTH))
    assert isinstance(query, LogBlock)
    return _U64 + LIMITS.log_block_bytes + _path(game.sections[query.section].blocks)


def _record(game: Game, node: int) -> int:
    """A node as executed (kind 6)."""
    operator, attributes, outputs = game.structure(node)
    inputs = len(game.operands(node))
    if len(attributes) > LIMITS.attribute_bytes or inputs > LIMITS.node_inputs:
        return LIMITS.answer_bytes  # no reader takes such a record: the message is too long
    proof = _path(len(game.program.nodes))
    return 4 + len(operator) + _U64 + len(attributes) + _list(inputs) + _list(outputs) + proof


def _operand(game: Game, node: int, operand: int) -> TensorHeader:
    types = {number: type_ for number, _, type_ in game.operands(node)}
    return header_of_type(types[operand])


def _opening(header: TensorHeader, leaves: tuple[int, ...]) -> int:
    proof = merkle.multi_proof_length(leaves, header.leaves) if leaves else 0
    data = sum(_U64 + header.leaf_size(leaf) for leaf in leaves)
    return _U64 + _OPENING_HEAD + data + _list(proof)


def _values(game: Game, query: Values) -> int:
    node, program = game.program.nodes[query.node], game.program
    types = tuple(None if v is None else program.type_of(v) for v in node.inputs)
    contract = game.job.contract
    site = Site(node.op, node.attrs, types, node.out_types, query.output, query.element, contract)
    quantity = locate(opening_rule(site), query.path)
    return sum(VALUE_DTYPES[name].itemsize for name in view_dtypes(quantity, query.view))


# --- a whole game (8.5) ---------------------------------------------------------------------------
def _logarithm(count: int, base: int) -> int:
    """The least k with base**k >= count."""
    k, reached = 0, 1
    while reached < count:
        k, reached = k + 1, reached * base
    return k


def _game_parts(game: Game) -> Iterable[tuple[int, int]]:
    """(messages, bytes of each at most) of every kind that a game of these terms may have."""
    c, program, arity = game.job, game.program, game.arity
    checkpoints = checkpoint_count(c.steps, c.checkpoint_interval)
    searches = _logarithm(checkpoints, arity)
    width, height = max(arity - 1, 2), max(checkpoints - 1, 1).bit_length()
    query, slots, nodes = 32 + _U64 * width, _path(len(game.slots)), len(program.nodes)
    yield 2 * (3 + 2 * searches), _message(HASH_BYTES * width + _list(width * height), query)
    interval = _logarithm(min(c.checkpoint_interval, c.steps), arity)
    yield 2 * (1 + interval), _message(HASH_BYTES * width, query)
    small = 64 + LIMITS.name_bytes
    # Under a contract with logs a second step may be played for (6.14), found by halving.
    plays = 2 if game.sections else 1
    if game.sections:
        halvings = _logarithm(checkpoints, 2) + _logarithm(c.checkpoint_interval, 2) + 3
        yield 2 * halvings, _message(HASH_BYTES + _list(height + 1), small)
        yield 2 * halvings, _message(HASH_BYTES + slots, small)
    yield 4 * plays, _message(HASH_BYTES + 4 + slots, small)  # loss, number of nodes, a slot
    yield 2 * plays, _message(_record(game, game.last_node), small)
    yield 4 * plays, _message(max(_record(game, n) for n in range(nodes)), small)
    yield plays, _message(_U64 + game.terms.schema.record_size + _path(c.record_count), small)
    types = [t for n in range(nodes) for _, _, t in game.operands(n)]
    types += [t for node in program.nodes for t in node.out_types if node.op != COMMIT]
    headers = {header_of_type(t) for t in types}
    leaves = max((h.leaves for h in headers), default=1)
    # The tensor is descended for a disputed element, and for the value under an entry (6.13).
    descents = _logarithm(nodes, _PARTS) + 2 * _logarithm(leaves, _PARTS) + 2
    yield 2 * plays * descents, _message(HASH_BYTES * _PARTS, small)
    yield 4 * plays, _message(_U64 + LEAF_BYTES, small)
    opened = min(leaves, _OPENED_LEAVES)
    proof = opened * max(leaves - 1, 1).bit_length()
    opening = _U64 + _OPENING_HEAD + opened * (_U64 + LEAF_BYTES) + _list(proof)
    yield plays * _OPENINGS, _message(opening, small + _U64 * opened)
    needs = max(len(node.inputs) for node in program.nodes)
    widest = max(VALUE_DTYPES["acc"].itemsize if game.rounds_exactly else _U64, _U64)
    values = _message(widest * FAN_OUT + _U64 * needs, small + _U64 * 64)
    yield 2 * plays * _VALUE_ROUNDS, values
    if game.sections:
        blocks = max(section.blocks for section in game.sections)
        yield 4, _message(HASH_BYTES + 2 * slots + _list(len(game.sections)), small)
        yield 4 * (1 + _logarithm(blocks, _PARTS)), _message(_U64 + HASH_BYTES * _PARTS, small)
        yield 4, _message(_U64 + LIMITS.log_block_bytes + _path(blocks), small)


@dataclass(frozen=True)
class GameBounds:
    """The most that a game of given terms may have: `messages`, and `size`, the bytes of those
    messages in the evidence. Two more messages may follow, of any length up to `answer_bytes`
    (8.5): the answers that convict."""

    messages: int
    size: int

    @property
    def evidence_bytes(self) -> int:
        """Bytes of the whole evidence of such a game, at most."""
        return self.size + LIMITS.evidence_frame


def game_bounds(game: Game) -> GameBounds:
    """The bounds of any game of these terms and arity.

    Raises CannotCheckError where a node of the program has a record that no answer can hold: a
    liar would choose that node.
    """
    for node in range(len(game.program.nodes)):
        if _message(_record(game, node), LIMITS.query_bytes) > LIMITS.answer_bytes:
            raise CannotCheckError(
                f"Node {node} of this program has more inputs or longer attributes than an answer "
                "can hold.",
                "No game about this job can be played; make the program of smaller operators.",
            )
    parts = list(_game_parts(game))
    size = sum(count * (_U64 + 1 + size) for count, size in parts)
    return GameBounds(sum(count for count, _ in parts), min(size, LIMITS.game_bytes))


def check_room(game: Game, bounds: GameBounds, round_: Round, messages: int, received: int) -> None:
    """Raise CannotCheckError if true answers to the round may be longer than answers may be, or
    leave no room in the evidence for a conviction (2.6.1, 8.5).

    `messages`, `received`: how many answers there are already, and their bytes.
    """
    asked = [message_bytes(game, party, query) for party, query in round_.items()]
    framed = received + sum(asked) + (_U64 + 1) * (messages + len(asked))
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
