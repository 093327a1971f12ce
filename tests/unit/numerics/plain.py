"""Clauses 1, 3, 8 and 10 in plain numpy and Python, and a runner of operators over every path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from reference.floats import canonical
from reference.rand import philox
from reference.sums import sum_rows, total

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel, run_of
from tallystick.kernels.evaluate import view
from tallystick.numerics.registry import check_attrs, lookup
from tallystick.numerics.types import DTYPES, type_of

ISAS = _core.supported_isas()
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 1e-45, -1e-45, 1e-38, -3e-39, 3.4e38, -3.4e38,
     np.inf, -np.inf, np.nan, 1e-30, 0.1, 16777216.0, 7.0, -100.0],
    np.float32,
)  # fmt: skip


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal dtype, shape and bits."""
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(
        np.ascontiguousarray(got).reshape(-1).view(np.uint8),
        np.ascontiguousarray(want).reshape(-1).view(np.uint8),
    )


def evaluate(name: str, attrs: dict[str, Any], *inputs: np.ndarray) -> list[np.ndarray]:
    """One operator through its own shape rule; outputs begin as garbage."""
    spec = lookup(name)
    check_attrs(spec, attrs)
    types = spec.infer(attrs, tuple(type_of(x) for x in inputs))
    if name in view:
        result = view[name](attrs, inputs[0])
        assert type_of(result) == types[0]
        return [result]
    ready = [x if kernel[name].strided else np.ascontiguousarray(x) for x in inputs]
    outputs = []
    for t in types:
        out = np.empty(t.shape, DTYPES[t.dtype])
        out.reshape(-1).view(np.uint8)[...] = 1
        outputs.append(out)
    run_of(name)(attrs, ready, outputs)
    return outputs


def on_every_path(compute: Callable[[], list[np.ndarray]], *want: np.ndarray) -> None:
    """The same bits on every instruction set with 1, 2 and 3 threads."""
    for isa, threads in itertools.product(ISAS, (1, 2, 3)):
        _core.set_isa(isa)
        _core.set_threads(threads)
        got = compute()
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)


def check(name: str, attrs: dict[str, Any], inputs: list[np.ndarray], *want: np.ndarray) -> None:
    """`name` gives `want` on every path."""
    on_every_path(lambda: evaluate(name, attrs, *inputs), *want)


def plain_sum(values: np.ndarray) -> np.float32:
    """SUM over all elements with a canonical NaN (NUMERICS 1.5, 3.1)."""
    with np.errstate(all="ignore"):
        return canonical(total(values))[()]


def sum64(values: np.ndarray) -> np.float64:
    """SUM64 of NUMERICS 3.6."""
    return sum_rows(values)[()]


def plain_var_mean(row: np.ndarray, correction: float) -> tuple[np.float32, np.float32]:
    """NUMERICS 3.6 of one row."""
    wide = row.astype(np.float64)
    with np.errstate(all="ignore"):
        mean = sum64(wide) / np.float64(row.size)
        d = wide - mean
        var = sum64(d * d) / np.float64(max(row.size - correction, 0.0))
        return np.float32(var), np.float32(mean)


def sum_axes(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """SUM over `axes` in the order of NUMERICS 3.3."""
    kept = [i for i in range(x.ndim) if i not in axes]
    count = int(np.prod([x.shape[i] for i in axes]))
    rows = x.transpose((*kept, *sorted(axes))).reshape((*(x.shape[i] for i in kept), count))
    out = np.empty(rows.shape[:-1], np.float32)
    for index in np.ndindex(*out.shape):
        out[index] = plain_sum(rows[index])
    return out


def words(seed: int, step: int, draw: int, first: int, count: int) -> np.ndarray:
    """Words of elements first .. first+count-1 (NUMERICS 8.1)."""
    key = (seed % 2**32, seed // 2**32)
    out = []
    for e in range(first, first + count):
        block = e // 4
        out.append(philox((block % 2**32, block // 2**32, draw, step), key)[e % 4])
    return np.array(out, np.uint32)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Test data with magnitudes far apart, some subnormal."""
    scale = np.float32(2.0) ** rng.integers(-20, 20, shape).astype(np.float32)
    x = np.asarray(rng.standard_normal(shape) * scale, np.float32)
    flat = x.reshape(-1)
    if flat.size > 10:
        flat[3], flat[7] = 1e-45, -2e-39
    return x
