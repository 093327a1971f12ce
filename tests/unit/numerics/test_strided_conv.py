"""The input gradient of strided convolutions, which leaves out terms of +0 (NUMERICS 2.7).

Its bits are those of the sum with every term: where partial sums are -0, where weights are not
finite, and where a phase of rows and columns has no term at all.
"""

from __future__ import annotations

import numpy as np
import pytest
from unit.numerics import dot_reference as plain

from tallystick import _core

# images, channels, outputs, height, width, kernel, stride, padding, dilation, groups
SHAPES = [
    (2, 4, 6, 9, 8, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    (1, 3, 40, 7, 7, (3, 2), (2, 3), (0, 1), (1, 2), 1),
    (2, 4, 4, 8, 8, (1, 1), (2, 2), (0, 0), (1, 1), 2),
    (1, 2, 34, 12, 12, (4, 4), (4, 4), (0, 0), (1, 1), 1),
    (1, 2, 3, 11, 5, (2, 2), (5, 4), (1, 0), (2, 2), 1),
    (1, 6, 6, 6, 6, (3, 3), (2, 1), (1, 1), (1, 1), 6),
    (3, 1, 1, 3, 3, (3, 3), (3, 3), (2, 2), (2, 2), 1),
]


def tensors(shape: tuple, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and weight. Products of `tiny` ones underflow to +0 and -0."""
    n, c, o, h, w, kernel, stride, padding, dilation, groups = shape
    rng = np.random.default_rng(seed)
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation, strict=True)
    ]
    grad = rng.standard_normal((n, o, *sizes)).astype(np.float32)
    weight = rng.standard_normal((o, c // groups, *kernel)).astype(np.float32)
    if kind == "tiny":
        grad *= np.float32(1e-30)
        weight *= np.float32(1e-30)
        grad[rng.random(grad.shape) < 0.3] = 0
    if kind == "special":
        for array in (grad, weight):
            chosen = rng.random(array.shape) < 0.05
            array[chosen] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], chosen.sum())
    if kind == "special gradient":
        chosen = rng.random(grad.shape) < 0.1
        grad[chosen] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], chosen.sum())
    return grad, weight


@pytest.mark.parametrize("kind", ["ordinary", "tiny", "special", "special gradient"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_bit_differs_from_the_sum_with_every_term(shape: tuple, kind: str) -> None:
    n, c, _, h, w, _, stride, padding, dilation, groups = shape
    grad, weight = tensors(shape, kind, sum(shape[:5]))
    with plain.quiet():
        want = plain.input_grad(grad, weight, (n, c, h, w), stride, padding, dilation, groups)
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for threads in (1, 3):
            _core.set_threads(threads)
            out = np.full((n, c, h, w), 7, np.float32)
            _core.convolution_input_grad(grad, weight, out, stride, padding, dilation, groups)
            assert np.array_equal(out.view(np.uint32), want.view(np.uint32)), (isa, threads)


def test_tiny_products_do_reach_a_negative_zero() -> None:
    """Otherwise the case above would not meet the results that are computed again."""
    with plain.quiet():
        signs = set()
        for shape in SHAPES:
            grad, weight = tensors(shape, "tiny", sum(shape[:5]))
            n, c, _, h, w, _, stride, padding, dilation, groups = shape
            out = plain.input_grad(grad, weight, (n, c, h, w), stride, padding, dilation, groups)
            signs |= set(np.signbit(out[out == 0]).tolist())
    assert signs == {False, True}
