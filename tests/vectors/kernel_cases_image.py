"""The calls of the golden vectors: batch normalisation and max pooling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_cases import Call
from reference.data import Gen
from reference.floats import F32

_TRAINING = "aten._native_batch_norm_legit_functional"
_BY_RUNNING = "aten._native_batch_norm_legit_no_training"
_BACKWARD = "aten.native_batch_norm_backward"
_SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 4, 2, 5), (4, 3), (2, 5, 7), (9, 2, 6, 6), (1, 2, 1, 1), (70, 3, 4, 4), (2, 1, 33, 17),
    (1, 3, 2, 2, 2), (0, 3, 2, 2), (300, 2), (2, 0, 3, 3), (1, 17, 1, 3),
)  # fmt: skip


def _batch_norm(g: Gen) -> Iterator[Call]:
    for number, shape in enumerate(_SHAPES):
        channels = shape[1]
        for w, b in ((1, 1), (1, 0), (0, 1), (0, 0)) if number < 3 else ((1, 1),):
            make = g.mixed if (number, w, b) in ((0, 1, 1), (2, 0, 0)) else g.floats
            x, grad = make(*shape), make(*shape)
            weight = g.floats(channels) if w else None
            bias = g.floats(channels) if b else None
            running = [g.floats(channels), g.span(0.1, 2, channels)]
            attrs: dict[str, Any] = {"momentum": 0.1, "eps": 1e-5}
            yield _TRAINING, attrs, [x, weight, bias, *running]
            yield _BY_RUNNING, {"eps": 1e-5}, [x, weight, bias, *running]
            mask = (True, True, True) if w else ((True, False, False) if b else (False, True, True))
            back: dict[str, Any] = {"train": True, "eps": 1e-5, "output_mask": mask}
            statistics = [g.floats(channels), g.span(0.1, 3, channels)]
            yield _BACKWARD, back, [grad, x, weight, None, None, *statistics]
            yield _BACKWARD, {**back, "train": False}, [grad, x, weight, *running, None, None]
    x = g.floats(3, 4, 5)
    yield _TRAINING, {"momentum": 1.0, "eps": 0.0}, [x, None, None, None, None]
    yield _TRAINING, {"momentum": 0.0, "eps": 1e-3}, [x * F32(1e20), x[0, :, 0], None]
    yield _TRAINING, {"momentum": 0.3, "eps": 0.0}, [np.ones((2, 3), F32), None, None]
    only = {"train": True, "eps": 0.0, "output_mask": (True, False, True)}
    yield _BACKWARD, only, [x, x[::-1], None, None, None, x[0, :, 0], x[1, :, 0]]


def _pool(g: Gen) -> Iterator[Call]:
    cases: tuple[tuple[tuple[int, ...], Any, Any, Any, Any, bool], ...] = (
        ((2, 3, 8, 8), (3, 3), (2, 2), (1, 1), (1, 1), False),
        ((1, 2, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), True),
        ((3, 9, 6), (3, 2), (1, 3), (1, 1), (2, 1), False),
        ((2, 5, 5), (5, 5), (5, 5), (0, 0), (1, 1), False),
        ((1, 1, 6, 40), (2, 3), (3, 2), (1, 0), (1, 3), True),
        ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0), (1, 1), False),
        ((2, 18, 20), (17, 16), (1, 2), (8, 8), (1, 1), False),
    )
    for shape, kernel, stride, padding, dilation, ceil_mode in cases:
        attrs = {
            "kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation,
            "ceil_mode": ceil_mode,
        }  # fmt: skip
        out = tuple(
            (math.ceil if ceil_mode else math.floor)((n + 2 * p - d * (k - 1) - 1) / s) + 1
            for n, k, s, p, d in zip(shape[-2:], kernel, stride, padding, dilation, strict=True)
        )
        # ceil_mode's last output is left out where it would begin beyond the axis.
        out = tuple(
            o - 1 if ceil_mode and (o - 1) * s >= n + p else o
            for o, n, s, p in zip(out, shape[-2:], stride, padding, strict=True)
        )
        size = math.prod(shape[-2:])
        for make in (g.floats, g.mixed):
            yield "aten.max_pool2d_with_indices", attrs, [make(*shape)]
            operands = [make(*shape[:-2], *out), g.floats(*shape)]
            index = g.ints(0, size, *shape[:-2], *out)
            yield "aten.max_pool2d_with_indices_backward", attrs, [*operands, index]
    ties = np.array([[0.0, -0.0, 2, 2], [-0.0, 0.0, 2, np.nan], [-np.inf] * 4, [1, 1, 1, 1]], F32)
    window = {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False}
    yield "aten.max_pool2d_with_indices", {"kernel_size": (2, 2), **window}, [ties[None]]
    yield "aten.max_pool2d_with_indices", {"kernel_size": (1, 2), **window}, [ties[None]]


def image() -> Iterator[Call]:
    """Batch normalisation, then pooling."""
    g = Gen("image")
    yield from _batch_norm(g)
    yield from _pool(g)
