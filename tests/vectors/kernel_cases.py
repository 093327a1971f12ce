"""The calls of the golden vectors: dot class, reductions, elementwise (NUMERICS 2, 3, 5, 10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from reference.data import SPECIAL, Gen
from reference.exact import ELEMENTARY
from reference.floats import F32

Call = tuple[str, dict[str, Any], list[Any]]
EMPTY = np.zeros(0, F32)


def dot() -> Iterator[Call]:
    g = Gen("dot")
    for k in (0, 1, 2, 255, 256, 257, 513):
        yield "aten.mm", {}, [g.floats(5, k), g.floats(k, 19)]
    yield "aten.mm", {}, [g.floats(61, 300), g.floats(300, 70)]
    yield "aten.mm", {}, [g.floats(1, 700), g.floats(700, 33)]
    yield "aten.mm", {}, [g.floats(37, 259), g.floats(259, 1)]
    yield "aten.mm", {}, [np.zeros((0, 3), F32), g.floats(3, 4)]
    yield "aten.mm", {}, [g.floats(3, 4), np.zeros((4, 0), F32)]
    yield "aten.mm", {}, [g.floats(1, 1), g.floats(1, 1)]
    yield "aten.mm", {}, [np.full((1, 1), F32(-1e-30)), np.full((1, 1), F32(1e-30))]  # −0
    # chunks whose results are −0: the first initialises, so the total is −0
    yield "aten.mm", {}, [np.full((1, 512), F32(-1e-30)), np.full((512, 1), F32(1e-30))]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        yield "aten.mm", {}, [make(9, 261), make(261, 18)]
    yield "aten.mm", {}, [g.tiny(4, 300), g.wide(300, 17, low=80, high=127)]
    inf_tail = g.floats(7, 261)
    inf_tail[:, 260] = np.inf  # K tails must not meet padding
    yield "aten.mm", {}, [inf_tail, g.floats(261, 21)]
    yield "aten.bmm", {}, [g.floats(3, 5, 257), g.floats(3, 257, 7)]
    yield "aten.bmm", {}, [g.mixed(2, 17, 33), g.mixed(2, 33, 18)]
    yield "aten.bmm", {}, [np.zeros((0, 2, 3), F32), np.zeros((0, 3, 4), F32)]
    yield "aten.bmm", {}, [g.floats(2, 3, 0), g.floats(2, 0, 4)]
    for alpha, beta in ((1.0, 1.0), (0.1, 1.0), (1.0, 0.0), (2.5, -0.3), (0.0, 1.0), (-1.0, 0.5)):
        attrs = {"alpha": alpha, "beta": beta}
        yield "aten.addmm", attrs, [g.floats(18), g.floats(7, 258), g.floats(258, 18)]
    one = {"alpha": 1.0, "beta": 1.0}
    yield "aten.addmm", one, [g.mixed(7, 18), g.mixed(7, 30), g.mixed(30, 18)]
    yield "aten.addmm", one, [g.floats(7, 1), g.floats(7, 30), g.floats(30, 18)]
    yield "aten.addmm", one, [g.floats(), g.floats(2, 0), g.floats(0, 3)]
    nan = np.full((3, 3), F32(np.nan))
    yield "aten.addmm", {"alpha": 1.0, "beta": 0.0}, [nan, g.floats(3, 2), g.floats(2, 3)]
    yield from _convolutions(g)


def _convolutions(g: Gen) -> Iterator[Call]:
    # n, C, H, W, O, kh, kw, stride, padding, dilation, groups
    shapes = [
        (1, 1, 1, 1, 1, 1, 1, (1, 1), (0, 0), (1, 1), 1),
        (2, 3, 7, 6, 5, 3, 3, (1, 1), (1, 1), (1, 1), 1),
        (2, 4, 9, 8, 6, 3, 2, (2, 3), (2, 1), (1, 2), 2),
        (1, 29, 5, 5, 4, 3, 3, (2, 2), (1, 1), (1, 1), 1),
        (2, 5, 4, 6, 3, 1, 1, (1, 1), (0, 0), (1, 1), 1),
        (1, 4, 6, 6, 4, 3, 3, (1, 1), (1, 1), (1, 1), 4),
        (0, 2, 4, 4, 3, 3, 3, (1, 1), (1, 1), (1, 1), 1),
        (3, 2, 11, 10, 2, 3, 3, (1, 1), (0, 0), (1, 1), 1),
        (1, 2, 7, 7, 2, 1, 1, (2, 2), (0, 0), (1, 1), 1),
    ]
    for i, (n, c, h, w, o, kh, kw, stride, padding, dilation, groups) in enumerate(shapes):
        make = g.mixed if i == 2 else g.floats
        attrs: dict[str, Any] = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "transposed": False,
            "output_padding": (0, 0),
            "groups": groups,
        }
        x, weight = make(n, c, h, w), make(o, c // groups, kh, kw)
        bias = g.floats(o) if i % 2 else None
        yield "aten.convolution", attrs, [x, weight, bias]
        oh = (h + 2 * padding[0] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
        ow = (w + 2 * padding[1] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
        grad = make(n, o, oh, ow)
        for mask in ((True, True, True),) if i else ((True, False, False), (False, False, True)):
            yield "aten.convolution_backward", {**attrs, "output_mask": mask}, [grad, x, weight]
    # an infinite weight meets a padding tap: 0·inf is NaN (2.6)
    weight = g.floats(2, 1, 3, 3)
    weight[0, 0, 0, 0] = np.inf
    attrs = {
        "stride": (1, 1),
        "padding": (1, 1),
        "dilation": (1, 1),
        "transposed": False,
        "output_padding": (0, 0),
        "groups": 1,
    }
    x = g.floats(1, 1, 4, 4)
    yield "aten.convolution", attrs, [x, weight, None]
    mask = {"output_mask": (True, True, True)}
    yield "aten.convolution_backward", {**attrs, **mask}, [g.floats(1, 2, 4, 4), x, weight]


def scan() -> Iterator[Call]:
    """NUMERICS 3.8: lengths around a stretch of an opening, every axis, what has no elements."""
    g = Gen("scan")
    for n in (0, 1, 2, 3, 255, 256, 257, 513, 2049):
        yield "aten.cumsum", {"dim": 0}, [g.floats(n)]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        yield "aten.cumsum", {"dim": 0}, [make(77)]
    yield "aten.cumsum", {"dim": 0}, [np.full(40, F32(-0.0))]
    yield "aten.cumsum", {"dim": 0}, [np.array([-0.0, -0.0, 0.0, -0.0], F32)]
    # Only left to right is the small term lost in every sum but the first.
    yield "aten.cumsum", {"dim": 0}, [np.array([1, 2.0**24, 1, 1, -(2.0**24)], F32)]
    yield "aten.cumsum", {"dim": -1}, [g.floats()]
    for shape, dim in (((5, 6, 7), 0), ((5, 6, 7), 1), ((5, 6, 7), -1), ((33, 70), 0),
                       ((3, 530), 1), ((4, 0, 3), 1), ((0, 4), 1), ((3, 2, 1), -1)):  # fmt: skip
        yield "aten.cumsum", {"dim": dim}, [g.floats(*shape)]
    yield "aten.cumsum", {"dim": 1}, [g.mixed(4, 30, 3)]


def reduction() -> Iterator[Call]:
    g = Gen("reduction")
    for n in (0, 1, 2, 31, 32, 33, 255, 256, 257, 513, 2049, 3333, 65537):
        yield "aten.sum", {}, [g.floats(n)]
        if n < 600:
            yield "aten.mean", {}, [g.floats(n)]
            yield "tallystick.sum_squares", {}, [g.floats(n)]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        for op in ("aten.sum", "aten.mean", "tallystick.sum_squares"):
            yield op, {}, [make(77)]
    yield "aten.sum", {}, [np.full(40, F32(-0.0))]
    yield "aten.sum", {}, [g.floats()]
    yield "aten.sum", {}, [g.any_ints(37)]
    yield "aten.sum", {}, [g.bools(5, 7)]
    shapes = (((5, 6, 7), (1,)), ((5, 6, 7), (0, 2)), ((5, 6, 7), (2,)), ((5, 6, 7), (0, 1, 2)),
              ((33, 70), (0,)), ((258, 5), (0,)), ((3, 530), (1,)), ((4, 0, 3), (1,)),
              ((0, 4), (1,)), ((3, 2, 1), (-1,)))  # fmt: skip
    for i, (shape, dim) in enumerate(shapes):
        attrs = {"dim": dim, "keepdim": bool(i % 2)}
        make = g.mixed if i == 0 else g.floats
        yield "aten.sum.dim_IntList", attrs, [make(*shape)]
        yield "aten.mean.dim", attrs, [make(*shape)]
        corrections = (1.0, 0.0, 2.5)
        var = {**attrs, "correction": corrections[i % 3]}
        yield "aten.var_mean.correction", var, [make(*shape)]
        if 0 in shape:
            continue
        for op in ("aten.amax", "aten.amin"):
            yield op, attrs, [g.mixed(*shape)]
            yield op, attrs, [g.floats(*shape)]
        if len(dim) == 1:
            one = {"dim": dim[0], "keepdim": attrs["keepdim"]}
            yield "aten.argmax", one, [g.mixed(*shape)]
            yield "aten.argmax", one, [g.floats(*shape)]
            yield "aten.argmax", one, [g.ints(0, 3, *shape).astype(F32)]
    var = {"dim": (0,), "keepdim": False, "correction": 1.0}
    yield "aten.var_mean.correction", var, [g.floats(1)]
    yield "aten.sum.dim_IntList", {"dim": (0,), "keepdim": False}, [g.any_ints(4, 5)]
    yield "aten.amax", {"dim": (0,), "keepdim": False}, [g.any_ints(4, 5)]
    zeros = np.array([-0.0, 0.0, -0.0], F32)
    for op in ("aten.max", "aten.min"):
        for x in (zeros, g.floats(1), g.floats(133), g.mixed(9), g.any_ints(9), SPECIAL[:25]):
            yield op, {}, [x]
    yield "aten.argmax", {"dim": 0, "keepdim": False}, [zeros]
    yield "aten.argmax", {"dim": 0, "keepdim": False}, [np.array([1, np.nan, 2, np.nan], F32)]
    yield "aten.argmax", {"dim": 0, "keepdim": True}, [g.any_ints(11)]


_RANGES = {"exp": (-104, 90), "exp2": (-151, 129), "expm1": (-20, 90), "tanh": (-11, 11),
           "erf": (-5, 5), "sigmoid": (-106, 20), "sin": (-100, 100), "cos": (-100, 100),
           "rsqrt": (0, 50), "log": (0, 8), "log2": (0, 8), "log1p": (-1, 4)}  # fmt: skip


def elementary() -> Iterator[Call]:
    for name in ELEMENTARY:
        g = Gen(name)
        low, high = _RANGES[name]
        parts = [SPECIAL, g.span(low, high, 90), g.floats(60), g.bits(70), g.tiny(14)]
        if name in ("rsqrt", "log", "log2"):
            parts.append(np.abs(g.bits(40)))
        yield f"aten.{name}", {}, [np.concatenate(parts)]
        for n in (0, 1, 7):
            yield f"aten.{name}", {}, [g.floats(n)]
        yield f"aten.{name}", {}, [g.floats(3, 5)]
    g = Gen("pow")
    base = np.concatenate([SPECIAL, g.span(0, 4, 40), g.floats(20), g.bits(30)])
    exponents = (1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 0.0, 1.5, -2.0, 4.0, 5.0, 0.1, -0.75, 1 / 3, 7.25,
                 float("inf"), float("-inf"), float("nan"), 1e-30, 127.0, 16777217.0)  # fmt: skip
    for exponent in exponents:
        yield "aten.pow.Tensor_Scalar", {"exponent": exponent}, [base]
    # exact cases and exact middles of 24-bit numbers
    exact = np.array([4, 9, 16, 2.25, 81, 4097, 16785409, 0.25, 6.25, 1.5, 65537], F32)
    for exponent in (0.25, 1.5, 2.5, 0.75, 4.0, 1.25):
        yield "aten.pow.Tensor_Scalar", {"exponent": exponent}, [exact]
    yield "aten.pow.Tensor_Scalar", {"exponent": 0.3}, [EMPTY]


def elementwise() -> Iterator[Call]:
    g = Gen("elementwise")
    many = np.concatenate([SPECIAL, g.floats(40), g.bits(54)])
    other = np.roll(np.concatenate([SPECIAL, g.floats(40), g.bits(54)]), 5)
    pairs = [
        (many, other),
        (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))),
        (g.floats(3, 1, 5), g.floats(4, 1)),
        (g.floats(6, 35), g.floats(35)),
        (g.floats(5, 17), g.floats()),
        (EMPTY, g.floats(1)),
        (g.floats(1), g.floats(1)),
    ]
    plain = ("maximum", "minimum", "mul.Tensor", "div.Tensor", "eq.Tensor", "ne.Tensor",
             "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor")  # fmt: skip
    for a, b in pairs:
        for name in plain:
            yield f"aten.{name}", {}, [a, b]
        for name in ("add.Tensor", "sub.Tensor"):
            for alpha in (1.0, 0.3):
                yield f"aten.{name}", {"alpha": alpha}, [a, b]
    whole = [g.any_ints(23), g.any_ints(23)]
    for name in (*plain[:3], *plain[4:]):
        yield f"aten.{name}", {}, whole
    for value in (2.0, 0.1, -0.0, 1e-45, float("inf"), float("nan"), 1e39):
        for name in ("mul", "div", "eq", "ne", "lt", "le", "gt", "ge"):
            yield f"aten.{name}.Scalar", {"other": value}, [many]
        for name in ("add", "sub"):
            yield f"aten.{name}.Scalar", {"other": value, "alpha": 1.0}, [many]
    for name in ("add", "sub"):
        yield f"aten.{name}.Scalar", {"other": 0.7, "alpha": 0.3}, [many]
        yield f"aten.{name}.Scalar", {"other": 5.0, "alpha": -2.0}, [whole[0]]
        yield f"aten.{name}.Tensor", {"alpha": 3.0}, whole
    yield "aten.mul.Scalar", {"other": 3.0}, whole[:1]
    yield "aten.eq.Scalar", {"other": 3.0}, [g.ints(0, 6, 20)]
    for name in ("neg", "abs", "reciprocal", "sqrt", "square", "relu", "silu"):
        for x in (many, EMPTY, g.floats(1), g.tiny(3, 11)):
            yield f"aten.{name}", {}, [x]
    for slope in (0.01, 0.0, -2.0):
        yield "aten.leaky_relu", {"negative_slope": slope}, [many]
    for bounds in ({"min": -1.0}, {"max": 0.5}, {"min": -0.5, "max": 0.5},
                   {"min": 1.0, "max": -1.0}, {"min": 0.0}, {"min": -0.0}, {"max": -0.0},
                   {"max": 0.0}, {"min": float("nan"), "max": 1.0}):  # fmt: skip
        yield "aten.clamp", bounds, [many]
    yield "aten.clamp", {"min": -3.0, "max": 3.0}, [g.ints(-9, 9, 30)]
    for name in ("silu_backward", "tanh_backward", "sigmoid_backward"):
        for a, b in ((many, other), (g.floats(5, 7), g.floats(5, 7)), (EMPTY, EMPTY)):
            yield f"aten.{name}", {}, [a, b]
    for threshold in (0.0, 0.5, -1e-45):
        yield "aten.threshold_backward", {"threshold": threshold}, [other, many]
    flags = [g.bools(17), g.bools(17)]
    for name in ("logical_and", "logical_or", "bitwise_and.Tensor", "bitwise_or.Tensor"):
        yield f"aten.{name}", {}, flags
    for name in ("logical_not", "bitwise_not"):
        yield f"aten.{name}", {}, flags[:1]
    edge = [2**24 + 1, 2**24 + 3, 2**63 - 1, -(2**63), 2**54 + 1, 2**53 + 1, 0]
    big = np.concatenate([g.any_ints(20), np.array(edge, np.int64)])
    yield "aten._to_copy", {"dtype": "f32"}, [big]
    yield "aten._to_copy", {"dtype": "f32"}, [g.bools(9)]
    yield "aten._to_copy", {"dtype": "i64"}, [g.bools(9)]
    yield "aten._to_copy", {"dtype": "i64"}, [g.floats(30, scale=1e5)]
    yield "aten._to_copy", {"dtype": "i64"}, [np.array([-(2.0**63), 0.9, -0.9, -0.0], F32)]
    yield "aten._to_copy", {"dtype": "bool"}, [many]
    yield "aten._to_copy", {"dtype": "bool"}, [big]
    yield "aten._to_copy", {"dtype": "i64"}, [g.ints(0, 255, 9).astype(np.uint8)]
    yield "aten._to_copy", {"dtype": "i64"}, [g.any_ints(9).astype(np.int32)]
