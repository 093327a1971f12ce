"""A tensor's digest from pieces of its bytes (COMMITMENTS 3.5)."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.commit.streamed import TensorStream
from tallystick.commit.tensor import header_of, tensor_digest


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 5000])
def test_the_digest_of_any_cut(count: int) -> None:
    rng = np.random.default_rng(count)
    array = rng.standard_normal(count, dtype=np.float32)
    data = array.view(np.uint8)
    for size in (4, 2044, 2048, 2052, 9000, max(1, data.nbytes)):
        stream = TensorStream(header_of(array))
        for at in range(0, data.nbytes, size):
            assert stream.missing
            stream.add(data[at : at + size])
        assert stream.missing == 0 and stream.digest() == tensor_digest(array)


def test_another_byte_gives_another_digest() -> None:
    array = np.arange(3000, dtype=np.float32)
    for at in (0, 2047, 2048, 11_999):
        data = array.view(np.uint8).copy()
        data[at] ^= 1
        stream = TensorStream(header_of(array))
        stream.add(data[:5000])
        stream.add(data[5000:])
        assert stream.digest() != tensor_digest(array)
