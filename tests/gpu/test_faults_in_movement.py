"""Planted faults in the kernels that copy, add and hash: the emulation must see each of them."""

from __future__ import annotations

import numpy as np
import pytest
from device_calls import call, there
from emulated_gpu import emulated_gpu, planted
from kernel_format import same_bits

from tallystick.commit.tensor import tensor_digest
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda

SEEDS = range(3)


def _transposed(gpu: Cuda) -> bool:
    x = np.arange(40 * 70, dtype=np.float32).reshape(40, 70)
    there_x = there(gpu, x)
    turned = gpu.view(there_x, 0, "f32", (70, 40), (4, 280))
    return same_bits(gpu.host(turned), np.ascontiguousarray(x.T))


def _summed(gpu: Cuda) -> bool:
    rng = np.random.default_rng(2)
    grad = (rng.standard_normal((900, 2)) * np.exp2(rng.integers(-9, 9, (900, 2)))).astype("f4")
    arrays, attrs = [grad, rng.integers(0, 7, 900)], {"num_weights": 7}
    op = "aten.embedding_dense_backward"
    return same_bits(call(gpu, op, attrs, arrays)[0], call(CPU, op, attrs, arrays)[0])


def _hashed(gpu: Cuda) -> bool:
    x = np.arange(100 * 2048 // 4, dtype=np.int32)
    return gpu.digest(there(gpu, x)) == tensor_digest(x)


FAULTS = [
    (_transposed, "missing barrier"),
    (_summed, "one bit"),
    (_hashed, "missing barrier"),
    (_hashed, "one bit"),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("right", "fault"), FAULTS)
def test_a_fault_is_seen(right: object, fault: str, seed: int) -> None:
    assert callable(right)
    assert right(emulated_gpu(seed))
    with planted(fault):
        assert not right(emulated_gpu(seed))
