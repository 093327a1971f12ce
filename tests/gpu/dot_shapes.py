"""Calls of the dot class with sizes around the edges of tiles, slices and chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

# Around a slice (8, 16), a chunk (128) and several.
TERMS = (0, 1, 7, 8, 17, 127, 128, 129, 257, 300)
SIDES = (1, 3, 4, 31, 33, 64, 65, 127, 128, 130)

Call = tuple[str, dict[str, Any], list[np.ndarray | None]]


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Values of many sizes, so that another order of additions gives other bits; with zeros of both
    signs and subnormals. With the seldom infinity, products are NaN."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 12, shape))
    x = np.where(rng.random(shape) < 0.05, rng.choice([0.0, -0.0, 1e-42, -1e-40], shape), x)
    return np.asarray(np.where(rng.random(shape) < 2e-4, np.inf, x), np.float32)


def product(rng: np.random.Generator) -> Call:
    """A random matrix product."""
    m, n = (int(x) for x in rng.choice(SIDES, 2))
    k = int(rng.choice(TERMS))
    kind = rng.integers(3)
    if kind == 0:
        return "aten.mm", {}, [numbers(rng, m, k), numbers(rng, k, n)]
    if kind == 1:
        batch = int(rng.integers(1, 4))
        return "aten.bmm", {}, [numbers(rng, batch, m, k), numbers(rng, batch, k, n)]
    shape = [(m, n), (n,), (m, 1), (), (1, n)][rng.integers(5)]
    attrs = {"alpha": float(rng.choice([1, 0.5])), "beta": float(rng.choice([0, 1, -3]))}
    return "aten.addmm", attrs, [numbers(rng, *shape), numbers(rng, m, k), numbers(rng, k, n)]


def convolution(rng: np.random.Generator) -> tuple[Call, Call]:
    """A random convolution and its gradients."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return int(rng.integers(low, high)), int(rng.integers(low, high))

    groups = int(rng.choice([1, 1, 2, 3]))
    cg, og = (int(x) for x in rng.choice([1, 2, 5, 9, 20], 2))
    kernel, stride, padding, dilation = pair(1, 4), pair(1, 4), pair(0, 3), pair(1, 3)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    sides = [
        int(rng.integers(max(1, r - 2 * p), r + 9)) for r, p in zip(reach, padding, strict=True)
    ]
    images = int(rng.integers(0, 4))
    x = numbers(rng, images, groups * cg, *sides)
    w = numbers(rng, groups * og, cg, *kernel)
    bias = numbers(rng, groups * og) if rng.integers(2) else None
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    out = [
        (n + 2 * p - r) // s + 1 for n, p, r, s in zip(sides, padding, reach, stride, strict=True)
    ]
    grad = numbers(rng, images, groups * og, *out)
    return ("aten.convolution", attrs, [x, w, bias]), (
        "aten.convolution_backward",
        {**attrs, "output_mask": (True, True, True)},
        [grad, x, w],
    )
