"""Convolutions of many groups and of small planes (NUMERICS 2.6, 2.7).

Groups fill the lanes of a vector, images of small planes fill a product's columns, and a large
plane is cut into bands. Every bit is that of the plain sum: with lanes left over, with bands of
rows and of parts of a row, with sums of several chunks, and with values that are not finite.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tools import few
from unit.numerics import dot_reference as plain

from tallystick import _core

KINDS = ("ordinary", "tiny", "special", "special data")

# images, groups, channels and outputs of a group, height, width, kernel, stride, padding, dilation
SHAPES = [
    (2, 8, 1, 1, 9, 7, (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 19, 1, 1, 5, 5, (5, 5), (2, 2), (2, 2), (1, 1)),
    (2, 33, 1, 2, 4, 6, (3, 2), (1, 2), (1, 0), (2, 1)),
    (1, 16, 1, 1, 14, 14, (7, 7), (1, 1), (3, 3), (1, 1)),
    (2, 9, 4, 4, 6, 5, (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 16, 5, 3, 7, 9, (3, 3), (2, 3), (2, 1), (1, 2)),
    (1, 8, 16, 11, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1)),  # 144 and 99 terms: chunks of 128
    (1, 16, 15, 17, 3, 3, (3, 3), (2, 2), (1, 1), (1, 1)),
    (5, 12, 1, 1, 2, 2, (3, 3), (1, 1), (1, 1), (1, 1)),  # images in one band
    (70, 8, 1, 1, 2, 1, (3, 1), (1, 1), (1, 0), (1, 1)),  # chunks of the weight end within images
    (2, 10, 1, 1, 1, 300, (1, 4), (1, 1), (0, 3), (1, 1)),
    (1, 8, 1, 1, 3, 9, (1, 2), (5, 4), (1, 0), (1, 3)),  # phases without terms
    (1, 8, 1, 1, 2, 2, (1, 1), (1, 1), (3, 4), (1, 1)),  # results of zeros only
    (2, 8, 2, 2, 6, 6, (1, 1), (1, 1), (0, 0), (1, 1)),
    (0, 8, 1, 1, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
]
SMALL_PLANES = [
    (5, 1, 33, 37, 2, 2, (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 1, 15, 33, 7, 7, (3, 3), (1, 1), (1, 1), (1, 1)),
    (4, 2, 3, 40, 5, 3, (2, 3), (2, 1), (0, 2), (1, 1)),
    (3, 1, 40, 32, 2, 2, (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 1, 4, 32, 9, 11, (3, 3), (2, 3), (1, 1), (2, 2)),
    (3, 1, 1, 32, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
    (3, 1, 2, 1, 3, 3, (3, 3), (1, 1), (1, 1), (1, 1)),
]


def tensors(shape: tuple, kind: str, seed: int) -> list[np.ndarray]:
    """Input, weight, bias, gradient."""
    n, groups, cg, og, h, w, kernel, stride, padding, dilation = shape
    rng = np.random.default_rng(seed)
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip((h, w), kernel, stride, padding, dilation, strict=True)
    ]
    shapes = ((n, groups * cg, h, w), (groups * og, cg, *kernel), (groups * og,),
              (n, groups * og, *sizes))  # fmt: skip
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    for i, array in enumerate(arrays):
        if kind == "tiny":  # products underflow to +0 and -0, sums are subnormal
            array *= np.float32(1e-38 if i == 2 else 1e-22)
            array[rng.random(array.shape) < 0.2] = 0
        if kind == "special" or (kind == "special data" and i in (0, 3)):
            chosen = rng.random(array.shape) < 0.04
            array[chosen] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], chosen.sum())
    return arrays


def check(shape: tuple, kind: str, seed: int, threads: tuple[int, ...], biased: bool) -> None:
    """Forward and both gradients, on every path, against the plain sums."""
    _, groups, _, _, _, _, _, stride, padding, dilation = shape
    x, w, bias, grad = tensors(shape, kind, seed)
    b = bias if biased else None
    with plain.quiet():
        want = [
            plain.convolution(x, w, b, grad.shape[2:], stride, padding, dilation, groups),
            plain.input_grad(grad, w, x.shape, stride, padding, dilation, groups),
            plain.weight_grad(grad, x, w.shape, stride, padding, dilation, groups),
        ]
    form = (stride, padding, dilation, groups)
    before = _core.isa(), _core.threads()
    try:
        for isa in _core.supported_isas():
            _core.set_isa(isa)
            for count in threads:
                _core.set_threads(count)
                got = [np.full(a.shape, 7, np.float32) for a in want]
                _core.convolution(x, w, b, got[0], *form)
                _core.convolution_input_grad(grad, w, got[1], *form)
                _core.convolution_weight_grad(grad, x, got[2], *form)
                for name, a, e in zip(("forward", "input", "weight"), got, want, strict=True):
                    same = np.array_equal(a.view(np.uint32), e.view(np.uint32))
                    assert same, (name, shape, kind, isa, count)
    finally:
        _core.set_isa(before[0])
        _core.set_threads(before[1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES + SMALL_PLANES)
def test_no_bit_differs_from_the_plain_sum(shape: tuple, kind: str) -> None:
    check(shape, kind, sum(shape[:6]), (1, 3), biased=bool(shape[1] & 1))


@st.composite
def shapes(draw: st.DrawFn) -> tuple:
    """Any groups, few channels, small planes, with every stride, padding and dilation."""
    pick = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    n, groups, cg, og = pick(1, 3), pick(1, 20), pick(1, 3), pick(1, 3)
    kernel, stride = (pick(1, 4), pick(1, 4)), (pick(1, 3), pick(1, 3))
    padding, dilation = (pick(0, 3), pick(0, 3)), (pick(1, 2), pick(1, 2))
    h, w = (
        pick(max(1, d * (k - 1) + 1 - 2 * p), 9)
        for k, p, d in zip(kernel, padding, dilation, strict=True)
    )
    return n, groups, cg, og, h, w, kernel, stride, padding, dilation


@few
@given(shapes(), st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_any_shape(shape: tuple, kind: str, seed: int, threads: int, biased: bool) -> None:
    check(shape, kind, seed, (threads,), biased)


@pytest.mark.parametrize(
    ("groups", "size", "kernel", "stride", "padding"),
    [
        (8, (70, 50), (3, 3), (1, 1), (1, 1)),
        (9, (90, 61), (5, 3), (2, 2), (2, 1)),
        (8, (1, 5000), (1, 4), (1, 1), (0, 3)),
        (8, (3, 4100), (3, 3), (1, 2), (1, 1)),
    ],
)
def test_planes_of_several_bands(
    groups: int, size: tuple, kernel: tuple, stride: tuple, padding: tuple
) -> None:
    shape = (1, groups, 1, 1, *size, kernel, stride, padding, (1, 1))
    check(shape, "special data", 1, (1, 2), biased=False)
