"""A forger of Merkle proofs: every change to a proof, its index or its size is refused."""

from __future__ import annotations

import pytest

from tallystick.commit import checkpoint, merkle, state
from tallystick.commit.encoding import sha256

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17)


def d(*parts: object) -> bytes:
    return sha256(repr(parts).encode())


def flips(h: bytes) -> list[bytes]:
    """`h` with one bit flipped in each byte."""
    return [h[:i] + bytes([h[i] ^ 1 << i % 8]) + h[i + 1 :] for i in range(32)]


def tampered(proof: list[bytes]) -> list[list[bytes]]:
    """Every proof a forger makes of an honest one by flipping, cutting, adding or reordering."""
    out = [[*proof[:i], bad, *proof[i + 1 :]] for i, h in enumerate(proof) for bad in flips(h)]
    out += [proof[:i] + proof[i + 1 :] for i in range(len(proof))]
    out += [[*proof[:i], d("more"), *proof[i:]] for i in range(len(proof) + 1)]
    out += [[*proof[:i], proof[i], *proof[i:]] for i in range(len(proof))]
    out += [[*proof[:i], b"", *proof[i + 1 :]] for i in range(len(proof))]
    out += [[*proof[:i], proof[i][:31], *proof[i + 1 :]] for i in range(len(proof))]
    return out + ([proof[::-1]] if len(proof) > 1 else [])


@pytest.mark.parametrize("n", SIZES)
def test_inclusion(n: int) -> None:  # COMMITMENTS 2.5
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(n)]
    tree = merkle.Tree(leaves)
    root = tree.root()
    for i in range(n):
        proof = tree.inclusion(i)
        assert merkle.verify_inclusion(leaves[i], i, n, proof, root)
        for bad in tampered(proof):
            assert not merkle.verify_inclusion(leaves[i], i, n, bad, root)
        for j in (*range(-2, i), *range(i + 1, n + 3), 2**64):
            assert not merkle.verify_inclusion(leaves[i], j, n, proof, root)
        for h in flips(leaves[i]):
            assert not merkle.verify_inclusion(h, i, n, proof, root)


def test_a_node_is_no_leaf() -> None:  # COMMITMENTS 2.1, 2.2
    """The second-preimage forgery: an inner node offered as the data of a leaf."""
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(4)]
    tree = merkle.Tree(leaves)
    inner = merkle.node_hash(leaves[0], leaves[1])
    as_leaf = merkle.leaf_hash(leaves[0] + leaves[1])
    sibling = merkle.node_hash(leaves[2], leaves[3])
    assert not merkle.verify_inclusion(as_leaf, 0, 2, [sibling], tree.root())
    # With hashes alone it would pass for another size: that is why 2.4 binds the size.
    assert merkle.verify_inclusion(inner, 0, 2, [sibling], tree.root())
    slots = {"a": d(1), "b": d(2), "c": d(3), "d": d(4)}
    hashes = [state.slot_leaf(name, slots[name]) for name in "abcd"]
    joined = merkle.root(hashes)
    assert state.state_root_of(4, joined) != state.state_root_of(2, joined)


@pytest.mark.parametrize("n", SIZES)
def test_consistency(n: int) -> None:  # COMMITMENTS 2.6
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(n)]
    tree = merkle.Tree(leaves)
    for m in range(n + 1):
        old, new, proof = tree.root(m), tree.root(), tree.consistency(m)
        assert merkle.verify_consistency(m, n, old, new, proof)
        for bad in tampered(proof):
            assert not merkle.verify_consistency(m, n, old, new, bad)
        for h in flips(old):
            assert not merkle.verify_consistency(m, n, h, new, proof)
        if m:
            for h in flips(new):
                assert not merkle.verify_consistency(m, n, old, h, proof)
        for other in range(-1, n + 3):
            if other != m:
                assert not merkle.verify_consistency(other, n, old, new, proof)


