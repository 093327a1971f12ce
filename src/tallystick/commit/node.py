"""Node digests of one executed step, after Verde's AugmentedCGNode (COMMITMENTS 4).

A node digest covers the node's place in the program (program digest, node index, operator,
attributes) and its values (every input and every output tensor digest, used or not).
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.commit import merkle
from tallystick.commit.encoding import Writer, tag
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
