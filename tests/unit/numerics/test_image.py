"""Batch normalisation and max pooling against the reference, bit for bit (NUMERICS 6.12 - 6.16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from composite_reference import check_inplace
from hypothesis import assume, given
from hypothesis import strategies as st
from property_tools import check, drawn, few, kinds, layouts, paths, seeds
from reference.data import Gen
from reference.image import _outputs

from tallystick.errors import UsageError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType

TRAINING = "aten._native_batch_norm_legit_functional"
BACKWARD = "aten.native_batch_norm_backward"
BY_RUNNING = "aten._native_batch_norm_legit_no_training"
POOL = "aten.max_pool2d_with_indices"
POOL_BACKWARD = f"{POOL}_backward"

images = st.sampled_from(
    (
        (2, 3),
        (3, 2, 5),
        (5, 1, 3, 3),
        (2, 4, 8, 9),
        (1, 3, 16, 16),
        (9, 2, 6, 6),
        (0, 2, 3),
        (33, 1),
    )
)


@few
@given(seeds, images, kinds, layouts, st.booleans(), st.booleans(), st.booleans(),
       st.sampled_from((1e-5, 0.0)), st.sampled_from((0.1, 0.0, 1.0)), paths)  # fmt: skip
def test_batch_norm(
    seed: int, shape: tuple[int, ...], kind: str, layout: str, weight: bool, bias: bool,
    running: bool, eps: float, momentum: float, path: tuple[str, int],
) -> None:  # fmt: skip
    x, g = (drawn(seed + i, kind, shape, layout) for i in range(2))
    w, b, mean, spread, m, v = (drawn(seed + 2 + i, kind, shape[1:2], layout) for i in range(6))
    given_w, given_b = w if weight else None, b if bias else None
    statistics = [m, np.abs(v)] if running else [None, None]
    attrs: dict[str, Any] = {"momentum": momentum, "eps": eps}
    check(TRAINING, attrs, [x, given_w, given_b, *statistics], path)
    check(BY_RUNNING, {"eps": eps}, [x, given_w, given_b, m, np.abs(v)], path)
    mask = (bool(seed & 1), bool(seed & 2), True)
    for train in (True, False):
        back = {"train": train, "eps": eps, "output_mask": mask}
        pair = [None, None, mean, spread] if train else [mean, np.abs(spread), None, None]
        check(BACKWARD, back, [g, x, given_w, *pair], path)


def test_channels_of_several_blocks_and_threads() -> None:
    g = Gen("several blocks")
    x, grad = g.floats(5, 6, 13, 29), g.wide(5, 6, 13, 29, low=-9, high=9)
    w, b, m, v = g.floats(6), g.floats(6), g.floats(6), g.span(0.1, 2, 6)
    check(TRAINING, {"momentum": 0.1, "eps": 1e-5}, [x, w, b, m, v])
    back = {"train": True, "eps": 0.0, "output_mask": (True, True, True)}
    check(BACKWARD, back, [grad, x, w, None, None, m, v])


def test_one_element_per_channel_has_no_unbiased_variance() -> None:
    x = np.array([[1.0, 2.0]], np.float32)
    ones = np.ones(2, np.float32)
    y, mean, rstd, new_mean, new_var = evaluate(TRAINING, x, None, None, ones, ones, eps=0.25)
    assert not y.any() and (mean == x[0]).all() and (rstd == 2).all()
    assert (new_var.view(np.uint32) == 0x7FC00000).all() and np.isfinite(new_mean).all()


def test_outputs_may_share_storage() -> None:
    g = Gen("shared storage")
    x, grad, w = g.floats(3, 4, 5, 7), g.floats(3, 4, 5, 7), g.floats(4)
    m, v = g.floats(4), g.span(0.5, 2, 4)
    check_inplace(TRAINING, x, w, m, m, v, momentum=0.1, eps=1e-5)
    check_inplace(BY_RUNNING, x, w, m, m, v, eps=1e-5)
    mask = (True, True, True)
    check_inplace(BACKWARD, grad, x, w, None, None, m, v, train=True, eps=0.0, output_mask=mask)
    check_inplace(BACKWARD, grad, x, w, m, v, None, None, train=False, eps=0.5, output_mask=mask)


_axis = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))
_planes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 35))


@few
@given(seeds, _planes, kinds, layouts, st.tuples(_axis, _axis), st.booleans(), paths)
def test_max_pool(
    seed: int, shape: tuple[int, ...], kind: str, layout: str, axes: Any, ceil_mode: bool,
    path: tuple[str, int],
) -> None:  # fmt: skip
    sizes = [_outputs(n, *axis, ceil_mode) for n, axis in zip(shape[1:], axes, strict=True)]
    named = zip(
        ("kernel_size", "stride", "padding", "dilation"), zip(*axes, strict=True), strict=True
    )
    attrs: dict[str, Any] = {**dict(named), "ceil_mode": ceil_mode}
    tapped = all(
        any(0 <= j * s - p + i * d < n for i in range(k))
        for n, (k, s, p, d), count in zip(shape[1:], axes, sizes, strict=True)
        for j in range(count)
    )
    x = drawn(seed, kind, shape, layout)
    if not tapped or min(sizes) < 1:
        with pytest.raises(UsageError, match="no element"):
            evaluate(POOL, x, **attrs)
        assume(False)
    check(POOL, attrs, [x], path)
    grad = drawn(seed + 1, kind, (shape[0], *sizes), layout)
    index = Gen(f"index {seed}").ints(0, shape[1] * shape[2], shape[0], *sizes)
    check(POOL_BACKWARD, attrs, [grad, x, index], path)


def test_pooling_overlapping_windows_adds_in_source_order() -> None:
    """NUMERICS 4.1: three gradients for one element; another order gives another sum."""
    x = np.zeros((1, 1, 5), np.float32)
    x[0, 0, 2] = 1
    window = {"kernel_size": (1, 3), "stride": (1, 1)}
    _, index = evaluate(POOL, x, **window)
    assert index.tolist() == [[[2, 2, 2]]]
    grad = np.array([[[1e8, 1.0, -1e8]]], np.float32)
    back = evaluate(POOL_BACKWARD, grad, x, index, **window)
    assert back[0, 0, 2] == np.float32(np.float32(1e8) + np.float32(1)) - np.float32(1e8) == 0


F, G, C = TensorType("f32", (2, 3, 4)), TensorType("f32", (2, 3, 5)), TensorType("f32", (3,))
I64, SHORT = TensorType("i64", (2, 3, 4)), TensorType("f32", (2,))
NORM: dict[str, Any] = {"momentum": 0.1, "eps": 1e-5}
BACK: dict[str, Any] = {"train": True, "eps": 0.0, "output_mask": (True, True, True)}
WINDOW: dict[str, Any] = {
    "kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1),
    "ceil_mode": False,
}  # fmt: skip
BAD: list[tuple[str, dict[str, Any], tuple[TensorType | None, ...]]] = [
    (TRAINING, NORM, (C, C, C)),
    (TRAINING, NORM, (I64,)),
    (TRAINING, NORM, (F, SHORT)),
    (TRAINING, NORM, (F, C, C, C)),
    (TRAINING, NORM, (F, C, C, C, C, C)),
    (BY_RUNNING, {"eps": 0.0}, (F, C, C)),
    (BY_RUNNING, {"eps": 0.0}, (F, C, C, C, SHORT)),
    (BACKWARD, BACK, (G, F, C, None, None, C, C)),
    (BACKWARD, BACK, (F, F, C, C, C, C, C)),
    (BACKWARD, BACK, (F, F, C, C, C)),
    (BACKWARD, {**BACK, "train": False}, (F, F, C, None, None, C, C)),
    (BACKWARD, {**BACK, "output_mask": (True, True)}, (F, F, C, None, None, C, C)),
    (POOL, WINDOW, (C,)),
    (POOL, WINDOW, (I64,)),
    (POOL, {**WINDOW, "kernel_size": (9, 9)}, (F,)),
    (POOL, {**WINDOW, "stride": (0, 1)}, (F,)),
    (POOL, {**WINDOW, "padding": (1 << 20, 1)}, (F,)),
    (POOL, {**WINDOW, "dilation": (1, 1, 1)}, (F,)),
    (POOL_BACKWARD, WINDOW, (F, F, I64)),
    (POOL_BACKWARD, WINDOW, (TensorType("f32", (2, 1, 2)), F, TensorType("f32", (2, 1, 2)))),
]


@pytest.mark.parametrize(("op", "attrs", "types"), BAD)
def test_misuse_is_refused_by_name(
    op: str, attrs: dict[str, Any], types: tuple[TensorType | None, ...]
) -> None:
    with pytest.raises(UsageError, match=op.replace(".", r"\.")):
        lookup(op).infer(attrs, types)


def test_an_index_outside_is_refused() -> None:
    x, grad = np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    for bad in (-1, 8):
        index = np.full((1, 1, 2), bad, np.int64)
        with pytest.raises(UsageError, match="outside"):
            evaluate(POOL_BACKWARD, grad, x, index, kernel_size=(2, 2), stride=(2, 2))
    with pytest.raises(UsageError, match="stride"):
        evaluate(POOL, x, kernel_size=(2, 2))
