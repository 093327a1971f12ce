"""The native SHA-256 and tensor trees against hashlib, every implementation (COMMITMENTS 2, 3)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tallystick import _core

core: Any = _core


@pytest.fixture(params=core.sha256_implementations())
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    before = core.sha256_implementation()
    core.set_sha256_implementation(request.param)
    assert core.sha256_implementation() == request.param
    yield request.param
    core.set_sha256_implementation(before)


def noise(n: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(n)


def test_published_digests(implementation: str) -> None:
    # FIPS 180-2, appendix B.
    known = {
        b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq":
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    }  # fmt: skip
    for message, digest in known.items():
        assert core.sha256(message).hex() == digest


def test_every_length_to_past_four_blocks(implementation: str) -> None:
    data = noise(300)
    for n in range(301):
        assert core.sha256(data[:n]) == hashlib.sha256(data[:n]).digest(), n


@pytest.mark.parametrize("leaf", [1, 2, 55, 62, 63, 64, 65, 127, 520, 2048, 4096])
def test_trees(implementation: str, leaf: int, reference: ModuleType) -> None:
    data = noise(40 * leaf + 1, leaf)
    for n in {0, 1, leaf - 1, leaf, leaf + 1, 2 * leaf, 3 * leaf - 1, 7 * leaf, 40 * leaf + 1}:
        hashes = [reference.leaf(data[i : min(i + leaf, n)]) for i in range(0, n, leaf)]
        assert core.tensor_leaf_hashes(data[:n], leaf) == b"".join(hashes)
        assert core.tensor_leaves_root(data[:n], leaf) == reference.mth(hashes)
        assert core.merkle_root_of_hashes(b"".join(hashes)) == reference.mth(hashes)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_tasks_and_threads(implementation: str, threads: int, reference: ModuleType) -> None:
    leaf = 16
    before = core.threads()
    core.set_threads(threads)
    try:
        for leaves in (511, 512, 513, 1024, 1537, 5000):
            data = noise(leaves * leaf - 3, leaves)
            hashes = [reference.leaf(data[i : i + leaf]) for i in range(0, len(data), leaf)]
            assert core.tensor_leaves_root(data, leaf) == reference.mth(hashes)
            assert core.tensor_leaf_hashes(data, leaf) == b"".join(hashes)
    finally:
        core.set_threads(before)


def test_what_is_hashed_is_bound_to_every_byte(implementation: str) -> None:
    data = bytearray(noise(4 * 64))
    root = core.tensor_leaves_root(bytes(data), 64)
    for i in range(len(data)):
        data[i] ^= 1
        assert core.tensor_leaves_root(bytes(data), 64) != root
        data[i] ^= 1


def test_buffers_of_other_kinds() -> None:
    array = np.arange(1000, dtype=np.float32)
    frozen = array.copy()
    frozen.setflags(write=False)
    expected = core.tensor_leaves_root(array.tobytes(), 2048)
    for buffer in (array, frozen, memoryview(array.tobytes()), bytearray(array.tobytes())):
        assert core.tensor_leaves_root(buffer, 2048) == expected
    with pytest.raises((BufferError, ValueError)):
        core.tensor_leaves_root(array[::2], 2048)
    with pytest.raises(TypeError):
        core.sha256("text")


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="leaf size"):
        core.tensor_leaves_root(b"x", 0)
    with pytest.raises(ValueError, match="whole number"):
        core.merkle_root_of_hashes(b"x" * 33)
    with pytest.raises(ValueError, match="cannot run here"):
        core.set_sha256_implementation("fastest")
    assert core.tensor_leaves_root(b"x", 2**62) == hashlib.sha256(b"\0x").digest()
