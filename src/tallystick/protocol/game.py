"""What the states of a game share: the terms, what has been pinned so far, and convictions.

Theory of operation. A state is a generator: it yields a round, a query per party that is asked,
and is sent the decoded bodies; it returns the name of the state that follows. What was proved or
stated once is kept here, so that it is neither asked for again nor taken back (PROTOCOL 4.4).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.node import node_digest
from tallystick.commit.signing import RunCommitment
from tallystick.numerics.opening.accumulators import shown
from tallystick.numerics.opening.quantity import ACCUMULATOR, REAL
from tallystick.protocol.bodies import Body, LogBody, NodeBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import B
from tallystick.protocol.query import Query
from tallystick.protocol.verdict import Event, Place

Round = dict[int, Query[Any]]
Bodies = dict[int, Body]
Rounds = Generator[Round, Bodies, str]  # a state
Guilt = Mapping[int, tuple[str, str]]  # party -> clause, sentence
Part = TypeVar("Part")
Asking = Generator[Round, Bodies, Part]  # a part of a state

BOTH = (0, 1)


class Guilty(Exception):  # noqa: N818 (an outcome, not an error)
    """The game ends: who broke which clause, and how (PROTOCOL 1.4). `guilt` is not empty."""

    def __init__(
        self,
        guilt: Guilt,
        case: str = "",
        claimed: tuple[str, str] = ("", ""),
        value: str = "",
    ) -> None:
        super().__init__("; ".join(sentence for _, sentence in guilt.values()))
        assert guilt
        self.guilt, self.case, self.claimed, self.value = dict(guilt), case, claimed, value


def convict(guilt: Guilt, case: str = "") -> None:
    """End the game if there is anybody in `guilt`."""
    if guilt:
        raise Guilty(guilt, case)


def ask(asked: Mapping[int, Query[B]]) -> Asking[dict[int, B]]:
    """One round of queries of one kind: the bodies of their answers, by party."""
    bodies = yield dict(asked)
    # The referee decodes each body by its query's layout.
    return cast("dict[int, B]", bodies)


@dataclass
class Game:
    """What a game is about (PROTOCOL 1.1), and what the parties are pinned to."""

    facts: Facts
    runs: tuple[RunCommitment, RunCommitment]
    arity: int
    # Proved roots by index of checkpoint, and all stated roots by step, per party.
    checkpoints: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    states: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    proofs: tuple[tuple[bytes, ...], ...] = ()  # of the first and last checkpoints (3.3)
    # Checkpoints by index, and steps: equal states at the first, different ones at the second.
    between: tuple[int, int] = (0, 0)
    interval: tuple[int, int] = (0, 0)
    step: int = 0
    trees: tuple[bytes, ...] = ()  # roots of the node trees of `step`
    node: int = 0
    leaves: tuple[bytes, ...] = ()  # leaf hashes of `node`
    commits: tuple[NodeBody, ...] = ()
    records: tuple[NodeBody, ...] = ()
    operand: int = 0  # of `node`, numbered as in the program, where an input is disputed
    output: int = 0  # of `node`, where an output is
    element: int = 0
    claims: tuple[np.generic, ...] = ()
    logs: tuple[LogBody, ...] = ()  # of `step`, as both have opened them (6.10)
    entries: tuple[int | None, int | None] = (None, None)  # of the logs, for the element
    log_chains: tuple[
        bytes, ...
    ] = ()  # digests of chain.log in state[step], where it differs (6.14)
    choices: tuple[int, int] = (0, 0)  # left by logs and taken (NUMERICS 14.8)
    claimed: tuple[str, str] = ("", "")  # of an undecided game, for a person
    value: str = ""
    terms_executed: int = 0
    place: Place = field(default_factory=Place)
    events: list[Event] = field(default_factory=list)

    def note(
        self, phase: int, clause: str, sentence: str, stated: tuple[str, str] = ("", "")
    ) -> None:
        """Tell people what was found out."""
        self.events.append(Event(phase, clause, sentence, stated))

    def found(self, **known: Any) -> None:
        """More is known about where the parties part."""
        self.place = replace(self.place, **known)

    # -- records of nodes (COMMITMENTS 4.1) ---------------------------------------------------

    def input_digest(self, party: int, operand: int) -> bytes:
        """The digest that `party`'s record of the disputed node states for `operand`."""
        numbers = [number for number, _, _ in self.facts.operands(self.node)]
        return self.records[party].inputs[numbers.index(operand)]

    def misfit(self, node: int, body: NodeBody) -> str | None:
        """How a record differs from what the program says, None if it does not (5.2, 5.5)."""
        operator, attributes, outputs = self.facts.structure(node)
        if body.operator != operator:
            return f"its operator is {body.operator[:40]!r}, the program's {operator}"
        if body.attributes != attributes:
            return "its attributes are not the program's"
        inputs = len(self.facts.operands(node))
        if len(body.inputs) != inputs:
            return f"it has {len(body.inputs)} inputs, in the program {inputs}"
        if len(body.outputs) != outputs:
            return f"it has {len(body.outputs)} outputs, in the program {outputs}"
        return None


def leaf_of(game: Game, node: int, body: NodeBody) -> bytes:
    """Leaf hash of a node record in the node tree (COMMITMENTS 4.1, 4.2)."""
    digest = node_digest(
        game.facts.job.program_digest,
        game.step,
        node,
        body.operator,
        body.attributes,
        body.inputs,
        body.outputs,
    )
    return merkle.leaf_hash(digest)


def node_proved(game: Game, party: int, node: int, body: NodeBody) -> bool:
    """True if the record is node `node` of the tree that the party has stated (4.4)."""
    size = len(game.facts.program.nodes)
    leaf = leaf_of(game, node, body)
    return merkle.inclusion_root(leaf, node, size, body.proof) == game.trees[party]


def short(digest: bytes) -> str:
    """The beginning of a digest, for a person."""
    return digest.hex()[:16]


def shorts(pair: tuple[bytes, ...]) -> tuple[str, str]:
    """The two parties' digests, for a person."""
    return short(pair[0]), short(pair[1])


def show(value: np.generic) -> str:
    """A scalar for a person: the number, and for a float its bits."""
    array = np.asarray(value)
    if array.dtype == ACCUMULATOR:
        return f"the exact sum {shown(value)}"
    if array.dtype == REAL:
        return f"{float(array['x'])!r} within {float(array['e']):.3g}"
    if array.dtype.kind != "f":
        return str(array.item())
    bits = array.astype(array.dtype.newbyteorder(">")).tobytes().hex()
    return f"{array[()]!s} (0x{bits})"  # as few digits as tell it from its neighbours
