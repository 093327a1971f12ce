"""Every layout of a product's operands, on both sides of each way of reading (NUMERICS 2.4).

A's rows are read in their own place where B has few columns, and packed panel by panel otherwise.
B's rows are packed several panels at once. Neither may change a bit, whatever lies between rows.
"""

from __future__ import annotations

import numpy as np
import pytest
from unit.numerics import dot_reference as plain

from tallystick import _core

# Rows of A, terms, columns of B. 256 columns are the most for which A is read in its own place.
SIZES = [
    (1, 130, 16), (6, 8, 16), (13, 257, 24), (64, 64, 64), (97, 136, 7), (200, 131, 33),
    (30, 129, 256), (30, 129, 257), (260, 140, 256), (258, 7, 256), (301, 260, 90), (25, 390, 331),
    (70, 131, 331),
]  # fmt: skip
LAYOUTS = ["rows", "columns", "rows apart", "every second"]


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """The same matrix in another place of memory; what lies between its elements is NaN."""
    m, n = values.shape
    shape, view = {
        "rows": ((m, n), np.s_[:, :]),
        "columns": ((n, m), np.s_[:, :]),
        "rows apart": ((m, n + 9), np.s_[:, 5 : 5 + n]),
        "every second": ((m, 2 * n), np.s_[:, ::2]),
    }[layout]
    room = np.full(shape, np.nan, np.float32)
    found = room.T if layout == "columns" else room[view]
    found[...] = values
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", SIZES)
def test_no_layout_changes_a_bit(size: tuple[int, int, int]) -> None:
    m, k, n = size
    rng = np.random.default_rng(m * n)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a, b = a.astype(np.float32), b.astype(np.float32)
    a[rng.random(a.shape) < 0.002] = -0.0
    a[m // 2, k // 2] = np.inf
    with plain.quiet():
        want = plain.mm(a, b).view(np.uint32)
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for threads in (1, 3):
            _core.set_threads(threads)
            for of_a in LAYOUTS:
                for of_b in LAYOUTS:
                    out = np.full((m, n), 7, np.float32)
                    _core.mm(laid_out(a, of_a), laid_out(b, of_b), out)
                    same = np.array_equal(out.view(np.uint32), want)
                    assert same, (isa, threads, of_a, of_b)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_of_small_products_in_every_layout(threads: int) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((5, 20, 70)).astype(np.float32)
    b = rng.standard_normal((5, 70, 40)).astype(np.float32)
    want = np.stack([plain.mm(x, y) for x, y in zip(a, b, strict=True)]).view(np.uint32)
    _core.set_threads(threads)
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for x in (a, a.transpose(0, 2, 1).copy().transpose(0, 2, 1)):
            for y in (b, b.transpose(0, 2, 1).copy().transpose(0, 2, 1)):
                out = np.empty((5, 20, 40), np.float32)
                _core.bmm(x, y, out)
                assert np.array_equal(out.view(np.uint32), want), isa
