"""Rules for arithmetic, comparisons, products and activations; of integers also division and bits
(NUMERICS 2, 6, 10).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import DTYPES, fits_binary64, short_name
from tallystick.program.ir import Value

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _compute_dtype(node: fx.Node, left: Any, right: Any) -> str:
    """The dtype to which the operation converts both operands, by torch's promotion."""
    if short_name(node) in _COMPARISONS:
        a = left.meta["val"] if isinstance(left, fx.Node) else left
        b = right.meta["val"] if isinstance(right, fx.Node) else right
        return DTYPES[torch.result_type(a, b)]
    return DTYPES[node.meta["val"].dtype]


def _binary(lo: Lowerer, node: fx.Node, left: Any, right: Any, **attrs: Any) -> Value:
    """`op(left, right)`: the Scalar form where the right operand is a Python number.

    Narrow integers are computed as i64 and made narrow again: modulo 2³² or 2⁸ that is the same.
    """
    dtype = _compute_dtype(node, left, right)
    if dtype in ("i32", "u8") and short_name(node) not in _COMPARISONS:
        dtype = "i64"
    if not isinstance(left, fx.Node):
        x = lo.full((), left, dtype)
    else:
        x = lo.cast(lo.value(left), dtype)
    op = f"aten.{short_name(node)}"
    if not isinstance(right, fx.Node):
        if dtype == "i64" and not fits_binary64(right):
            found = lo.emit(f"{op}.Tensor", x, lo.full((), right, dtype), **attrs)
        else:
            found = lo.emit(f"{op}.Scalar", x, other=right, **attrs)
    else:
        found = lo.emit(f"{op}.Tensor", x, lo.cast(lo.value(right), dtype), **attrs)
    return lo.cast(found, DTYPES[node.meta["val"].dtype])


def _of_bools(lo: Lowerer, op: str, a: Arguments) -> Value:
    """torch adds truth values by `or` and multiplies them by `and`."""
    left, right = (
        lo.value(a[k]) if isinstance(a[k], fx.Node) else lo.full((), bool(a[k]), "bool")
        for k in ("self", "other")
    )
    return lo.emit(op, left, right)


