"""A forger of tensor openings and records: every byte of what is sent is bound."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tallystick.commit import merkle, tensor
from tallystick.commit.tensor import TensorOpening, open_tensor, tensor_digest
from tallystick.errors import CorruptFileError, CounterpartyError, DigestMismatchError
from tallystick.limits import LIMITS

A = np.arange(1800, dtype=np.float32).reshape(30, 60)  # four leaves, the last one short
DIGEST = tensor_digest(A)


@pytest.mark.parametrize("ranges", [[(0, 1)], [(700, 701), (1799, 1800)], [(0, 1800)]])
def test_every_byte(ranges: list[tuple[int, int]]) -> None:  # COMMITMENTS 3.6
    good = open_tensor(A, ranges).to_bytes()
    TensorOpening.from_bytes(good).verify(DIGEST)
    for i in range(len(good)):
        for bit in (0x01, 0x80):
            bad = good[:i] + bytes([good[i] ^ bit]) + good[i + 1 :]
            with pytest.raises(CounterpartyError):
                TensorOpening.from_bytes(bad).verify(DIGEST)
    for cut in range(len(good)):
        with pytest.raises(CorruptFileError):
            TensorOpening.from_bytes(good[:cut])


def test_claims_about_the_shape() -> None:
    """The same leaves under every other header: no other dtype or shape has this digest."""
    opening = open_tensor(A, [(0, 1)])
    for dtype, shape in (
        ("f32", (60, 30)), ("f32", (1800,)), ("i32", (30, 60)), ("f32", (30, 61)),
        ("u8", (30, 240)), ("f64", (30, 30)), ("f32", (30, 60, 1)), ("f32", (29, 60)),
    ):  # fmt: skip
        forged = TensorOpening(tensor.TensorHeader(dtype, shape), opening.leaves, opening.proof)
        with pytest.raises(DigestMismatchError):
            forged.verify(DIGEST)


def test_leaves_that_trade_places() -> None:
    opening = open_tensor(A, [(0, 1), (512, 513)])
    traded = {0: opening.leaves[1], 1: opening.leaves[0]}
    with pytest.raises(DigestMismatchError):
        TensorOpening(opening.header, traded, opening.proof).verify(DIGEST)


def test_a_leaf_of_another_length() -> None:
    opening = open_tensor(A, [(1799, 1800)])
    for data in (opening.leaves[3] + b"\0" * 4, opening.leaves[3][:-4], b""):
        with pytest.raises(DigestMismatchError):
            TensorOpening(opening.header, {3: data}, opening.proof).verify(DIGEST)


def test_an_inner_node_as_a_leaf() -> None:
    """A 64-byte tensor made of two hashes has no digest in common with the tree above them."""
    hashes = tensor.leaf_hashes(A)
    fake = np.frombuffer(hashes[:64], dtype=np.uint8)
    assert merkle.leaf_hash(hashes[:64]) != merkle.node_hash(hashes[:32], hashes[32:64])
    assert tensor_digest(fake) != DIGEST


def test_counts_that_would_exhaust_memory() -> None:  # 1.6
    good = open_tensor(A, [(0, 1)]).to_bytes()
    at = len(b"tallystick/tensor-opening/1\0") + 2 + 16
    assert struct.unpack_from("<Q", good, at) == (1,)
    for count in (LIMITS.opening_leaves + 1, 2**40, 2**64 - 1):
        bad = good[:at] + struct.pack("<Q", count) + good[at + 8 :]
        with pytest.raises(CorruptFileError, match="limit"):
            TensorOpening.from_bytes(bad)
    proof_at = at + 8 + 8 + 2048
    assert struct.unpack_from("<Q", good, proof_at) == (2,)
    for count in (LIMITS.proof_hashes + 1, 2**64 - 1, 3):
        bad = good[:proof_at] + struct.pack("<Q", count) + good[proof_at + 8 :]
        with pytest.raises(CorruptFileError):
            TensorOpening.from_bytes(bad)
    for dims in ((2**40, 2**40), (2**64 - 1, 1), (2**63, 2**63)):
        bad = good[: at - 16] + struct.pack("<QQ", *dims) + good[at:]
        with pytest.raises(CorruptFileError):
            TensorOpening.from_bytes(bad)
