"""The golden vectors on the kernel sources, run on the host, in a random order of threads; calls of
odd sizes too. `make gpu-emulate` does the same with more orders and every odd call."""

from __future__ import annotations

import kernel_format as fmt
import pytest
from device_calls import check_vectors
from emulated_gpu import emulated_gpu
from odd_shapes import check_odd_shapes


@pytest.mark.parametrize("group", fmt.device_groups())
def test_golden_vectors(group: str, is_exhaustive: bool) -> None:
    """NUMERICS 1.8: the bits of every call, in every layout that a kernel takes."""
    for seed in range(3 if is_exhaustive else 1):
        gpu = emulated_gpu(seed)
        found = check_vectors(gpu, [group])
        gpu.driver.check()
        assert not found.wrong, found.wrong[:9]
        assert found.operators and found.calls


@pytest.mark.parametrize("group", fmt.device_groups())
def test_calls_of_odd_sizes(group: str, is_exhaustive: bool) -> None:
    gpu = emulated_gpu(seed=7)
    found = check_odd_shapes(gpu, 20261, [group], 1 if is_exhaustive else 8)
    gpu.driver.check()
    assert not found.wrong, found.wrong[:9]