@lowering("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")
def _add(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if lo.result(node).dtype == "bool" and short_name(node) == "add" and a["alpha"]:
        return _of_bools(lo, "aten.logical_or", a)
    return _binary(lo, node, a["self"], a["other"], alpha=a["alpha"])


@lowering("aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar")
def _mul(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if lo.result(node).dtype == "bool":
        return _of_bools(lo, "aten.logical_and", a)
    return _binary(lo, node, a["self"], a["other"])


@lowering(*(f"aten.{name}.{form}" for name in _COMPARISONS for form in ("Tensor", "Scalar")))
def _compare(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _binary(lo, node, a["self"], a["other"])


@lowering("aten.rsub.Scalar", "aten.rsub.Tensor")
def _rsub(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """other − alpha·self, captured as sub (NUMERICS 10.2)."""
    dtype = lo.result(node).dtype
    other = a["other"]
    left = lo.cast(lo.value(other), dtype) if isinstance(other, fx.Node) else None
    if left is None:
        left = lo.full((), other, dtype)
    return lo.emit("aten.sub.Tensor", left, lo.cast(lo.value(a["self"]), dtype), alpha=a["alpha"])


@lowering("aten.maximum", "aten.minimum")
def _extremum(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    dtype = lo.result(node).dtype
    operands = [lo.cast(lo.value(a[k]), dtype) for k in ("self", "other")]
    return lo.emit(f"aten.{short_name(node)}", *operands)


@lowering("aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor", "aten.__and__.Tensor",
      "aten.__or__.Tensor", "aten.logical_and", "aten.logical_or")  # fmt: skip
def _logical(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if lo.result(node).dtype != "bool":
        return of_bits(lo, node, a)
    op = "aten.logical_and" if "and" in short_name(node) else "aten.logical_or"
    return lo.emit(op, lo.cast(lo.value(a["self"]), "bool"), lo.cast(lo.value(a["other"]), "bool"))


@lowering("aten.bitwise_not", "aten.logical_not")
def _not(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    if lo.result(node).dtype != "bool":
        return lo.emit("aten.bitwise_not", whole(lo, node, x))
    return lo.emit("aten.logical_not", lo.cast(x, "bool"))


_FLOAT_UNARY = ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt", "sqrt",
                "reciprocal")  # fmt: skip


@lowering(*(f"aten.{name}" for name in _FLOAT_UNARY))
def _unary(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.emit(f"aten.{short_name(node)}", lo.cast(lo.value(a["self"]), lo.result(node).dtype))


@lowering("aten.neg", "aten.abs", "aten.square")
def _whole_too(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The contract's operator on f32; on integers by a product, which wraps as torch's does."""
    x, name = lo.value(a["self"]), short_name(node)
    dtype = lo.type(x).dtype
    if dtype not in ("i64", "i32", "u8"):
        return lo.emit(f"aten.{name}", x)
    x = lo.cast(x, "i64")
    if name == "square":
        return lo.cast(lo.emit("aten.mul.Tensor", x, x), dtype)
    negative = lo.negated(x)
    found = negative if name == "neg" else lo.emit("aten.maximum", x, negative)
    return lo.cast(found, dtype)


@lowering("aten.sgn", "aten.sign")
def _sign(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Whether x is above zero minus whether it is below: +0 for −0 and for NaN, as torch's."""
    x = lo.value(a["self"])
    if lo.type(x).dtype == "bool":
        return x
    kind = "f32" if lo.type(x).dtype == "f32" else "i64"
    above, below = (
        lo.cast(lo.emit(f"aten.{side}.Scalar", lo.cast(x, kind), other=0), kind)
        for side in ("gt", "lt")
    )
    return lo.cast(lo.emit("aten.sub.Tensor", above, below, alpha=1), lo.type(x).dtype)


@lowering("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.hardtanh")
def _clamp(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    low = a.get("min", a.get("min_val"))
    high = a.get("max", a.get("max_val"))
    x = lo.cast(lo.value(a["self"]), lo.result(node).dtype)
    return lo.emit("aten.clamp", x, min=low, max=high)


@lowering("aten.hardtanh_backward")
def _hardtanh_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, grad = lo.value(a["self"]), lo.value(a["grad_output"])
    outside = lo.emit(
        "aten.logical_or",
        lo.emit("aten.le.Scalar", x, other=a["min_val"]),
        lo.emit("aten.ge.Scalar", x, other=a["max_val"]),
    )
    return lo.emit("aten.masked_fill", grad, outside, value=0.0)


@lowering("aten.softshrink_backward", "aten.hardshrink_backward")
def _shrink_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Zero from −λ to λ, both included."""
    x, grad = lo.value(a["self"]), lo.value(a.get("grad_output") or a["grad_out"])
    inside = lo.emit(
        "aten.logical_and",
        lo.emit("aten.ge.Scalar", x, other=-a["lambd"]),
        lo.emit("aten.le.Scalar", x, other=a["lambd"]),
    )
    return lo.emit("aten.masked_fill", grad, inside, value=0.0)


@lowering("aten.relu")
def _relu(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    kind = lo.type(x).dtype
    if kind == "f32":
        return lo.emit("aten.relu", x)
    return lo.cast(lo.emit("aten.clamp", lo.cast(x, "i64"), min=0), kind)


@lowering("aten.leaky_relu_backward")
def _leaky_relu_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, grad = lo.value(a["self"]), lo.value(a["grad_output"])
    scaled = lo.emit("aten.mul.Scalar", grad, other=a["negative_slope"])
    return lo.emit("aten.where", lo.emit("aten.gt.Scalar", x, other=0.0), grad, scaled)


def _whole_power(lo: Lowerer, x: Value, exponent: int) -> Value:
    """By squaring."""
    if exponent < 0:
        raise UnsupportedOperatorError(
            "An integer to a negative power is not an integer.",
            "Convert the base to float32 first (x.float()).",
        )
    made: Value | None = None
    while exponent:
        if exponent % 2:
            made = x if made is None else lo.emit("aten.mul.Tensor", made, x)
        exponent //= 2
        if exponent:
            x = lo.emit("aten.mul.Tensor", x, x)
    assert made is not None
    return made


@lowering("aten.pow.Tensor_Scalar")
def _pow(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, result = lo.value(a["self"]), lo.result(node)
    if a["exponent"] == 0:
        return lo.full(result.shape, 1.0, result.dtype)
    x = lo.cast(x, result.dtype)
    if result.dtype == "i64":
        return _whole_power(lo, x, a["exponent"])
    return x if a["exponent"] == 1 else lo.emit("aten.pow.Tensor_Scalar", x, exponent=a["exponent"])


def _product(lo: Lowerer, node: fx.Node, op: str, a: Arguments) -> Value:
    """self + value·(tensor1 op tensor2), in the result's dtype."""
    x, left, right = (
        lo.cast(lo.value(a[k]), lo.result(node).dtype) for k in ("self", "tensor1", "tensor2")
    )
    product = lo.emit(f"aten.{op}.Tensor", left, right)
    if a["value"] != 1:
        product = lo.emit("aten.mul.Scalar", product, other=a["value"])
    return lo.emit("aten.add.Tensor", x, product, alpha=1)


@lowering("aten.addcmul")
def _addcmul(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _product(lo, node, "mul", a)


@lowering("aten.addcdiv")
def _addcdiv(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _product(lo, node, "div", a)


@lowering("aten.lerp.Scalar")
def _lerp(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    start = lo.value(a["self"])
    distance = lo.emit("aten.sub.Tensor", lo.value(a["end"]), start, alpha=1)
    step = lo.emit("aten.mul.Scalar", distance, other=a["weight"])
    return lo.emit("aten.add.Tensor", start, step, alpha=1)


# -- dot class ------------------------------------------------------------------------------


def _scaled(lo: Lowerer, x: Value, factor: Any) -> Value:
    return x if factor == 1 else lo.emit("aten.mul.Scalar", x, other=factor)


@lowering("aten.baddbmm")
def _baddbmm(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    product = _scaled(
        lo, lo.emit("aten.bmm", lo.value(a["batch1"]), lo.value(a["batch2"])), a["alpha"]
    )
    if a["beta"] == 0:
        return product
    return lo.emit("aten.add.Tensor", product, _scaled(lo, lo.value(a["self"]), a["beta"]), alpha=1)


@lowering("aten.mv")
def _mv(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    vec = lo.value(a["vec"])
    product = lo.emit("aten.mm", lo.value(a["self"]), lo.view(vec, (lo.shape(vec)[0], 1)))
    return lo.view(product, lo.result(node).shape)


@lowering("aten.dot")
def _dot(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    left, right = lo.value(a["self"]), lo.value(a["tensor"])
    n = lo.shape(left)[0]
    return lo.view(lo.emit("aten.mm", lo.view(left, (1, n)), lo.view(right, (n, 1))), ())


def _mask_outputs(values: list[Value], mask: Any) -> list[Value | None]:
    """Operators with output_mask have no outputs where it is false; ATen has None there."""
    remaining = iter(values)
    return [next(remaining) if wanted else None for wanted in mask]


@lowering("aten.native_layer_norm_backward")
def _masked_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    target: Any = node.target
    tensors = [x.name for x in target._schema.arguments if "Tensor" in str(x.type)]
    attrs = {k: v for k, v in a.items() if k not in tensors}
    operands = [lo.optional(a[k]) for k in tensors]
    values = lo.emit_all(f"aten.{short_name(node)}", *operands, **attrs)
    return _mask_outputs(values, a["output_mask"])


# -- activations ------------------------------------------------------------------------------


@lowering("aten._softmax", "aten._log_softmax")
def _softmax(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if a["half_to_float"]:
        raise UnsupportedOperatorError(
            "Softmax over half precision is not defined.",
            "Convert the model and the batch to float32 (module.float()).",
        )
    x = lo.value(a["self"])
    return lo.emit(f"aten.{short_name(node)}", x, dim=a["dim"] % max(len(lo.shape(x)), 1))


@lowering("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def _softmax_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    grad, y = lo.value(a["grad_output"]), lo.value(a["output"])
    return lo.emit(f"aten.{short_name(node)}", grad, y, dim=a["dim"] % max(len(lo.shape(y)), 1))


def whole(lo: Lowerer, node: fx.Node, x: Any) -> Value:
    """An operand as i64, where the node's result is i64. Raises UnsupportedOperatorError."""
    if lo.result(node).dtype != "i64":
        raise UnsupportedOperatorError(
            f"Bits of {lo.result(node).dtype} are not defined by the contract.",
            "Convert integers to int64 first (x.long()).",
        )
    if isinstance(x, fx.Node):
        x = lo.value(x)
    return lo.cast(x, "i64") if isinstance(x, Value) else lo.full((), x, "i64")


@lowering("aten.floor_divide", "aten.floor_divide.Scalar")
def _floor_divide(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Of floats: rules_round's composition."""
    if lo.result(node).dtype != "i64":
        return lo.composed(node)
    return lo.emit("aten.floor_divide", *(whole(lo, node, a[k]) for k in ("self", "other")))


_SHORT = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
          "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}  # fmt: skip

_OF_TRUTHS = {"bitwise_and": "aten.logical_and", "bitwise_or": "aten.logical_or",
              "bitwise_xor": "aten.ne.Tensor"}  # fmt: skip


@lowering(
    *(f"aten.bitwise_{n}.{form}" for n in ("and", "or", "xor")
      for form in ("Scalar", "Scalar_Tensor")),
    *(f"aten.bitwise_{n}_shift.{form}" for n in ("left", "right")
      for form in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    *(f"aten.{n}.Scalar" for n in _SHORT), "aten.__lshift__.Tensor", "aten.__rshift__.Tensor",
    "aten.bitwise_xor.Tensor", "aten.__xor__.Tensor",
)  # fmt: skip
def of_bits(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """An operator of two integers, bit by bit or as a shift."""
    name = _SHORT.get(short_name(node), short_name(node))
    # Of a truth value and a number. torch does not shift truth values.
    if lo.result(node).dtype == "bool" and name in _OF_TRUTHS:
        left, right = (
            lo.value(v) if isinstance(v, fx.Node) else lo.full((), bool(v), "bool")
            for v in (a["self"], a["other"])
        )
        return lo.emit(_OF_TRUTHS[name], left, right)
    operands = [whole(lo, node, a[k]) for k in ("self", "other")]
    return lo.emit(f"aten.{name}.Tensor", *operands)
