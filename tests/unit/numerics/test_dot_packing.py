"""Operands of products and convolutions that are packed in their own way (NUMERICS 2.4, 2.7).

The weight gradient packs long rows in squares that are transposed in registers. Its edges, its
ends, and columns and rows that no square fills must give the bits of the plain sum.
"""

from __future__ import annotations

import numpy as np
import pytest
from unit.numerics import dot_reference as plain

from tallystick import _core

# images, channels, outputs, height, width, kernel, stride, padding, dilation, groups
SHAPES = [
    (2, 3, 5, 9, 32, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (3, 2, 7, 4, 8, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (2, 4, 6, 5, 13, (3, 3), (1, 1), (2, 2), (2, 2), 2),
    (1, 1, 2, 3, 9, (2, 5), (2, 1), (3, 9), (1, 3), 1),
    (2, 5, 40, 6, 16, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 9, 3, 3, 3, (1, 1), (1, 1), (0, 0), (1, 1), 3),
    (1, 1, 1, 7, 40, (7, 1), (1, 1), (3, 0), (1, 1), 1),
    (1, 33, 1, 3, 21, (1, 3), (1, 1), (0, 1), (1, 1), 1),
    (2, 6, 6, 6, 17, (3, 3), (1, 2), (1, 1), (1, 1), 6),
    (0, 2, 3, 4, 9, (1, 1), (1, 1), (0, 0), (1, 1), 1),
]


def tensors(shape: tuple, special: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and input."""
    n, c, o, h, w, kernel, stride, padding, dilation, _ = shape
    rng = np.random.default_rng(seed)
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation, strict=True)
    ]
    pair = [rng.standard_normal(s).astype(np.float32) for s in ((n, o, *sizes), (n, c, h, w))]
    for array in pair if special else ():
        chosen = rng.random(array.shape) < 0.02
        array[chosen] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], chosen.sum())
    return pair[0], pair[1]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_bit_differs_from_the_plain_sum(shape: tuple, special: bool) -> None:
    _, c, o, _, _, kernel, stride, padding, dilation, groups = shape
    grad, x = tensors(shape, special, sum(shape[:5]))
    size = (o, c // groups, *kernel)
    with plain.quiet():
        want = plain.weight_grad(grad, x, size, stride, padding, dilation, groups)
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for threads in (1, 3):
            _core.set_threads(threads)
            out = np.full(size, 7, np.float32)
            _core.convolution_weight_grad(grad, x, out, stride, padding, dilation, groups)
            assert np.array_equal(out.view(np.uint32), want.view(np.uint32)), (isa, threads)


@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (6, 128), (7, 128), (64, 256), (65, 128)])
def test_rows_a_power_of_two_apart_are_packed_with_equal_bits(rows: int, columns: int) -> None:
    """Read in place or packed, which the distance of B's rows decides (NUMERICS 2.4)."""
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, 130)).astype(np.float32)
    b = rng.standard_normal((130, columns)).astype(np.float32)
    want = plain.mm(a, b)
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for threads in (1, 3):
            _core.set_threads(threads)
            out = np.empty((rows, columns), np.float32)
            _core.mm(a, b, out)
            assert np.array_equal(out.view(np.uint32), want.view(np.uint32)), (isa, threads)
