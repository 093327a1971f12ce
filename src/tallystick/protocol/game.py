"""What the states of a game share: the terms, what has been pinned so far, and convictions.

Theory of operation. A state is a generator: it yields a round, a query per party that is asked,
and is sent the decoded bodies; it returns the name of the state that follows. What was proved or
stated once is kept here, so that it is neither asked for again nor taken back (PROTOCOL 4.4).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.job import JobCommitment
from tallystick.commit.log import Section
from tallystick.commit.node import node_digest
from tallystick.commit.signing import RunCommitment
from tallystick.commit.state import (
    CHAIN_SLOTS,
    COMMIT_OPERATOR,
    commit_attributes,
    slot_order,
)
from tallystick.commit.tensor import TensorHeader
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.opening.accumulators import shown
from tallystick.numerics.opening.quantity import ACCUMULATOR, REAL
from tallystick.numerics.types import TensorType
from tallystick.program.ir import COMMIT, Program, Value
from tallystick.program.terms import Terms
from tallystick.program.text import attribute_text
from tallystick.protocol.answers import Body, LogBody, NodeBody
from tallystick.protocol.queries import Query
from tallystick.protocol.verdict import Event, Place
from tallystick.rounding.sections import sections_of

Round = dict[int, Query]
Bodies = dict[int, Body]
Rounds = Generator[Round, Bodies, str]  # a state
Guilt = Mapping[int, tuple[str, str]]  # party -> clause, sentence
Answer = TypeVar("Answer")
Part = TypeVar("Part")
Asking = Generator[Round, Bodies, Part]  # a part of a state

BOTH = (0, 1)
CHAIN = TensorType("u8", (32,))
LOSS = TensorType("f32", ())


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


def ask(round_: Round, kind: type[Answer]) -> Asking[dict[int, Answer]]:
    """One round whose answers all have bodies of one kind."""
    bodies = yield round_
    found: dict[int, Answer] = {}
    for party, body in bodies.items():
        assert isinstance(body, kind)  # decode_body gives the kind of the query
        found[party] = body
    return found


@dataclass
class Game:
    """The terms of a game (PROTOCOL 1.1) and what the parties are pinned to."""

    terms: Terms
    runs: tuple[RunCommitment, RunCommitment]
    arity: int
    # Proved roots by index of checkpoint, and all stated roots by step, per party.
    checkpoints: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    states: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    proofs: tuple[tuple[bytes, ...], ...] = ()  # of the first and last checkpoints (3.3)
    low: int = 0  # bounds of the search: equal roots here, different ones at high
    high: int = 0
    step: int = 0
    trees: tuple[bytes, ...] = ()  # roots of the node trees of `step`
    node: int = 0
    leaves: tuple[bytes, ...] = ()  # leaf hashes of `node`
    commits: tuple[NodeBody, ...] = ()
    records: tuple[NodeBody, ...] = ()
    operand: int = 0  # of `node`, numbered as in the program; an output under side "output"
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

    @property
    def job(self) -> JobCommitment:
        """What the job digest covers."""
        return self.terms.commitment

    @property
    def program(self) -> Program:
        """The job's program."""
        return self.terms.program

    # -- the state (COMMITMENTS 5) -------------------------------------------------------------

    @cached_property
    def slots(self) -> list[str]:
        """All slots of a state in their order, chains included."""
        return slot_order([*self.program.state_types, *CHAIN_SLOTS])

    # -- rounding logs (COMMITMENTS 10) ---------------------------------------------------------

    @cached_property
    def log_form(self) -> str | None:
        """ "bounded" or "published" under a contract with logs, else None."""
        return parse_contract(self.job.contract).form or None

    @property
    def rounds_exactly(self) -> bool:
        """Whether exact sums are stated in this game (NUMERICS 13.5)."""
        return bool(parse_contract(self.job.contract).rounded_operators)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of every step's log."""
        contract = parse_contract(self.job.contract)
        return sections_of(self.program, contract) if contract.keeps_log else ()

    def section_of(self, node: int, output: int) -> int | None:
        """The number of an output's section, None where it has none."""
        for number, section in enumerate(self.sections):
            if (section.node, section.output) == (node, output):
                return number
        return None

    # -- nodes as the program has them (COMMITMENTS 4.1, 5.7) ----------------------------------

    @property
    def last_node(self) -> int:
        """The COMMIT node."""
        return len(self.program.nodes) - 1

    def operands(self, node: int) -> list[tuple[int, Value | str, TensorType]]:
        """Operands that are there: number, where from (a value or the name of a slot), type."""
        program = self.program
        given = self.program.nodes[node]
        found: list[tuple[int, Value | str, TensorType]] = [
            (number, value, program.type_of(value))
            for number, value in enumerate(given.inputs)
            if value is not None
        ]
        if given.op == COMMIT:  # PROTOCOL 5.6.5
            at = len(given.inputs)
            found.append((at, program.output_values["loss"], LOSS))
            found.append((at + 1, "chain.loss", CHAIN))
            found.append((at + 2, "chain.log", CHAIN))
        return found

    def input_digest(self, party: int, operand: int) -> bytes:
        """The digest that `party`'s record of the disputed node states for `operand`."""
        numbers = [number for number, _, _ in self.operands(self.node)]
        return self.records[party].inputs[numbers.index(operand)]

    def structure(self, node: int) -> tuple[str, bytes, int]:
        """Operator, attributes and number of outputs of a node, by the program."""
        given = self.program.nodes[node]
        if given.op == COMMIT:
            return COMMIT_OPERATOR, commit_attributes(list(self.program.state_types)), 3
        return given.op, attribute_text(given.attrs).encode("ascii"), len(given.out_types)

    def misfit(self, node: int, body: NodeBody) -> str | None:
        """How a record differs from what the program says, None if it does not (5.2, 5.5)."""
        operator, attributes, outputs = self.structure(node)
        if body.operator != operator:
            return f"its operator is {body.operator[:40]!r}, the program's {operator}"
        if body.attributes != attributes:
            return "its attributes are not the program's"
        if len(body.inputs) != len(self.operands(node)):
            return f"it has {len(body.inputs)} inputs, in the program {len(self.operands(node))}"
        if len(body.outputs) != outputs:
            return f"it has {len(body.outputs)} outputs, in the program {outputs}"
        return None


def leaf_of(game: Game, node: int, body: NodeBody) -> bytes:
    """Leaf hash of a node record in the node tree (COMMITMENTS 4.1, 4.2)."""
    digest = node_digest(
        game.job.program_digest,
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
    size = len(game.program.nodes)
    leaf = leaf_of(game, node, body)
    return merkle.inclusion_root(leaf, node, size, body.proof) == game.trees[party]


def header_of_type(type_: TensorType) -> TensorHeader:
    """The header of a tensor of a program's type (COMMITMENTS 3.1)."""
    return TensorHeader(type_.dtype, type_.shape)


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
