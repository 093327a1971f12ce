"""Queries about a step: its nodes, their tensors, the values of an element (PROTOCOL 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.signing import RunCommitment
from tallystick.commit.tensor import LEAF_BYTES
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.opening.quantity import VALUE_DTYPES, opening_rule
from tallystick.opening.views import View, locate, view_dtypes
from tallystick.protocol import bodies as b
from tallystick.protocol.facts import INPUT, Facts
from tallystick.protocol.messages import (
    HASH,
    PARTS,
    REST,
    TEXT,
    U64,
    U64_BYTES,
    Layout,
    Query,
    ascending,
    attributes_fit,
    below,
    blob,
    hashes,
    list_bytes,
    parts_bytes,
    path_bytes,
    subtree,
)

Side = int  # INPUT or OUTPUT
OPENING_HEAD = 64 + U64_BYTES * LIMITS.tensor_rank  # bytes of an opening before its leaves


@dataclass(frozen=True)
class Nodes(Query[b.NodesBody]):
    """Number and tree root of the nodes of a step."""

    KIND = 4
    layout = Layout(b.NodesBody, (U64, HASH))
    step: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step, "step")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + HASH_BYTES


@dataclass(frozen=True)
class NodeHashes(Query[b.HashesBody]):
    """Hashes of the parts of a range of the node tree."""

    KIND = 5
    layout = Layout(b.HashesBody, (PARTS,))
    step: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step, "step")
        subtree(len(facts.at(self.step).program.nodes), self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return parts_bytes(self.count)


def record_bytes(facts: Facts, node: int) -> int:
    """Bytes of a node as executed (kind 6), at most."""
    operator, attributes, outputs = facts.structure(node)
    inputs = len(facts.operands(node))
    if not attributes_fit(attributes, inputs):
        return LIMITS.answer_bytes  # no reader takes such a record: the message is too long
    head = 4 + len(operator) + U64_BYTES + len(attributes)
    return head + list_bytes(inputs) + list_bytes(outputs) + path_bytes(len(facts.program.nodes))


@dataclass(frozen=True)
class NodeRecord(Query[b.NodeBody]):
    """One node as executed, with its inclusion proof."""

    KIND = 6
    layout = Layout(
        b.NodeBody,
        (
            TEXT,
            blob(LIMITS.attribute_bytes),
            hashes(LIMITS.node_inputs),
            hashes(LIMITS.node_outputs),
            hashes(),
        ),
    )
    step: int
    node: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        _check_node(self.step, self.node, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return record_bytes(facts.at(self.step), self.node)


# --- tensors of a node ----------------------------------------------------------------------------
def _check_node(step: int, node: int, facts: Facts, run: RunCommitment) -> Facts:
    below(step, run.final_step, "step")
    there = facts.at(step)
    below(node, len(there.program.nodes), "node")
    return there


@dataclass(frozen=True)
class TensorHashes(Query[b.HashesBody]):
    """Hashes of the parts of a range of a tensor's leaves; `side` is INPUT or OUTPUT."""

    KIND = 8
    layout = Layout(b.HashesBody, (PARTS,))
    step: int
    node: int
    side: Side
    operand: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        header = there.header_at(self.node, self.side, self.operand)
        subtree(header.leaves, self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return parts_bytes(self.count)


@dataclass(frozen=True)
class Leaf(Query[b.BytesBody]):
    """The bytes of one leaf of a tensor."""

    KIND = 9
    layout = Layout(b.BytesBody, (blob(LIMITS.answer_bytes),))
    step: int
    node: int
    side: Side
    operand: int
    leaf: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        below(self.leaf, there.header_at(self.node, self.side, self.operand).leaves, "leaf")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + LEAF_BYTES


@dataclass(frozen=True)
class Opening(Query[b.BytesBody]):
    """A tensor opening of some leaves of an operand."""

    KIND = 11
    layout = Layout(b.BytesBody, (blob(LIMITS.answer_bytes),))
    step: int
    node: int
    operand: int
    leaves: tuple[int, ...]

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        ascending(self.leaves, there.header_at(self.node, INPUT, self.operand).leaves, "leaf")
        if len(self.leaves) > LIMITS.opening_leaves:
            raise UsageError(f"{len(self.leaves)} leaves are too many.", "Ask for fewer.")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        header = facts.at(self.step).header_at(self.node, INPUT, self.operand)
        proof = merkle.multi_proof_length(self.leaves, header.leaves) if self.leaves else 0
        data = sum(U64_BYTES + header.leaf_size(leaf) for leaf in self.leaves)
        return U64_BYTES + OPENING_HEAD + data + list_bytes(proof)


@dataclass(frozen=True)
class Values(Query[b.BytesBody]):
    """Values of a quantity below an output element (PROTOCOL 6.4)."""

    KIND = 10
    layout = Layout(b.BytesBody, (REST,))
    step: int
    node: int
    output: int
    element: int
    path: tuple[int, ...]
    view: View

    def check(self, facts: Facts, run: RunCommitment) -> None:
        """The quantity itself is not checked here: the prover asks the operator's rule for it."""
        _check_node(self.step, self.node, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        rule = opening_rule(facts.at(self.step).site(self.node, self.output, self.element))
        dtypes = view_dtypes(locate(rule, self.path), self.view)
        return sum(VALUE_DTYPES[name].itemsize for name in dtypes)
