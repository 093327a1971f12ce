"""Products with weights as panels have the bits of those with the weights in their own order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tallystick import _core
from tallystick.commit.tensor import DTYPES, widened
from tallystick.devices.context import ExecutionContext

Array = np.ndarray[Any, Any]
COLUMNS = 32
# Rows of one tile and of many, terms on both sides of a chunk, columns that fill no panel.
SHAPES = (
    (1, 576, 576), (1, 130, 50), (1, 7, 3), (1, 1, 33), (2, 129, 40), (3, 200, 33), (17, 300, 100),
    (29, 256, 320), (64, 576, 192), (130, 129, 65), (300, 1000, 31), (2100, 128, 32),
)  # fmt: skip
KINDS = ("f32", "bf16", "f16")


def bits(x: Array) -> Array:
    return x.view(np.uint32)


def operands(shape: tuple[int, int, int], kind: str) -> tuple[Array, Array, Array]:
    """a, b as a view of rows that are its columns, and c; with a few numbers that propagate."""
    m, k, n = shape
    random = np.random.default_rng([m, k, n])
    a, c = random.standard_normal((m, k), np.float32), random.standard_normal(n, np.float32)
    rows = random.standard_normal((n, k), np.float32)
    a[0, 0], a[-1, k // 2] = -0.0, np.inf
    rows[0, 0], rows[-1, k // 2] = -0.0, 0
    if kind == "bf16":
        return a, (bits(rows) >> 16).astype(np.uint16).view(DTYPES[kind]).T, c
    return a, rows.astype(DTYPES[kind]).T, c


def panels_of(b: Array) -> Array:
    """By the definition: element (k, j) at [j / 32][k][j % 32], zeros beyond the last column."""
    (terms, columns), stored = b.shape, b.view(np.uint16) if b.itemsize == 2 else b
    found = np.zeros((-(-columns // COLUMNS), terms, COLUMNS), stored.dtype)
    for j in range(columns):
        found[j // COLUMNS, :, j % COLUMNS] = stored[:, j]
    return found


def products(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """a b and a b + c, through panels."""
    made, out = np.empty_like(panels_of(b)), np.empty((2, a.shape[0], b.shape[1]), np.float32)
    if b.dtype == np.float32:
        _core.make_panels(b, made)
        _core.mm_panels(a, made, out[0], None)
        _core.mm_panels(a, made, out[1], c)
    else:
        is_f16 = b.dtype == np.float16
        _core.make_panels_stored(b.view(np.uint16), made)
        _core.mm_panels_stored(a, made, out[0], None, is_f16)
        _core.mm_panels_stored(a, made, out[1], c, is_f16)
    assert np.array_equal(made.view(np.uint8), panels_of(b).view(np.uint8))
    return out[0], out[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("threads", [1, 3])
def test_panels_change_no_bit(kind: str, isa: str, threads: int) -> None:
    for shape in SHAPES:
        a, b, c = operands(shape, kind)
        with ExecutionContext(threads, isa).entered():
            plain, added = products(a, b, c)
            wide: Array = b if kind == "f32" else widened(b)
            due, due_added = np.empty_like(plain), np.empty_like(plain)
            _core.mm(a, wide, due)
            _core.addmm(c, a, wide, due_added, 1.0, 1.0)
        assert np.array_equal(bits(plain), bits(due)), (shape, kind, isa)
        assert np.array_equal(bits(added), bits(due_added)), (shape, kind, isa)


def test_no_terms_are_plus_zero() -> None:
    out, empty = np.ones((2, 33), np.float32), np.empty((2, 0, 32), np.float32)
    _core.mm_panels(np.empty((2, 0), np.float32), empty, out, None)
    assert np.array_equal(bits(out), np.zeros((2, 33), np.uint32))


def test_a_row_of_a_may_lie_apart() -> None:
    a, b, c = operands((1, 200, 70), "f32")
    apart = np.repeat(a, 3, axis=1)[:, ::3]
    assert np.array_equal(bits(products(apart, b, c)[0]), bits(products(a, b, c)[0]))


def test_shapes_that_do_not_fit_are_refused() -> None:
    a, out = np.zeros((2, 8), np.float32), np.zeros((2, 33), np.float32)
    for panels in ((1, 8, 32), (3, 8, 32), (2, 7, 32), (2, 8, 31)):
        with pytest.raises(ValueError, match="do not fit"):
            _core.mm_panels(a, np.zeros(panels, np.float32), out, None)
    with pytest.raises(ValueError, match="does not fit"):
        _core.make_panels(np.zeros((8, 33), np.float32), np.zeros((1, 8, 32), np.float32))
