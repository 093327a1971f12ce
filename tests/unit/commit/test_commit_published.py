"""Merkle trees against the published values of certificate-transparency's merkle_tree_test.cc."""

from __future__ import annotations

import pytest

from tallystick.commit import merkle
from tallystick.commit.encoding import sha256

INPUTS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657",
          "606162636465666768696a6b6c6d6e6f"]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAF_1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
LEAF_2 = "0298d122906dcfc10892cb53a73992fc5b9f493ea4c9badb27b791b4127a7fe7"
LEAF_3 = "07506a85fd9dd2f120eb694f86011e5bb4662e5c415a62917033d4a9624487e7"
LEAF_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
NODE_23 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
NODE_45 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
NODE_67 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
NODE_456 = "837dbb152e9b079010717e84e865da4ebc0fa198a806d59d31bf15accef22d0e"
NODE_4567 = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"

TREE = merkle.Tree([merkle.leaf_hash(bytes.fromhex(x)) for x in INPUTS])


def hexes(proof: list[bytes]) -> list[str]:
    return [h.hex() for h in proof]


EMPTY, SOME, OTHER = merkle.EMPTY_ROOT, sha256(b"some root"), sha256(b"another root")
CARELESS = b"don't care 1", b"don't care 2"


# The probes of transparency-dev's `merkle` project (testdata, proof/verify_test.go) that this
# build once answered otherwise, and those beside them.
@pytest.mark.parametrize(
    ("old", "new", "roots", "proof"),
    [
        (0, 0, (SOME, SOME), []),
        (0, 0, (EMPTY, SOME), []),
        (0, 0, (EMPTY, CARELESS[1]), []),
        (0, 0, (EMPTY, EMPTY), [EMPTY]),
        (0, 1, CARELESS, []),
        (0, 1, (EMPTY, CARELESS[1]), []),
        (0, 1, (EMPTY, EMPTY), [EMPTY]),
        (1, 1, (CARELESS[0], CARELESS[0]), []),
        (1, 1, (EMPTY, CARELESS[1]), []),
        (1, 1, (EMPTY, EMPTY), [EMPTY]),
        (1, 0, (SOME, OTHER), []),
        (2, 1, (SOME, OTHER), []),
        (1, 2, (SOME, OTHER), []),
        (1, 2, (SOME, OTHER), [b""]),
        (2, 2, (b"", b""), []),
    ],
)
def test_refused_consistency(
    old: int, new: int, roots: tuple[bytes, bytes], proof: list[bytes]
) -> None:  # COMMITMENTS 2.6, 2.8
    assert not merkle.verify_consistency(old, new, *roots, proof)


def test_consistency_of_equal_sizes() -> None:  # COMMITMENTS 2.6
    assert merkle.verify_consistency(0, 0, EMPTY, EMPTY, [])
    assert merkle.verify_consistency(1, 1, SOME, SOME, [])
    assert not merkle.verify_consistency(1, 1, SOME, OTHER, [])


@pytest.mark.parametrize("leaf", [SOME, EMPTY, b"", b"WrongLeaf", SOME + b"\0"], ids=bytes.hex)
@pytest.mark.parametrize("root", [OTHER, b"", b"WrongLeaf", SOME + b"\0"], ids=bytes.hex)
def test_hashes_of_any_other_length_are_refused(leaf: bytes, root: bytes) -> None:
    """COMMITMENTS 2.8: in a tree of one leaf, leaf hash and root are equal and the proof empty."""
    for wrong in (root, leaf if len(leaf) != 32 else b""):
        assert not merkle.verify_inclusion(leaf, 0, 1, [], wrong)
        assert not merkle.verify_multi({0: leaf}, 1, [], wrong)
    if len(leaf) != 32:
        assert merkle.inclusion_root(leaf, 0, 2, [SOME]) is None
        assert merkle.multi_root({0: leaf}, 2, [SOME]) is None
        assert merkle.combine_parts(2, 5, [SOME, leaf]) is None
        assert merkle.combine_parts(1, 5, [leaf]) is None


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 0), (2, 1)])
def test_no_leaf_beyond_the_tree(index: int, size: int) -> None:  # COMMITMENTS 2.5
    for leaf, root in ((SOME, b""), (b"", EMPTY), (SOME, EMPTY)):
        assert not merkle.verify_inclusion(leaf, index, size, [], root)


def test_roots() -> None:  # COMMITMENTS 2.3
    assert [TREE.root(n).hex() for n in range(9)] == ROOTS


@pytest.mark.parametrize(
    ("index", "size", "path"),
    [
        (0, 1, []),
        (0, 8, [LEAF_1, NODE_23, NODE_4567]),
        (5, 8, [LEAF_4, NODE_67, ROOTS[4]]),
        (2, 3, [ROOTS[2]]),
        (1, 5, [ROOTS[1], NODE_23, LEAF_4]),
    ],
)
def test_inclusion(index: int, size: int, path: list[str]) -> None:  # COMMITMENTS 2.5
    assert hexes(TREE.inclusion(index, size)) == path
    leaf, root = merkle.leaf_hash(bytes.fromhex(INPUTS[index])), bytes.fromhex(ROOTS[size])
    assert merkle.verify_inclusion(leaf, index, size, [bytes.fromhex(h) for h in path], root)


@pytest.mark.parametrize(
    ("old", "new", "proof"),
    [
        (1, 1, []),
        (1, 8, [LEAF_1, NODE_23, NODE_4567]),
        (6, 8, [NODE_45, NODE_67, ROOTS[4]]),
        (2, 5, [NODE_23, LEAF_4]),
        (3, 7, [LEAF_2, LEAF_3, ROOTS[2], NODE_456]),
    ],
)
def test_consistency(old: int, new: int, proof: list[str]) -> None:  # COMMITMENTS 2.6
    assert hexes(TREE.consistency(old, new)) == proof
    roots = bytes.fromhex(ROOTS[old]), bytes.fromhex(ROOTS[new])
    assert merkle.verify_consistency(old, new, *roots, [bytes.fromhex(h) for h in proof])
