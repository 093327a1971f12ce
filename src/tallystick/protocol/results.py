"""The results that a state of the game hands to the next: one frozen class for each finding.

A state reads its own result and makes the next one. So a phase's decision cannot change under the
phases that rest on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.state import node_digest
from tallystick.commit.tensor import TensorHeader
from tallystick.protocol.bodies import Hashes, LogBody, NodeBody
from tallystick.protocol.facts import OUTPUT, Facts

# The directions of the parties' log entries for an element, None without one (NUMERICS 14.2).
Entries = tuple[int | None, int | None]
NO_ENTRIES: Entries = (None, None)


# --- phases 0 and 1 -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ends:
    """Both parties' proofs of their first and last checkpoints (3.3)."""

    proofs: tuple[Hashes, Hashes]


@dataclass(frozen=True)
class Between:
    """Two checkpoints by index: equal states at the first, different ones at the last (4.3).

    Both are the same checkpoint where the runs are equal as far as both go (4.2).
    """

    first: int
    last: int


@dataclass(frozen=True)
class Interval:
    """Two steps: equal states before the first, different ones before the last (4.4)."""

    first: int
    last: int


@dataclass(frozen=True)
class DisputedStep:
    """Equal state[step], different state[step + 1] (4.5).

    `log_chains` has the digests of both parties' chain.log in state[step], if the states differ
    only in these (6.14).
    """

    step: int
    log_chains: tuple[bytes, ...] = ()


# --- phase 2 --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DisputedTrees:
    """Roots of the node trees of a step, and the COMMIT nodes that tie them to states (5.3)."""

    at: DisputedStep
    roots: tuple[bytes, bytes]
    commits: tuple[NodeBody, NodeBody]

    @property
    def step(self) -> int:
        return self.at.step

    def leaf(self, facts: Facts, node: int, body: NodeBody) -> bytes:
        """Leaf hash of a node record in the node tree (COMMITMENTS 4.1, 4.2)."""
        digest = node_digest(
            facts.program_digest,
            self.step,
            node,
            body.operator,
            body.attributes,
            body.inputs,
            body.outputs,
        )
        return merkle.leaf_hash(digest)

    def node_proved(self, facts: Facts, party: int, node: int, body: NodeBody) -> bool:
        """True if the record is node `node` of the tree that the party has stated (4.4)."""
        size = len(facts.program.nodes)
        leaf = self.leaf(facts, node, body)
        return merkle.inclusion_root(leaf, node, size, body.proof) == self.roots[party]


@dataclass(frozen=True)
class DisputedLeaf:
    """The first differing leaf of the node trees (5.4)."""

    trees: DisputedTrees
    node: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class DisputedNode:
    """A node, and both parties' records of it (5.5)."""

    trees: DisputedTrees
    node: int
    records: tuple[NodeBody, NodeBody]

    @property
    def step(self) -> int:
        return self.trees.step

    def input_digest(self, facts: Facts, party: int, operand: int) -> bytes:
        """The digest that `party`'s record states for `operand`."""
        numbers = [number for number, _, _ in facts.operands(self.node)]
        return self.records[party].inputs[numbers.index(operand)]


@dataclass(frozen=True)
class DisputedInput:
    """The parties' records differ in input `operand`, numbered as in the program (5.6)."""

    at: DisputedNode
    operand: int


@dataclass(frozen=True)
class DisputedOutput:
    """The records differ in output `output` (5.7), or the logs in an entry of it (6.13)."""

    at: DisputedNode
    output: int

    @property
    def step(self) -> int:
        return self.at.step

    @property
    def node(self) -> int:
        return self.at.node

    def header(self, facts: Facts) -> TensorHeader:
        """The header of the output."""
        return facts.header_at(self.node, OUTPUT, self.output)


# --- phase 3 --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DisputedElement:
    """An element of an output, and the parties' log entries for it (6.10, 6.13)."""

    at: DisputedOutput
    element: int
    entries: Entries


@dataclass(frozen=True)
class ClaimedElement(DisputedElement):
    """An element whose two stated values differ (6.1)."""

    claims: tuple[np.generic, np.generic]


@dataclass(frozen=True)
class DisputedLogs:
    """Equal outputs of COMMIT, and the parties' opened logs, which differ (6.10, 6.13)."""

    trees: DisputedTrees
    logs: tuple[LogBody, LogBody]
