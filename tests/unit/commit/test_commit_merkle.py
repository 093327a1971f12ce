"""Merkle trees and proofs against RFC 9162's recursive definitions (COMMITMENTS 2)."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.commit import merkle
from tallystick.errors import UsageError


def leaves_of(n: int) -> list[bytes]:
    return [merkle.leaf_hash(i.to_bytes(4, "big")) for i in range(n)]


def test_rfc_9162_2_1_5_example() -> None:
    """The seven-leaf tree of RFC 9162 2.1.5, node by node under its own names."""
    d = leaves_of(7)
    a, b, c, dd, e, f, j = d
    g, h, i = merkle.node_hash(a, b), merkle.node_hash(c, dd), merkle.node_hash(e, f)
    k, left = merkle.node_hash(g, h), merkle.node_hash(i, j)
    tree = merkle.Tree(d)
    assert tree.root() == merkle.node_hash(k, left)
    assert tree.inclusion(0) == [b, h, left]
    assert tree.inclusion(3) == [c, g, left]
    assert tree.inclusion(4) == [f, j, k]
    assert tree.inclusion(6) == [i, k]
    assert tree.root(3) == merkle.node_hash(g, c)
    assert tree.consistency(3) == [c, dd, g, left]
    assert tree.consistency(4) == [left]
    assert tree.consistency(6) == [i, j, k]


def test_every_small_tree(reference: ModuleType) -> None:
    d = leaves_of(33)
    tree = merkle.Tree(d)
    roots = [reference.mth(d[:n]) for n in range(34)]
    for n in range(34):
        assert tree.root(n) == merkle.root(d[:n]) == merkle.root(b"".join(d[:n])) == roots[n]
        for i in range(n):
            proof = tree.inclusion(i, n)
            assert proof == merkle.Tree(d[:n]).inclusion(i) == reference.path(i, d[:n])
            assert merkle.verify_inclusion(d[i], i, n, proof, roots[n])
        for m in range(n + 1):
            proof = tree.consistency(m, n)
            assert proof == reference.proof(m, d[:n])
            assert merkle.verify_consistency(m, n, roots[m], roots[n], proof)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 700), st.randoms(use_true_random=False))
def test_multi_proofs(reference: ModuleType, n: int, draw: random.Random) -> None:
    d = leaves_of(n)
    wanted = sorted(draw.sample(range(n), draw.randint(1, min(n, 30))))
    tree = merkle.Tree(d)
    proof = tree.multi(wanted)
    assert proof == reference.multi(wanted, d)
    assert merkle.multi_proof_length(wanted, n) == len(proof)
    opened = {i: d[i] for i in wanted}
    assert merkle.verify_multi(opened, n, proof, tree.root())
    assert not merkle.verify_multi(opened, n, [*proof, bytes(32)], tree.root())
    assert not (proof and merkle.verify_multi(opened, n, proof[:-1], tree.root()))
    assert not merkle.verify_multi({**opened, wanted[0]: bytes(32)}, n, proof, tree.root())


def test_published_empty_root() -> None:
    assert merkle.root([]) == merkle.EMPTY_ROOT
    assert merkle.EMPTY_ROOT.hex().startswith("e3b0c44298fc1c149afbf4c8996fb924")


def test_misuse_is_refused() -> None:
    tree = merkle.Tree(leaves_of(5))
    for call in (
        lambda: tree.root(6),
        lambda: tree.inclusion(5),
        lambda: tree.inclusion(-1),
        lambda: tree.inclusion(3, 3),
        lambda: tree.consistency(6),
        lambda: tree.consistency(3, 2),
        lambda: tree.multi([]),
        lambda: tree.multi([1, 1]),
        lambda: tree.multi([2, 1]),
        lambda: tree.multi([5]),
        lambda: merkle.multi_proof_length([0], 0),
        lambda: merkle.Tree([b"short"]),
        lambda: merkle.Tree(b"x" * 33),
    ):
        with pytest.raises(UsageError):
            call()
