"""Movement on the emulated GPU has the bits of the processor, in every layout (NUMERICS 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import kernel_format as fmt
import numpy as np
import pytest
from device_calls import call, check_vectors, there
from emulated_gpu import emulated_gpu

from tallystick import evaluate
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.types import type_of
from tallystick.program.layout import new_tensor

OPS = {f"aten.{name}" for name in (
    "arange", "cat", "embedding", "full", "gather", "index_select", "scatter.src", "slice_scatter",
    "tril", "triu",
)}  # fmt: skip
DTYPES = (np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_)


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=3)


def values(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Any bits, NaN payloads included: they are moved as they are (NUMERICS 1.5)."""
    size = np.dtype(dtype).itemsize
    high = 2 if dtype is np.bool_ else 256
    raw = rng.integers(0, high, (*shape, size), dtype=np.uint8)
    return raw.view(dtype).reshape(shape).copy()


def check(gpu: Cuda, op: str, arrays: Sequence[np.ndarray], **attrs: Any) -> None:
    expected = evaluate(op, *arrays, **attrs)
    assert isinstance(expected, np.ndarray)
    for turned in (False, True):
        (got,) = call(gpu, op, attrs, arrays, turned=turned)
        assert fmt.same_bits(got, expected), (op, attrs, [x.shape for x in arrays], turned)
    if op in ("aten.scatter.src", "aten.slice_scatter"):
        (got,) = call(gpu, op, attrs, arrays, shared=(0, 0))
        assert fmt.same_bits(got, expected), (op, attrs, "in place")


def test_all_golden_vectors(gpu: Cuda) -> None:
    found = check_vectors(gpu, ops=OPS)
    assert found.operators == OPS and not found.missing
    assert not found.wrong, found.wrong[:5]
    gpu.driver.check()  # type: ignore[attr-defined]


