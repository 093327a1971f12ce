"""Tensor digests on the emulated GPU (COMMITMENTS 2, 3), against hashlib and the processor's."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from device_calls import there
from emulated_gpu import emulated_gpu

from tallystick.commit.tensor import header_of, tensor_digest
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.nvidia import Traffic
from tallystick.program.state import State

BLOCK, LEAF, GROUP = 64, 2048, 256 * 2048


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=5)


def _root(hashes: list[bytes]) -> bytes:
    """2.3, by its own words."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while 2 * k < len(hashes):
        k *= 2
    return hashlib.sha256(b"\1" + _root(hashes[:k]) + _root(hashes[k:])).digest()


def _by_hashlib(x: np.ndarray) -> bytes:
    """3.5."""
    data, header = x.tobytes(), header_of(x)
    leaves = [data[i : i + LEAF] for i in range(0, len(data), LEAF)]
    root = _root([hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves])
    code = {"f32": 1, "f64": 2, "i64": 3, "i32": 4, "u8": 5, "bool": 6}[header.dtype]
    front = b"tallystick/tensor/1\0" + bytes([code, x.ndim])
    numbers = b"".join(n.to_bytes(8, "little") for n in (*x.shape, len(data)))
    return hashlib.sha256(front + numbers + LEAF.to_bytes(4, "little") + root).digest()


def _bytes(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)


def test_lengths_around_blocks_and_leaves(gpu: Cuda) -> None:
    """3.4: the last leaf is shorter; the padding takes one block or two; few or many groups."""
    lengths = [*range(2 * BLOCK + 4), *(LEAF + d for d in range(-BLOCK - 12, 12))]
    lengths += [k * LEAF + d for k in (2, 3, 4, 5, 31, 33, 64, 255, 256, 257) for d in (-1, 0, 1)]
    arrays = [_bytes(n) for n in lengths]
    found = gpu.digests([there(gpu, x) for x in arrays])
    assert found == [_by_hashlib(x) for x in arrays]
    one = _bytes(5 * LEAF + 7)
    assert gpu.digest(there(gpu, one)) == _by_hashlib(one) == tensor_digest(one)
    gpu.driver.check()  # type: ignore[attr-defined]


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
def test_large_tensors(gpu: Cuda, groups: int) -> None:
    """2.3 over several levels of blocks, beside a small tensor."""
    x, small = _bytes(groups * GROUP + 1), _bytes(100)
    found = gpu.digests([there(gpu, a) for a in (small, x, small)])
    assert found == [tensor_digest(a) for a in (small, x, small)]


def test_types_shapes_and_strides(gpu: Cuda) -> None:
    """3.1, 3.2: strides and the storage are never part of it."""
    rng = np.random.default_rng(1)
    arrays: list[np.ndarray] = []
    for dtype in ("f4", "f8", "i8", "i4", "u1", "?"):
        size = np.dtype(dtype).itemsize
        deep = (2,) * (16 if size == 1 else 11)
        for shape in ((), (1,), (0, 3), (7, 5), (3, 1, 4, 2), (513,), deep):
            raw = rng.integers(0, 2 if dtype == "?" else 256, (*shape, size), dtype=np.uint8)
            arrays.append(raw.view(dtype).reshape(shape))
    tensors: list[Any] = [there(gpu, x, turned) for x in arrays for turned in (False, True)]
    expected = [tensor_digest(x) for x in arrays for _ in (False, True)]
    assert gpu.digests(tensors) == expected
    assert [gpu.digest(x) for x in tensors] == expected
    whole = there(gpu, arrays[5])
    part = gpu.view(whole, 3, "u8", (100,), (1,))  # no address that a leaf of its own would have
    assert gpu.digest(part) == tensor_digest(arrays[5].reshape(-1).view(np.uint8)[3:103])
    assert gpu.digests([]) == []


def test_only_digests_cross_the_bus(gpu: Cuda) -> None:
    """A list's description goes there once; then a block of digests comes back, and no more."""
    arrays = {f"slot{i}": np.full((i + 1, 700), i, np.float32) for i in range(40)}
    state = State(arrays)
    expected = state.root()
    state.move_to(gpu)
    assert state.root() == expected
    gpu.driver.traffic.__init__()  # type: ignore[misc]
    before = dict(gpu.driver.launched)  # type: ignore[attr-defined]
    assert state.root() == expected
    assert gpu.driver.traffic == Traffic(0, 0, 1, 32 * 40)
    launched = gpu.driver.launched  # type: ignore[attr-defined]
    assert sum(launched.values()) - sum(before.values()) == 2
