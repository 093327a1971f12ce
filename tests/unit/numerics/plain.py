"""Clauses 1, 3, 8 and 10 in plain numpy and Python, and a runner of operators over every path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.numerics.registry import check_attrs, lookup
from tallystick.numerics.types import DTYPES, type_of

ISAS = _core.supported_isas()
NAN_BITS = np.uint32(0x7FC00000)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 1e-45, -1e-45, 1e-38, -3e-39, 3.4e38, -3.4e38,
     np.inf, -np.inf, np.nan, 1e-30, 0.1, 16777216.0, 7.0, -100.0],
    np.float32,
)  # fmt: skip


def canonical(x: np.ndarray) -> np.ndarray:
    """NUMERICS 1.5."""
    x = np.array(x, dtype=np.float32, copy=True)
    x.view(np.uint32)[np.isnan(x)] = NAN_BITS
    return x


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
    if spec.view is not None:
        result = spec.view(attrs, inputs[0])
        assert type_of(result) == types[0]
        return [result]
    assert spec.run is not None
    ready = [
        x if spec.all_inputs_strided or i in spec.strided_inputs else np.ascontiguousarray(x)
        for i, x in enumerate(inputs)
    ]
    outputs = []
    for t in types:
        out = np.empty(t.shape, DTYPES[t.dtype])
        out.reshape(-1).view(np.uint8)[...] = 1
        outputs.append(out)
    spec.run(attrs, ready, outputs)
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


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """RN32(a·b + c): the sum is rounded to odd in binary64, where the product is exact."""
    with np.errstate(all="ignore"):
        p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        d = np.asarray(c, np.float64)
        s = np.asarray(p + d)
        t = s - p
        error = (p - (s - t)) + (d - t)
        bits = s.view(np.int64)
        inexact = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
        odd = np.where(inexact, bits + np.where((error > 0) == (s > 0), 1, -1), bits)
        return odd.view(np.float64).astype(np.float32)


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NUMERICS 1.11."""
    a, b = np.broadcast_arrays(np.asarray(a, np.float32), np.asarray(b, np.float32))
    plus = ~(np.signbit(a) & np.signbit(b))
    larger = np.where(a > b, a, b)
    zero = np.where(plus, np.float32(0.0), np.float32(-0.0))
    result = np.where((a == 0) & (b == 0), zero, larger)
    return canonical(np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), result))


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NUMERICS 1.11, mirrored."""
    return canonical(-maximum(-np.asarray(a), -np.asarray(b)))


def plain_sum(values: np.ndarray) -> np.float32:
    """NUMERICS 3.1, one addition at a time over 32 lanes."""
    x = np.asarray(values, np.float32).reshape(-1)
    if x.size == 0:
        return np.float32(0.0)
    blocks = []
    with np.errstate(all="ignore"):
        for start in range(0, x.size, 256):
            lanes = np.full(32, -0.0, np.float32)
            block = x[start : start + 256]
            for i in range(0, block.size, 32):
                part = block[i : i + 32]
                lanes[: part.size] = lanes[: part.size] + part
            for s in (16, 8, 4, 2, 1):
                lanes = lanes[:s] + lanes[s : 2 * s]
            blocks.append(lanes[0])
    total = blocks[0] if len(blocks) == 1 else plain_sum(np.array(blocks, np.float32))
    return canonical(np.array(total))[()]


def sum64(values: np.ndarray) -> np.float64:
    """SUM64 of NUMERICS 3.6."""
    blocks = []
    for start in range(0, values.size, 256):
        block = values[start : start + 256]
        lanes = np.full(32, -0.0)
        for i in range(0, block.size, 32):
            part = block[i : i + 32]
            lanes[: part.size] = lanes[: part.size] + part
        for s in (16, 8, 4, 2, 1):
            lanes = lanes[:s] + lanes[s : 2 * s]
        blocks.append(lanes[0])
    if not blocks:
        return np.float64(0.0)
    return np.float64(blocks[0]) if len(blocks) == 1 else sum64(np.array(blocks))


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


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10 of one block in Python integers (NUMERICS 8.1)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


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