def _copied(gpu: Cuda, x: np.ndarray) -> np.ndarray:
    """x, a view of any strides, copied on the device from memory with the same strides."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    whole = there(gpu, np.ascontiguousarray(base))
    assert isinstance(whole, DeviceTensor)
    offset = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    source = gpu.view(whole, offset, whole.dtype, x.shape, x.strides)
    target = new_tensor(gpu, type_of(x))
    gpu.copy(source, target)
    return gpu.host(target)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_])
def test_strided_copies(gpu: Cuda, dtype: Any) -> None:
    """Rows, transposes of all sides around a tile, gaps, repeated axes, single elements."""
    rng = np.random.default_rng(5)
    before = dict(gpu.driver.launched)  # type: ignore[attr-defined]
    for rows, columns in ((1, 1), (31, 33), (32, 64), (8, 100), (7, 9), (65, 40)):
        x = values(rng, dtype, rows, columns)
        batch = values(rng, dtype, 2, rows, 3, columns)
        one = values(rng, dtype, rows, 1)
        for seen in (
            x.T,
            x[::2, 1:],
            x[:, ::-1] if columns == 1 else x[1:, ::3],
            batch.transpose(0, 2, 1, 3),
            batch.transpose(3, 2, 1, 0),
            batch.transpose(2, 0, 3, 1),
            batch[:, :, 1, 1:].transpose(0, 2, 1),
            np.broadcast_to(one, (rows, columns)),
            np.broadcast_to(x, (2, rows, columns)).transpose(2, 1, 0),
            x[:0].T,
        ):
            assert fmt.same_bits(_copied(gpu, seen), np.ascontiguousarray(seen)), seen.strides
    launched = gpu.driver.launched  # type: ignore[attr-defined]
    size = np.dtype(dtype).itemsize
    for kernel in (f"copy_turned_{size}", f"copy_strided_{size}", "copy_strided_16"):
        assert launched.get(kernel, 0) > before.get(kernel, 0), kernel
    gpu.driver.check()  # type: ignore[attr-defined]


def test_joining_and_triangles(gpu: Cuda) -> None:
    rng = np.random.default_rng(6)
    for dtype in DTYPES:
        for axis in (0, 1, -1):
            shapes = [[5, 12, 8] for _ in range(3)]
            for shape, n in zip(shapes, (4, 0, 7), strict=True):
                shape[axis] = n
            check(gpu, "aten.cat", [values(rng, dtype, *s) for s in shapes], dim=axis)
            whole = [5, 12, 8]
            attrs = {"dim": axis, "start": 1, "end": whole[axis], "step": 3}
            part = list(whole)
            part[axis] = len(range(1, whole[axis], 3))
            arrays = [values(rng, dtype, *whole), values(rng, dtype, *part)]
            check(gpu, "aten.slice_scatter", arrays, **attrs)
        x = values(rng, dtype, 3, 11, 6)
        for diagonal in (-20, -2, 0, 3, 1 << 40):
            check(gpu, "aten.tril", [x], diagonal=diagonal)
            check(gpu, "aten.triu", [x], diagonal=diagonal)


def test_reading_and_writing_by_index(gpu: Cuda) -> None:
    """9.3: of several sources with one destination the last in row-major order stays."""
    rng = np.random.default_rng(7)
    for dtype in DTYPES:
        x = values(rng, dtype, 6, 9, 16)
        for dim, n in ((0, 40), (1, 3), (2, 5), (-1, 30)):
            index = rng.integers(0, x.shape[dim], n)
            check(gpu, "aten.index_select", [x, index], dim=dim)
            shape = [4, 7, 8]
            shape[dim] = n
            index = rng.integers(0, x.shape[dim], shape)
            check(gpu, "aten.gather", [x, index], dim=dim)
            source = values(rng, dtype, *shape)
            check(gpu, "aten.scatter.src", [x, index, source], dim=dim)
            index[...] = 2  # all go to one place
            check(gpu, "aten.scatter.src", [x, index, source], dim=dim)
    for row in (1, 3, 8, 64):
        weight = values(rng, np.float32, 20, row)
        index = rng.integers(0, 20, (3, 5))
        check(gpu, "aten.embedding", [weight, index])


def test_making(gpu: Cuda) -> None:
    for size, value, dtype in (
        ((3, 5), 1.5, "f32"), ((7,), float("nan"), "f64"), ((0, 2), 2.0, "f32"),
        ((9,), -1.0, "i64"), ((4, 4), 258.0, "i32"), ((5,), 7.0, "u8"), ((6,), 1.0, "bool"),
    ):  # fmt: skip
        check(gpu, "aten.full", [], size=size, value=value, dtype=dtype)
    check(gpu, "aten.arange", [], start=0.1, end=30.0, step=0.07, dtype="f32")
    check(gpu, "aten.arange", [], start=3e38, end=4e38, step=1e36, dtype="f32")
    check(gpu, "aten.arange", [], start=2.0**62, end=-(2.0**62), step=-(2.0**59), dtype="i64")


@pytest.mark.parametrize("bad", [-1, 6, 1 << 40, -(1 << 63)])
def test_an_index_out_of_range_is_refused_before_any_write(gpu: Cuda, bad: int) -> None:
    """NUMERICS 1.13. The message names the first such index."""
    x, index = np.arange(24, dtype=np.float32).reshape(6, 4), np.array([5, 0, bad, bad])
    table = np.broadcast_to(index[:, None], (4, 4)).copy()
    calls: list[tuple[str, dict[str, Any], list[np.ndarray], int]] = [
        ("aten.embedding", {}, [x, index], 2),
        ("aten.index_select", {"dim": 0}, [x, index], 2),
        ("aten.index_select", {"dim": 0}, [x[:, :0].copy(), index], 2),
        ("aten.gather", {"dim": 0}, [x, table], 8),
        ("aten.scatter.src", {"dim": 0}, [x, table, table.astype(np.float32)], 8),
    ]
    for op, attrs, arrays, position in calls:
        with pytest.raises(RefusedOperandsError, match=f"position {position}"):
            call(gpu, op, attrs, arrays)
    tensors = [there(gpu, a) for a in calls[-1][2]]
    with pytest.raises(RefusedOperandsError):
        run = gpu.kernels(_ordered())["aten.scatter.src"].run
        run({"dim": 0}, tensors, tensors[:1])
    assert fmt.same_bits(gpu.host(tensors[0]), x)
    gpu.driver.check()  # type: ignore[attr-defined]


def _ordered() -> Any:
    from tallystick.numerics.contracts import find_contract

    return find_contract("ordered/1")
