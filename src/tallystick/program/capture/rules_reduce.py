"""Rules for reductions: sums, extremes and their places, norms, variances (NUMERICS 3)."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import short_name
from tallystick.program.ir import Value


def _axes(lo: Lowerer, x: Value, dim: Any) -> tuple[int, ...]:
    """Reduced axes, ascending, none negative; None and [] mean all."""
    rank = len(lo.shape(x))
    given = [dim] if isinstance(dim, int) else dim
    return tuple(sorted(d % max(rank, 1) for d in given)) if given else tuple(range(rank))


@lowering("aten.sum", "aten.mean")
def _reduce_all(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = _summand(lo, node, lo.value(a["self"]))
    return lo.emit(f"aten.{short_name(node)}", x)


def _summand(lo: Lowerer, node: fx.Node, x: Value) -> Value:
    wanted = lo.result(node).dtype
    kind = lo.type(x).dtype
    # The contract sums bool and i64 into i64 itself (NUMERICS 3.4).
    return x if wanted == "i64" and kind in ("bool", "i64") else lo.cast(x, wanted)


@lowering("aten.sum.dim_IntList", "aten.mean.dim")
def _reduce(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = _summand(lo, node, lo.value(a["self"]))
    op = "aten.sum.dim_IntList" if short_name(node) == "sum" else "aten.mean.dim"
    if not lo.shape(x):
        return (
            lo.cast(x, lo.result(node).dtype)
            if short_name(node) == "sum"
            else lo.emit("aten.mean", x)
        )
    return lo.emit(op, x, dim=_axes(lo, x, a["dim"]), keepdim=a["keepdim"])


@lowering("aten.amax", "aten.amin")
def _extreme(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, op = lo.value(a["self"]), f"aten.{short_name(node)}"
    dims = _axes(lo, x, a["dim"])
    return lo.truths(x, lambda v: lo.emit(op, v, dim=dims, keepdim=a["keepdim"]))


@lowering("aten.max", "aten.min")
def _whole_extreme(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, op = lo.value(a["self"]), f"aten.{short_name(node)}"
    kind = lo.type(x).dtype
    x = lo.cast(x, "i64") if kind in ("bool", "i32", "u8") else x
    return lo.cast(lo.emit(op, x), kind)


@lowering("aten.linalg_vector_norm")
def _vector_norm(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The Euclidean norm of a whole tensor: √ of its sum of squares (NUMERICS 3.7)."""
    if float(a["ord"]) != 2.0 or a["dim"] is not None or a["keepdim"] or a["dtype"]:
        return lo.composed(node)
    return lo.emit("aten.sqrt", lo.emit("tallystick.sum_squares", lo.value(a["self"])))


@lowering("aten.cumsum")
def _cumsum(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.cast(lo.value(a["self"]), lo.result(node).dtype)
    if lo.type(x).dtype == "i64":
        return lo.composed(node)
    return lo.emit("aten.cumsum", x, dim=a["dim"] % max(len(lo.shape(x)), 1))


def _extreme_place(lo: Lowerer, x: Value, name: str, dim: int, keepdim: bool) -> Value:
    """The lowest index among the extremes; for the smallest, of x turned round without overflow."""
    x = lo.cast(x, "i64") if lo.type(x).dtype in ("bool", "i32", "u8") else x
    if name == "min":
        x = lo.negated(x)
        x = lo.emit("aten.sub.Scalar", x, other=1, alpha=1) if lo.type(x).dtype == "i64" else x
    return lo.emit("aten.argmax", x, dim=dim % max(len(lo.shape(x)), 1), keepdim=keepdim)


@lowering("aten.max.dim", "aten.min.dim")
def _max_dim(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, name = lo.value(a["self"]), short_name(node)
    dims = (a["dim"] % max(len(lo.shape(x)), 1),)
    values = lo.truths(x, lambda v: lo.emit(f"aten.a{name}", v, dim=dims, keepdim=a["keepdim"]))
    return [values, _extreme_place(lo, x, name, a["dim"], a["keepdim"])]


@lowering("aten.argmax", "aten.argmin")
def _argmax(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, name = lo.value(a["self"]), short_name(node)[3:]
    if a["dim"] is None:
        x = lo.view(x, (lo.type(x).numel,))
        return lo.view(_extreme_place(lo, x, name, 0, False), lo.result(node).shape)
    return _extreme_place(lo, x, name, a["dim"], a["keepdim"])


def _variance(lo: Lowerer, a: Arguments) -> list[Value]:
    x = lo.value(a["self"])
    correction = 1 if a["correction"] is None else a["correction"]
    return lo.emit_all(
        "aten.var_mean.correction",
        x,
        dim=_axes(lo, x, a["dim"]),
        correction=correction,
        keepdim=a["keepdim"],
    )


@lowering("aten.var_mean.correction")
def _var_mean(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _variance(lo, a)


@lowering("aten.var.correction")
def _var(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _variance(lo, a)[0]


@lowering("aten.std.correction")
def _std(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.emit("aten.sqrt", _variance(lo, a)[0])


@lowering("aten.logsumexp")
def _logsumexp(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.cast(lo.value(a["self"]), lo.result(node).dtype)
    dims = _axes(lo, x, a["dim"])
    top = lo.emit("aten.amax", x, dim=dims, keepdim=True)
    # Of −∞ alone the sum is −∞; the difference of two infinities would be NaN.
    infinite = lo.emit("aten.eq.Scalar", lo.emit("aten.abs", top), other=math.inf)
    top = lo.emit("aten.masked_fill", top, infinite, value=0.0)
    powers = lo.emit("aten.exp", lo.emit("aten.sub.Tensor", x, top, alpha=1))
    total = lo.emit("aten.log", lo.emit("aten.sum.dim_IntList", powers, dim=dims, keepdim=True))
    return lo.view(lo.emit("aten.add.Tensor", total, top, alpha=1), lo.result(node).shape)
