"""The scatter class on the emulated GPU: contributions in ascending source order (NUMERICS 4)."""

from __future__ import annotations

from typing import Any

import kernel_format as fmt
import numpy as np
import pytest
from device_calls import call, check_vectors, there
from emulated_gpu import emulated_gpu

from tallystick import evaluate
from tallystick.devices.cuda.device import Cuda
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.contracts import find_contract

BACKWARD, ADD = "aten.embedding_dense_backward", "aten.index_add"


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=4)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Of such different sizes that another order of additions gives other bits."""
    spread = np.exp2(rng.integers(-12, 13, shape))
    return (rng.standard_normal(shape) * spread).astype(np.float32)


def check(gpu: Cuda, op: str, arrays: list[np.ndarray], **attrs: Any) -> None:
    (got,) = call(gpu, op, attrs, arrays)
    expected = evaluate(op, *arrays, **attrs)
    assert isinstance(expected, np.ndarray)
    assert fmt.same_bits(got, expected), (op, attrs, [x.shape for x in arrays])
    gpu.driver.check()  # type: ignore[attr-defined]


def test_all_golden_vectors(gpu: Cuda) -> None:
    found = check_vectors(gpu, ops={BACKWARD, ADD})
    assert found.operators == {BACKWARD, ADD}
    assert not found.wrong, found.wrong[:5]


@pytest.mark.parametrize(
    ("sources", "size", "row"),
    [(1, 1, 1), (40, 3, 5), (4097, 2, 1), (700, 300, 4), (9000, 70000, 1), (300, 257, 8)],
)
def test_sources_in_ascending_order(gpu: Cuda, sources: int, size: int, row: int) -> None:
    """4.1, over one and several blocks of the sort, and one, two and three passes of it."""
    rng = np.random.default_rng(sources)
    grad = floats(rng, sources, row)
    for index in (
        rng.integers(0, size, sources),
        np.full(sources, size - 1),
        np.minimum(rng.geometric(0.3, sources) - 1, size - 1),
    ):
        check(gpu, BACKWARD, [grad, index], num_weights=size)
    check(gpu, BACKWARD, [grad, index], num_weights=size, padding_idx=int(index[0]))


def test_index_add(gpu: Cuda) -> None:
    """4.3: along every axis, in place too; sources that are NaN give the canonical one."""
    rng = np.random.default_rng(1)
    x = floats(rng, 4, 6, 8)
    x[0, 0, 0] = np.array(0xFFC12345, np.uint32).view(np.float32)
    for dim, n in ((0, 11), (1, 40), (2, 3), (-1, 0)):
        index = rng.integers(0, x.shape[dim], n)
        shape = list(x.shape)
        shape[dim] = n
        source = floats(rng, *shape)
        check(gpu, ADD, [x, index, source], dim=dim)
        (got,) = call(gpu, ADD, {"dim": dim}, [x, index, source], shared=(0, 0))
        assert fmt.same_bits(got, evaluate(ADD, x, index, source, dim=dim))
    check(gpu, ADD, [x[:, :0], np.zeros(2, np.int64), x[:2, :0]], dim=0)


def test_an_index_out_of_range_is_refused_before_any_write(gpu: Cuda) -> None:
    """NUMERICS 4.2, 4.3, 1.13."""
    x, run = np.ones((5, 4), np.float32), gpu.kernels(find_contract("ordered/1"))[ADD].run
    for bad in (-1, 5, 1 << 33):
        index = np.array([0, 4, bad])
        with pytest.raises(RefusedOperandsError, match="position 2"):
            call(gpu, BACKWARD, {"num_weights": 5}, [x[:3], index])
        tensors = [there(gpu, a) for a in (x, index, x[:3])]
        with pytest.raises(RefusedOperandsError, match="position 2"):
            run({"dim": 0}, tensors, tensors[:1])
        assert fmt.same_bits(gpu.host(tensors[0]), x)
    with pytest.raises(RefusedOperandsError, match="position 0"):
        call(gpu, BACKWARD, {"num_weights": 0}, [x[:1], np.zeros(1, np.int64)])
    gpu.driver.check()  # type: ignore[attr-defined]
