"""Products over panels of blocks have the bits of those over binary32 of the same numbers (NUMERICS
19)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference.ops import REFERENCE

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.numerics.operators.quantised import BLOCKS

Array = np.ndarray[Any, Any]
COLUMNS = 32
# Rows, columns and terms: one row and some, columns that fill no panel, terms on both sides of a
# chunk, more tasks than threads.
SHAPES = (
    (1, 5, 256), (1, 64, 512), (1, 211, 256), (1, 1, 32), (1, 96, 96), (1, 33, 128), (1, 700, 160),
    (2, 40, 256), (13, 97, 512), (15, 64, 160), (70, 300, 256), (29, 32, 32),
)  # fmt: skip


def bits(x: Array) -> Array:
    return x.view(np.uint32)


def rows_of_blocks(name: str, columns: int, terms: int) -> Array:
    """Random bytes: every kind of scale is among them, NaNs and infinities too."""
    block = BLOCKS[name]
    random = np.random.default_rng([columns, terms])
    size = terms // block.elements * block.size
    return random.integers(0, 256, (columns, size), dtype=np.uint8)


def panels_of(name: str, rows: Array) -> Array:
    """By the definition: byte i of a block of column j at [j / 32][block][i][j % 32]."""
    columns, size = rows.shape
    block = BLOCKS[name].size
    padded = np.zeros((-(-columns // COLUMNS) * COLUMNS, size), np.uint8)
    padded[:columns] = rows
    turned = padded.reshape(-1, COLUMNS, size // block, block).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(turned)


def products(name: str, a: Array, rows: Array, c: Array) -> tuple[Array, Array]:
    want = panels_of(name, rows)
    made = np.empty_like(want)
    _core.make_panels_quantised(name, rows, made)
    assert np.array_equal(made, want)
    out = np.empty((2, a.shape[0], rows.shape[0]), np.float32)
    _core.mm_panels_quantised(name, a, made, out[0], None)
    _core.mm_panels_quantised(name, a, made, out[1], c)
    return out[0], out[1]


@pytest.mark.sample(5)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("name", BLOCKS)
def test_panels_of_blocks_change_no_bit(name: str, isa: str, threads: int) -> None:
    for m, n, k in SHAPES:
        if k % BLOCKS[name].elements:
            continue
        random = np.random.default_rng([m, n, k])
        a, c = random.standard_normal((m, k), np.float32), random.standard_normal(n, np.float32)
        a[0, 0] = -0.0
        raw = rows_of_blocks(name, n, k)
        (wide,) = REFERENCE["tallystick.dequantize"]({"format": name}, [raw])
        with ExecutionContext(threads, isa).entered():
            plain, added = products(name, a, raw, c)
            due, due_added = np.empty_like(plain), np.empty_like(plain)
            _core.mm(a, wide.T, due)
            _core.addmm(c, a, wide.T, due_added, 1.0, 1.0)
        assert np.array_equal(bits(plain), bits(due)), (m, n, k)
        assert np.array_equal(bits(added), bits(due_added)), (m, n, k)


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("name", BLOCKS)
def test_every_number_of_a_block_is_the_clause_s(name: str, isa: str) -> None:
    """A row that is 1 at one term and else 0 shows the finite numbers of that term; and a product
    of several rows too, which makes panels binary32 first."""
    terms, columns = BLOCKS[name].elements, 64
    raw = rows_of_blocks(name, columns, terms)
    (wide,) = REFERENCE["tallystick.dequantize"]({"format": name}, [raw])
    finite = np.isfinite(wide).all(axis=1)
    assert finite.sum() > columns // 2
    ones = np.eye(terms, dtype=np.float32)
    made = panels_of(name, raw)
    with ExecutionContext(1, isa).entered():
        for rows in (1, terms):
            for first in range(0, terms, rows):
                out = np.empty((rows, columns), np.float32)
                a = np.ascontiguousarray(ones[first : first + rows])
                _core.mm_panels_quantised(name, a, made, out, None)
                want = wide[:, first : first + rows].T + np.float32(0)  # 0 + -0 is 0
                assert np.array_equal(bits(out)[:, finite], bits(want)[:, finite])


def test_a_row_of_a_may_lie_apart() -> None:
    a = np.random.default_rng(1).standard_normal((1, 160), np.float32)
    raw, c = rows_of_blocks("q4_1", 70, 160), np.zeros(70, np.float32)
    apart = np.repeat(a, 3, axis=1)[:, ::3]
    found, want = (products("q4_1", given, raw, c)[0] for given in (apart, a))
    assert np.array_equal(bits(found), bits(want))


def test_no_terms_are_plus_zero() -> None:
    out, empty = np.ones((2, 33), np.float32), np.empty((2, 0, 18, 32), np.uint8)
    _core.mm_panels_quantised("q4_0", np.empty((2, 0), np.float32), empty, out, None)
    assert np.array_equal(bits(out), np.zeros((2, 33), np.uint32))


def test_shapes_that_do_not_fit_are_refused() -> None:
    a, out = np.zeros((2, 64), np.float32), np.zeros((2, 33), np.float32)
    for panels in ((1, 2, 34, 32), (3, 2, 34, 32), (2, 1, 34, 32), (2, 2, 18, 32), (2, 2, 34, 16)):
        with pytest.raises(ValueError, match="do not fit"):
            _core.mm_panels_quantised("q8_0", a, np.zeros(panels, np.uint8), out, None)
    with pytest.raises(ValueError, match="unknown format"):
        _core.mm_panels_quantised("q2_k", a, np.zeros((2, 2, 34, 32), np.uint8), out, None)
    for rows in ((33, 34), (65, 68), (33, 69)):
        with pytest.raises(ValueError, match="does not fit"):
            _core.make_panels_quantised(
                "q8_0", np.zeros(rows, np.uint8), np.zeros((2, 2, 34, 32), np.uint8)
            )
