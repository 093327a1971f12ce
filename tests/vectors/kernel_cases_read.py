"""Calls that tell one reading of a clause from another.

Each follows the calls of its group that were there before, so that stored bytes only grow. A
comment names the misreading that gives other bits; test_misreadings.py checks that it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_cases import Call
from reference.data import SPECIAL, Gen
from reference.floats import F32
from reference.rand import words

INF = F32(np.inf)


def dot() -> Iterator[Call]:
    g = Gen("dot, read")
    # 2.1: p begins as +0, not as the first product, which is -0 here.
    yield "aten.mm", {}, [np.full((1, 1), F32(-0.0)), np.ones((1, 1), F32)]
    yield "aten.mm", {}, [np.full((3, 130), F32(-0.0)), np.ones((130, 2), F32)]
    # 2.5, 1.9: 1e-60 is not 0 although RN32 of it is: C is read, and 0·inf is NaN; -0.0 is 0.
    c = np.array([[1, -1, INF], [np.nan, -INF, 0.0]], F32)
    for beta in (1e-60, -1e-60, -0.0):
        attrs = {"alpha": 1.0, "beta": beta}
        yield "aten.addmm", attrs, [c, g.floats(2, 4), g.floats(4, 3)]
    yield "aten.addmm", {"alpha": 1e-60, "beta": 1.0}, [c, g.mixed(2, 4), g.floats(4, 3)]
    # 2.6: one number stands for both axes.
    attrs = {
        "stride": (2,), "padding": (1,), "dilation": (1,), "transposed": False,
        "output_padding": (0,), "groups": 1,
    }  # fmt: skip
    x, w = g.floats(1, 2, 5, 6), g.floats(3, 2, 3, 3)
    yield "aten.convolution", attrs, [x, w]
    mask = {"output_mask": (True, True, True)}
    yield "aten.convolution_backward", {**attrs, **mask}, [g.floats(1, 3, 3, 3), x, w]


def reduction() -> Iterator[Call]:
    g = Gen("reduction, read")
    # 3.3: an empty list of axes reduces all of them; a negative one counts from the last.
    x = g.floats(3, 4, 5)
    for dim in ((), (-1,), (-3, -1), (2, 0)):
        for keepdim in (False, True):
            attrs = {"dim": dim, "keepdim": keepdim}
            for op in ("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax", "aten.amin"):
                yield op, attrs, [x]
            yield "aten.var_mean.correction", {**attrs, "correction": 1.0}, [x]
    for keepdim in (False, True):
        for axis in (-1, -2):
            yield "aten.argmax", {"dim": axis, "keepdim": keepdim}, [g.floats(3, 4)]
    # A 0-d tensor has the one axis 0.
    for dim in ((), (0,), (-1,)):
        attrs = {"dim": dim, "keepdim": True}
        for op in ("aten.sum.dim_IntList", "aten.mean.dim", "aten.amax"):
            yield op, attrs, [g.floats()]
    yield "aten.argmax", {"dim": 0, "keepdim": False}, [g.floats()]
    # 3.4: no element of an i64 or bool sum is rounded; it wraps.
    wide = {"dim": (), "keepdim": False}
    yield "aten.sum.dim_IntList", wide, [np.full((2, 2), 2**62 + 1, np.int64)]
    yield "aten.sum.dim_IntList", {"dim": (-1,), "keepdim": True}, [g.bools(3, 4)]


def elementary() -> Iterator[Call]:
    # 10.6, 1.9: the binary64 exponent is compared, so these are pow(x, 3), pow(x, 0.5), ...
    g = Gen("pow, read")
    base = np.concatenate([SPECIAL, g.span(0, 4, 40), g.floats(20)])
    for exponent in (3.0 + 2.0**-40, 0.5 + 2.0**-40, -0.5 - 2.0**-40, 2.0 - 2.0**-40):
        yield "aten.pow.Tensor_Scalar", {"exponent": exponent}, [base]


def elementwise() -> Iterator[Call]:
    g = Gen("elementwise, read")
    a, b = g.any_ints(9), g.any_ints(9)
    # 10.1, 10.8: a whole number for an i64 tensor is that integer, never rounded to binary32.
    for value in (2.0**24 + 1, -(2.0**63), 2.0**62 + 2.0**10, -0.0):
        for name in ("add", "sub"):
            yield f"aten.{name}.Scalar", {"other": value, "alpha": 1.0}, [a]
            yield f"aten.{name}.Scalar", {"other": 3.0, "alpha": value}, [a]
            yield f"aten.{name}.Tensor", {"alpha": value}, [a, b]
        yield "aten.mul.Scalar", {"other": value}, [a]
        yield "aten.lt.Scalar", {"other": value}, [np.append(a, np.int64([2**24, 2**24 + 1]))]
    for bounds in ({"min": -(2.0**63), "max": 2.0**24 + 1}, {"min": 2.0**53 + 2}):
        yield "aten.clamp", bounds, [np.append(a, np.int64([2**24 + 2, 2**53]))]
    # 10.5: comparisons of the small dtypes; false is less than true.
    small: tuple[tuple[np.ndarray, np.ndarray, float], ...] = (
        (g.ints(0, 256, 7).astype(np.uint8), g.ints(0, 256, 3, 1).astype(np.uint8), 255.0),
        (g.any_ints(7).astype(np.int32), g.any_ints(3, 1).astype(np.int32), -(2.0**31)),
        (g.bools(7), g.bools(3, 1), 1.0),
        (g.any_ints(7), g.any_ints(3, 1), 2.0**62),
    )
    for left, right, value in small:
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            yield f"aten.{name}.Tensor", {}, [left, right]
            yield f"aten.{name}.Scalar", {"other": value}, [left]
            yield f"aten.{name}.Scalar", {"other": 0.0}, [left]


def composite() -> Iterator[Call]:
    g = Gen("composite, read")
    for dim in (-1, -2, -3):
        x = g.floats(2, 3, 4)
        for name in ("_softmax", "_log_softmax"):
            yield f"aten.{name}", {"dim": dim}, [x]
        for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
            yield f"aten.{name}", {"dim": dim}, [g.floats(2, 3, 4), x]


def image() -> Iterator[Call]:
    g = Gen("image, read")
    # 6.15: with ceil_mode the quotient is rounded up, and there is one output less where the last
    # would begin at L + p or after it. Of these axes, with p = 1, k = 2, s = 3: L = 4 loses one
    # (6 > 5), L = 5 loses one (6 = L + p, below L + 2p), L = 6 keeps it (6 = L, below L + p).
    for height, width in ((4, 5), (6, 7)):
        for mode in (True, False):
            attrs: dict[str, Any] = {
                "kernel_size": (2, 2), "stride": (3, 3), "padding": (1, 1), "dilation": (1, 1),
                "ceil_mode": mode,
            }  # fmt: skip
            yield "aten.max_pool2d_with_indices", attrs, [g.floats(2, height, width)]
    # One number stands for both axes.
    attrs = {"kernel_size": (3,), "stride": (2,), "padding": (1,), "dilation": (1,)}
    attrs["ceil_mode"] = True
    x = g.floats(1, 2, 5, 6)
    yield "aten.max_pool2d_with_indices", attrs, [x]
    index = g.ints(0, 30, 1, 2, 3, 4)
    yield "aten.max_pool2d_with_indices_backward", attrs, [g.floats(1, 2, 3, 4), x, index]


def random() -> Iterator[Call]:
    # 8.4: T is p·2^32 rounded to nearest, ties to even, and a word equal to T is kept. Element 0's
    # word is w: p = w/2^32 keeps it; w + 1/4 does (T is not rounded up); w + 3/4 does not (nor
    # truncated); w + 1/2 does exactly where w is even (nor half rounded up, nor half down).
    for seed in (1, 2, 3, 4, 5, 6):
        key = np.array([seed, 9], np.int64)
        (w,) = words(key, 0, 1)
        for part in (0.0, 0.25, 0.5, 0.75):
            p = (w + part) / 2.0**32
            yield "tallystick.dropout_mask", {"draw": 0, "p": p, "shape": (5,)}, [key]


def scatter() -> Iterator[Call]:
    g = Gen("scatter, read")
    source, index = g.floats(4, 6), g.ints(0, 3, 6)
    yield "aten.index_add", {"dim": -1}, [g.floats(4, 3), index, source]
    yield "aten.index_add", {"dim": -2}, [g.floats(3, 4), index, g.floats(6, 4)]


def move() -> Iterator[Call]:
    g = Gen("move, read")
    x = g.any_ints(4, 6)
    yield "aten.slice", {"dim": -1, "start": 2, "end": 5, "step": 1}, [x]
    yield "aten.slice", {"dim": 0, "start": 4, "end": 4, "step": 3}, [x]  # empty
    yield "aten.slice", {"dim": 1, "start": 0, "end": 6, "step": 9}, [x]  # one element
    span = {"dim": -2, "start": 0, "end": 4, "step": 3}
    yield "aten.slice_scatter", span, [x, g.any_ints(2, 6)]
    yield "aten.cat", {"dim": -2}, [x, g.any_ints(1, 6)]
    # 9: beside dim, gather's index may be shorter than x; a 0-d tensor has the one axis 0.
    yield "aten.gather", {"dim": -1}, [x, g.ints(0, 6, 2, 9)]
    yield "aten.gather", {"dim": 0}, [g.floats(), np.zeros((), np.int64)]
    yield "aten.index_select", {"dim": -2}, [x, g.ints(0, 4, 5)]
    yield "aten.expand", {"size": (2, 0, 3)}, [g.floats(1, 1)]
    # 9.2: `value` by the dtype: binary64 as it is, whole numbers for integers, 0 or 1 for bool.
    values: tuple[tuple[np.ndarray, float], ...] = (
        (g.floats(5).astype(np.float64), 0.1),
        (g.any_ints(5).astype(np.int32), -(2.0**31)),
        (g.ints(0, 256, 5).astype(np.uint8), 255.0),
        (g.bools(5), 0.0),
        (g.any_ints(5), 2.0**24 + 1),
    )
    for tensor, value in values:
        yield "aten.masked_fill", {"value": value}, [tensor, g.bools(5)]
    for dtype, value in (("i32", -(2.0**31)), ("u8", 255.0), ("bool", 0.0), ("f64", float("nan"))):
        yield "aten.full", {"size": (2,), "value": value, "dtype": dtype}, []


def _f64(value: float) -> np.ndarray:
    return np.asarray(value, np.float64)


def optimizer() -> Iterator[Call]:
    g = Gen("optimizer, read")
    # 11.2: 1 - lr·weight_decay is 0.91 in binary64, then RN32; in binary32 it is one step below.
    adam = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.3}
    state = [g.floats(9), g.floats(9), g.floats(9, scale=0.1), np.abs(g.floats(9))]
    tail = [_f64(0.3), _f64(0.9**2), _f64(0.999**2)]
    for name in ("adamw_step", "adam_step"):
        yield f"tallystick.{name}", adam, [*state, *tail]
    # 11.4: 1 - 0.9 is taken in binary64; with RN32(0.9) it is 0x3dccccd0, not 0x3dcccccd.
    for dampening in (0.9, 0.7):
        sgd: dict[str, Any] = {
            "momentum": 0.9, "dampening": dampening, "weight_decay": 0.0, "nesterov": True,
        }  # fmt: skip
        yield "tallystick.sgd_step", sgd, [*state[:3], _f64(0.01)]
    # 1.9: weight_decay and momentum are compared as binary64: 1e-60 is not 0, and RN32 of it is.
    # So g = -0 becomes fma(+0, p, -0) = +0 for p > 0, and an infinite p gives NaN.
    p = np.array([1.0, -1.0, INF, 0.5], F32)
    grad = np.array([-0.0, -0.0, 1.0, 2.0], F32)
    still = [np.full(4, F32(-0.0)), np.zeros(4, F32)]
    faint = {**adam, "weight_decay": 1e-60}
    yield "tallystick.adam_step", faint, [p, grad, *still, *tail]
    for momentum, dampening in ((0.0, 0.0), (1e-60, 0.0), (0.9, 0.0)):
        buf = still[0] if momentum else None
        sgd = {"momentum": momentum, "dampening": dampening, "weight_decay": 1e-60}
        yield "tallystick.sgd_step", {**sgd, "nesterov": False}, [p, grad, buf, _f64(0.01)]