def test_a_rewritten_journal_is_no_extension() -> None:
    """History changed before the old end: no proof an adversary can compute fits."""
    points = [(s, d(s)) for s in range(9)]
    honest = checkpoint.run_tree(points)
    for changed in range(5):
        forged = list(points)
        forged[changed] = (points[changed][0], d("forged"))
        liar = checkpoint.run_tree(forged)
        for proof in (liar.consistency(5), honest.consistency(5)):
            assert not merkle.verify_consistency(5, 9, honest.root(5), liar.root(), proof)


@pytest.mark.parametrize("n", (2, 5, 8, 13))
def test_multi_proofs(n: int) -> None:  # COMMITMENTS 2.7
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(n)]
    tree = merkle.Tree(leaves)
    root = tree.root()
    for bits in range(1, 1 << min(n, 8), 5):
        wanted = [i for i in range(n) if bits >> i & 1]
        opened = {i: leaves[i] for i in wanted}
        proof = tree.multi(wanted)
        assert merkle.verify_multi(opened, n, proof, root)
        for bad in tampered(proof):
            assert not merkle.verify_multi(opened, n, bad, root)
        for i in wanted:
            assert not merkle.verify_multi({**opened, i: d("x")}, n, proof, root)
            rest = {k: v for k, v in opened.items() if k != i}
            assert not merkle.verify_multi(rest, n, proof, root)
            assert not merkle.verify_multi({**rest, i + n: leaves[i]}, n, proof, root)
        if len(wanted) > 1:
            swapped = {**opened, wanted[0]: leaves[wanted[1]], wanted[1]: leaves[wanted[0]]}
            assert not merkle.verify_multi(swapped, n, proof, root)


@pytest.mark.parametrize("n", SIZES)
def test_slots_nodes_and_checkpoints_bind_index_and_size(n: int) -> None:
    """DESIGN 7: a membership proof binds leaf index, slot and tree size (5.4, 4.4, 6.5)."""
    slots = {f"slot{i:02}": d(i) for i in range(n)}
    names = state.slot_order(list(slots))
    root = state.state_root(slots)
    digests = [d("node", i) for i in range(n)]
    nodes = state.node_root(digests)
    points = [(5 * i, d("state", i)) for i in range(n)]
    job, run = d("job"), checkpoint.run_root(d("job"), points)
    for i, name in enumerate(names):
        slot = state.prove_slot(slots, name)
        path = state.prove_node(digests, i)
        point = checkpoint.prove_checkpoint(points, i)
        for j in range(n + 2):
            for size in (n - 1, n, n + 1, 2 * n):
                if (i, n) == (j, size):
                    continue
                assert not state.verify_node(digests[i], j, size, path, nodes)
                moved = state.SlotProof(name, slot.digest, j, size, slot.path)
                assert not slot.proves(root, name, j, size)
                assert not moved.proves(root, name, j, size)
                other = checkpoint.CheckpointProof(*points[i], j, size, point.path)
                assert not point.proves(job, run, 5 * i, j, size)
                assert not other.proves(job, run, 5 * i, j, size)
        assert slot.proves(root, name, i, n)
        assert state.verify_node(digests[i], i, n, path, nodes)
        assert point.proves(job, run, 5 * i, i, n)
        assert not slot.proves(root, names[i - 1] + "x", i, n)
        assert not point.proves(d("another job"), run, 5 * i, i, n)
        assert not point.proves(job, run, 5 * i + 1, i, n)


def test_two_slots_that_trade_tensors() -> None:
    """Equal tensors under other names: the state root and each slot's proof tell them apart."""
    slots = {"weight": d(1), "moment": d(2), "other": d(3)}
    traded = {"weight": d(2), "moment": d(1), "other": d(3)}
    root = state.state_root(slots)
    assert state.state_root(traded) != root
    for name in slots:
        index = state.slot_order(list(slots)).index(name)
        assert state.prove_slot(slots, name).proves(root, name, index, 3)
        if name != "other":
            assert not state.prove_slot(traded, name).proves(root, name, index, 3)
