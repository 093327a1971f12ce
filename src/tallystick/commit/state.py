"""State roots, the loss and log chains, and the nodes of a step, of which the COMMIT node has them
as outputs (COMMITMENTS 4, 5).

A node digest covers the node's place in the program (program digest, node index, operator,
attributes) and its values (every input and every output tensor digest, used or not).

A state is a set of named slots, each a tensor. Its root is over a Merkle tree of the slots, sorted
by name. The program of a step ends in the COMMIT node. The node's outputs are the next chains and
the next state root, so it ties the node roots of a disputed step to the checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.commit import _native, merkle
from tallystick.commit.encoding import Writer, check_hash, encode_name, tag
from tallystick.commit.tensor import tensor_digest
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

NODE_TAG = tag("node/1")
NODES_TAG = tag("nodes/1")


def node_digest(
    program_digest: bytes,
    step: int,
    index: int,
    operator: str,
    attributes: bytes,
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
) -> bytes:
    """Digest of node `index` (in topological order, from 0) as executed at `step`.

    `attributes` are the canonical bytes the program format defines; `inputs` and `outputs` are
    tensor digests in the operator's own order (COMMITMENTS 4.1). Raises UsageError over limits.
    """
    if (
        len(inputs) > LIMITS.node_inputs
        or len(outputs) > LIMITS.node_outputs
        or len(attributes) > LIMITS.attribute_bytes
    ):
        raise UsageError(f"Node {index} ({operator}) exceeds the limits.", "Split the operator.")
    out = Writer(NODE_TAG).hash(program_digest, "program digest").u64(step).u64(index)
    out.text(operator).blob(attributes)
    out.u64(len(inputs))
    for digest in inputs:
        out.hash(digest, "input digest")
    out.u64(len(outputs))
    for digest in outputs:
        out.hash(digest, "output digest")
    return out.digest()


def node_tree(digests: Sequence[bytes]) -> merkle.Tree:
    """The tree whose leaf i is the node digest of node i (COMMITMENTS 4.2)."""
    return merkle.Tree([merkle.leaf_hash(d) for d in digests])


def node_root_of(size: int, tree_root: bytes) -> bytes:
    """The node root over `size` nodes under `tree_root` (COMMITMENTS 4.3)."""
    return Writer(NODES_TAG).u64(size).hash(tree_root, "node tree root").digest()


def node_root(digests: Sequence[bytes]) -> bytes:
    """The node root of a step: binds the number of nodes and each node digest (4.3)."""
    tree = node_tree(digests)
    return node_root_of(tree.size, tree.root())


def prove_node(digests: Sequence[bytes], index: int) -> list[bytes]:
    """Inclusion proof of node `index` under node_root(digests) (COMMITMENTS 4.4)."""
    return node_tree(digests).inclusion(index)


def verify_node(digest: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """True if `digest` is node `index` of the `size` nodes under the node root `root` (4.4).

    `index` and `size` come from the verifier's own program, never from the proof.
    """
    tree_root = merkle.inclusion_root(merkle.leaf_hash(digest), index, size, proof)
    return tree_root is not None and node_root_of(size, tree_root) == root


SLOT_TAG = tag("slot/1")
STATE_TAG = tag("state/1")
LOSS_CHAIN_TAG = tag("loss-chain/1")
LOG_CHAIN_TAG = tag("log-chain/1")

LOSS_CHAIN_SLOT = "chain.loss"  # COMMITMENTS 5.5
LOG_CHAIN_SLOT = "chain.log"
CHAIN_SLOTS = (LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT)
CHAIN_START = bytes(32)

COMMIT_OPERATOR = "tallystick.commit"


def slot_order(names: Sequence[str]) -> list[str]:
    """Slot names sorted by their UTF-8 bytes: leaf i is the i-th (COMMITMENTS 5.1).

    Raises UsageError for a repeated name or too many of them.
    """
    if len(names) > LIMITS.slots:
        raise UsageError(f"{len(names)} slots exceed the limit of {LIMITS.slots}.", "Merge some.")
    if len(set(names)) != len(names):
        raise UsageError("A slot name is repeated.", "Give each slot its own name.")
    return sorted(names, key=encode_name)


def slot_leaf(name: str, digest: bytes) -> bytes:
    """Leaf hash of one slot (COMMITMENTS 5.2)."""
    data = Writer(SLOT_TAG).text(name).hash(digest, f"digest of slot {name!r}").finish()
    return merkle.leaf_hash(data)


def state_tree(slots: Mapping[str, bytes]) -> merkle.Tree:
    """The tree over `slots` (name -> tensor digest) in slot order (COMMITMENTS 5.2)."""
    return merkle.Tree([slot_leaf(name, slots[name]) for name in slot_order(list(slots))])


def state_root_of(size: int, tree_root: bytes) -> bytes:
    """The state root over `size` slots under `tree_root` (COMMITMENTS 5.3)."""
    return Writer(STATE_TAG).u64(size).hash(tree_root, "slot tree root").digest()


def state_root(slots: Mapping[str, bytes]) -> bytes:
    """The state root of `slots` (name -> tensor digest), 32 bytes (COMMITMENTS 5.3)."""
    tree = state_tree(slots)
    return state_root_of(tree.size, tree.root())


class StateRoots:
    """Roots of states that have the slots `fixed` in common, whose leaves are hashed once, and the
    slots `own` besides. Raises UsageError as `slot_order`."""

    def __init__(self, fixed: Mapping[str, bytes], own: Iterable[str]) -> None:
        order = slot_order([*fixed, *own])
        self._leaves = [slot_leaf(n, fixed[n]) if n in fixed else b"" for n in order]
        self._places = {n: place for place, n in enumerate(order) if n not in fixed}

    def root(self, own: Mapping[str, bytes]) -> bytes:
        """The state root (COMMITMENTS 5.3) with these digests of all slots that are not fixed."""
        if own.keys() != self._places.keys():
            raise UsageError("These are not the slots of the state.", "Give each of them.")
        leaves = self._leaves.copy()
        for name, digest in own.items():
            leaves[self._places[name]] = slot_leaf(name, digest)
        return state_root_of(len(leaves), _native.root_of_hashes(b"".join(leaves)))


@dataclass(frozen=True)
class SlotProof:
    """Proves that slot `name`, the `index`-th of `size`, has tensor `digest` (COMMITMENTS 5.4)."""

    name: str
    digest: bytes
    index: int
    size: int
    path: tuple[bytes, ...]

    def proves(self, root: bytes, name: str, index: int, size: int) -> bool:
        """True if this proves slot `name` under the state root `root`.

        The verifier takes `name`, `index` and `size` from its own list of slots. So a proof of
        another slot, or from a tree of another size, proves nothing.
        """
        if (self.name, self.index, self.size) != (name, index, size):
            return False
        leaf = slot_leaf(self.name, self.digest)
        tree_root = merkle.inclusion_root(leaf, index, size, self.path)
        return tree_root is not None and state_root_of(size, tree_root) == root


def prove_slot(slots: Mapping[str, bytes], name: str) -> SlotProof:
    """Prove slot `name` of `slots`. Raises UsageError if there is none."""
    order = slot_order(list(slots))
    if name not in slots:
        raise UsageError(f"The state has no slot {name!r}.", f"It has: {', '.join(order[:8])}.")
    index = order.index(name)
    tree = state_tree(slots)
    return SlotProof(name, slots[name], index, tree.size, tuple(tree.inclusion(index)))


# ---- chains (COMMITMENTS 5.5, 5.6) ------------------------------------------------------------


def loss_bits(loss: float | np.float32) -> int:
    """The bits of a binary32 loss; every NaN is the canonical one (COMMITMENTS 5.5)."""
    value = float(loss)
    if math.isnan(value):
        return 0x7FC00000
    with np.errstate(over="ignore"):
        narrow = np.array(value, dtype=np.float64).astype("<f4")
    if float(narrow) != value:
        raise UsageError(f"The loss {value!r} is not a binary32 value.", "Round it first.")
    bits = int(narrow.view("<u4"))
    return bits


def loss_of(bits: int) -> float:
    """The binary32 loss with these bits."""
    return float(np.uint32(bits).view(np.float32))


def is_finite(bits: int) -> bool:
    """True for the bits of a finite binary32."""
    return bits & 0x7F800000 != 0x7F800000


def extend_loss_chain(chain: bytes, step: int, loss: float | np.float32) -> bytes:
    """The loss chain after `step` (from 0), whose loss is the binary32 `loss` (5.5)."""
    out = Writer(LOSS_CHAIN_TAG).hash(chain, "loss chain").u64(step).u32(loss_bits(loss))
    return out.digest()


def extend_log_chain(chain: bytes, step: int, log: bytes | None) -> bytes:
    """The log chain after `step`, whose log has the digest `log` (5.6, 10.5).

    Where the contract keeps no log, the chain stays unchanged.
    """
    check_hash(chain, "log chain")
    if log is None:
        return chain
    return Writer(LOG_CHAIN_TAG).hash(chain).u64(step).hash(log, "log digest").digest()


def chain_digest(chain: bytes) -> bytes:
    """Tensor digest of the slot that holds a chain: a u8 tensor of shape (32,) (5.5)."""
    return tensor_digest(np.frombuffer(check_hash(chain, "chain"), dtype=np.uint8))


# ---- the COMMIT node (COMMITMENTS 5.7) ----------------------------------------------------------


@dataclass(frozen=True)
class CommitNode:
    """The inputs and outputs of a step's last node.

    `slots` are the next-state slots except the two chains, pass-throughs included (name -> tensor
    digest). `loss` is the binary32 loss of the step. `log` is the digest of its rounding log
    (10.5), None where the contract keeps no log.
    """

    slots: Mapping[str, bytes]
    step: int
    loss: float
    loss_chain: bytes
    log_chain: bytes
    log: bytes | None = None

    def __post_init__(self) -> None:
        clash = [name for name in CHAIN_SLOTS if name in self.slots]
        if clash:
            raise UsageError(
                f"Slot {clash[0]!r} is made by the COMMIT node itself.", "Leave it out of slots."
            )

    def next_loss_chain(self) -> bytes:
        return extend_loss_chain(self.loss_chain, self.step, self.loss)

    def next_log_chain(self) -> bytes:
        return extend_log_chain(self.log_chain, self.step, self.log)

    def next_state(self) -> dict[str, bytes]:
        """All slots of state[step + 1]: name -> tensor digest."""
        return {
            **self.slots,
            LOSS_CHAIN_SLOT: chain_digest(self.next_loss_chain()),
            LOG_CHAIN_SLOT: chain_digest(self.next_log_chain()),
        }

    def attributes(self) -> bytes:
        """The slot names in slot order, counted."""
        return commit_attributes(list(self.slots))

    def inputs(self) -> tuple[bytes, ...]:
        """Digests of its inputs: slots in slot order, loss, loss chain, log chain."""
        loss = np.array(loss_bits(self.loss), dtype="<u4").view("<f4")
        slots = (self.slots[name] for name in slot_order(list(self.slots)))
        chains = chain_digest(self.loss_chain), chain_digest(self.log_chain)
        return (*slots, tensor_digest(loss), *chains)

    def outputs(self) -> tuple[bytes, bytes, bytes]:
        """Digests of the chains after it, and the state root."""
        after = self.next_state()
        return after[LOSS_CHAIN_SLOT], after[LOG_CHAIN_SLOT], state_root(after)

    def digest(self, program_digest: bytes, index: int) -> bytes:
        """The node digest of this COMMIT node, which is node `index` of its program."""
        return node_digest(
            program_digest,
            self.step,
            index,
            COMMIT_OPERATOR,
            self.attributes(),
            self.inputs(),
            self.outputs(),
        )


def commit_attributes(names: Sequence[str]) -> bytes:
    """Attribute bytes of a COMMIT node over the slots `names`, chains excluded (5.7)."""
    out = Writer().u64(len(names))
    for name in slot_order(names):
        out.text(name)
    return out.finish()
