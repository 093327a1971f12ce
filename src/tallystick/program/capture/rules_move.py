"""Rules for operators that move, shape or make data (NUMERICS 9)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import fits_binary64, short_name
from tallystick.program.ir import Value


@lowering(
    "aten.alias",
    "aten.detach",
    "aten.clone",
    "aten.contiguous",
    "aten.lift_fresh",
    "aten.lift_fresh_copy",
    "aten.lift",
)
def _identity(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.value(a["self"])


@lowering("aten._to_copy", "aten.to.dtype")
def _to_copy(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, dtype = lo.value(a["self"]), lo.result(node).dtype
    if lo.type(x).dtype == "f32" and dtype in ("i64", "i32", "u8") and not lo.is_part:
        # torch's u8 is the low byte of an i32.
        return lo.cast(_whole(lo, x, 63 if dtype == "i64" else 31), dtype)
    return lo.cast(x, dtype)


def _whole(lo: Lowerer, x: Value, bits: int) -> Value:
    """f32 as i64; −2^bits where it is no integer of `bits` and a sign, as torch has it on x86-64.

    Models convert such values and select others (T5 converts the logarithm of a distance of 0). The
    contract's conversion refuses them (NUMERICS 10.7). Parts of operators keep within its range.
    """
    limit = 2.0**bits
    inside = lo.emit(
        "aten.logical_and",
        lo.emit("aten.ge.Scalar", x, other=-limit),
        lo.emit("aten.lt.Scalar", x, other=limit),
    )
    held = lo.cast(lo.emit("aten.where", inside, x, lo.full((), 0, "f32")), "i64")
    return lo.emit("aten.where", inside, held, lo.full((), -limit, "i64"))


@lowering(
    "aten.view",
    "aten._unsafe_view",
    "aten._reshape_alias",
    "aten.reshape",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.flatten.using_ints",
)
def _view(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.view(lo.value(a["self"]), lo.result(node).shape)


@lowering("aten.t")
def _t(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    return lo.swap(x, 0, 1) if len(lo.shape(x)) == 2 else x


@lowering("aten.transpose.int")
def _transpose(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.swap(lo.value(a["self"]), a["dim0"], a["dim1"])


@lowering("aten.permute")
def _permute(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.permute(lo.value(a["self"]), a["dims"])


@lowering("aten.expand")
def _expand(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.expand(lo.value(a["self"]), lo.result(node).shape)


@lowering("aten.repeat")
def _repeat(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, repeats = lo.value(a["self"]), list(a["repeats"])
    shape = [1] * (len(repeats) - len(lo.shape(x))) + list(lo.shape(x))
    apart = [n for size in shape for n in (1, size)]
    spread = [n for times, size in zip(repeats, shape, strict=True) for n in (times, size)]
    return lo.view(lo.expand(lo.view(x, apart), spread), lo.result(node).shape)


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    def clip(at: int) -> int:
        return min(max(at + size if at < 0 else at, 0), size)

    low = clip(start or 0)
    return low, max(low, clip(size if end is None else end))


@lowering("aten.slice.Tensor", "aten.slice")
def _slice(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    dim = a["dim"] % len(lo.shape(x))
    start, end = _bounds(lo.shape(x)[dim], a["start"], a["end"])
    return lo.slice(x, dim, start, end, a["step"])


def _select(lo: Lowerer, x: Value, dim: int, index: int) -> Value:
    shape = lo.shape(x)
    dim %= len(shape)
    index %= shape[dim]
    return lo.view(lo.slice(x, dim, index, index + 1), shape[:dim] + shape[dim + 1 :])


@lowering("aten.select.int")
def _select_int(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _select(lo, lo.value(a["self"]), a["dim"], a["index"])


@lowering("aten.unbind.int")
def _unbind(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    return [_select(lo, x, a["dim"], i) for i in range(lo.shape(x)[a["dim"]])]


@lowering(
    "aten.split.Tensor",
    "aten.split_with_sizes",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes",
    "aten.chunk",
    "aten.unsafe_chunk",
)
def _split(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    dim = a["dim"] % len(lo.shape(x))
    parts: list[Value] = []
    start = 0
    for part in node.meta["val"]:
        end = start + int(part.shape[dim])
        parts.append(lo.slice(x, dim, start, end))
        start = end
    return parts


def _cat(lo: Lowerer, parts: list[Value], dim: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    return lo.emit("aten.cat", *parts, dim=dim % len(lo.shape(parts[0])))


@lowering("aten.cat")
def _cat_rule(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    dtype = lo.result(node).dtype
    rank = len(lo.result(node).shape)
    # torch lets an empty 1-D tensor join any tensor; it adds no element.
    parts = [v for v in map(lo.value, a["tensors"]) if rank == len(lo.shape(v))]
    return _cat(lo, [lo.cast(v, dtype) for v in parts], a["dim"])


@lowering("aten.stack")
def _stack(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    shape = lo.result(node).shape
    dim = a["dim"] % len(shape)
    single = (*shape[:dim], 1, *shape[dim + 1 :])
    dtype = lo.result(node).dtype
    return _cat(lo, [lo.view(lo.cast(lo.value(v), dtype), single) for v in a["tensors"]], dim)


def _scatter_slice(
    lo: Lowerer, x: Value, src: Value, dim: int, start: int, end: int, step: int
) -> Value:
    if (start, step) == (0, 1) and end == lo.shape(x)[dim]:
        return src
    return lo.emit("aten.slice_scatter", x, src, dim=dim, start=start, end=end, step=step)


@lowering("aten.slice_scatter")
def _slice_scatter(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, src = lo.value(a["self"]), lo.value(a["src"])
    dim = a["dim"] % len(lo.shape(x))
    start, end = _bounds(lo.shape(x)[dim], a["start"], a["end"])
    return _scatter_slice(lo, x, src, dim, start, end, a["step"])


@lowering("aten.slice_backward")
def _slice_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    dim = a["dim"] % len(result.shape)
    start, end = _bounds(result.shape[dim], a["start"], a["end"])
    zeros = lo.full(result.shape, 0.0, result.dtype)
    return _scatter_slice(lo, zeros, lo.value(a["grad_output"]), dim, start, end, a["step"])


def _scatter_select(lo: Lowerer, x: Value, src: Value, dim: int, index: int) -> Value:
    shape = lo.shape(x)
    dim %= len(shape)
    index %= shape[dim]
    single = lo.view(src, (*shape[:dim], 1, *shape[dim + 1 :]))
    return _scatter_slice(lo, x, single, dim, index, index + 1, 1)


@lowering("aten.select_scatter")
def _select_scatter(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _scatter_select(lo, lo.value(a["self"]), lo.value(a["src"]), a["dim"], a["index"])


@lowering("aten.select_backward")
def _select_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    zeros = lo.full(result.shape, 0.0, result.dtype)
    return _scatter_select(lo, zeros, lo.value(a["grad_output"]), a["dim"], a["index"])


@lowering("aten.copy")
def _copy(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    return lo.expand(lo.cast(lo.value(a["src"]), result.dtype), result.shape)


_FILL = {
    "zeros": 0,
    "zeros_like": 0,
    "new_zeros": 0,
    "zero": 0,
    "ones": 1,
    "ones_like": 1,
    "new_ones": 1,
    # A meaningful model overwrites uninitialised memory before it reads it.
    "empty": 0,
    "empty_like": 0,
    "new_empty": 0,
    "empty_strided": 0,
    "new_empty_strided": 0,
    "empty_permuted": 0,
}


@lowering(*(f"aten.{name}" for name in _FILL), "aten.empty.memory_format")
def _constant_fill(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    return lo.full(result.shape, _FILL[short_name(node)], result.dtype)


@lowering("aten.full", "aten.full_like", "aten.new_full")
def _full(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.full(lo.result(node).shape, a["fill_value"], lo.result(node).dtype)


@lowering("aten.fill.Scalar")
def _fill(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.full(lo.result(node).shape, a["value"], lo.result(node).dtype)


@lowering("aten.scalar_tensor")
def _scalar_tensor(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.full((), a["s"], lo.result(node).dtype)


@lowering("aten.fill.Tensor")
def _fill_tensor(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    return lo.expand(lo.cast(lo.value(a["value"]), result.dtype), result.shape)


@lowering("aten.arange", "aten.arange.start", "aten.arange.start_step")
def _arange(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    (count,), dtype = lo.result(node).shape, lo.result(node).dtype
    start, end, step = a.get("start") or 0, a["end"], a.get("step", 1)
    if dtype == "f32" and count != _exact_count(start, end, step):
        # torch rounds the quotient: (1.1 - 0.1) / 1 has one element. The values are the same.
        end = start + (count - 0.5) * step
    made = lo.emit(
        "aten.arange",
        start=start,
        end=end,
        step=step,
        dtype="i64" if dtype in ("i32", "u8") else dtype,
    )
    return lo.cast(made, dtype)


def _exact_count(start: float, end: float, step: float) -> int:
    """The elements of the contract's range (NUMERICS 9.1)."""
    return max(0, math.ceil((Fraction(end) - Fraction(start)) / Fraction(step)))


@lowering("aten.masked_fill.Scalar")
def _masked_fill(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    x = lo.expand(lo.value(a["self"]), result.shape)
    if result.dtype == "i64" and not fits_binary64(a["value"]):
        return lo.emit("aten.where", lo.value(a["mask"]), lo.full((), a["value"], "i64"), x)
    return lo.emit("aten.masked_fill", x, lo.value(a["mask"]), value=a["value"])


@lowering("aten.masked_fill.Tensor")
def _masked_fill_tensor(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    x = lo.expand(lo.value(a["self"]), result.shape)
    fill = lo.cast(lo.value(a["value"]), result.dtype)
    return lo.emit("aten.where", lo.value(a["mask"]), fill, x)


@lowering("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def _where(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    dtype = lo.result(node).dtype

    def operand(x: Any) -> Value:
        return lo.cast(lo.value(x), dtype) if isinstance(x, fx.Node) else lo.full((), x, dtype)

    condition = lo.cast(lo.value(a["condition"]), "bool")
    return lo.emit("aten.where", condition, operand(a["self"]), operand(a["other"]))


@lowering("aten.tril", "aten.triu")
def _triangle(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return lo.emit(f"aten.{short_name(node)}", lo.value(a["self"]), diagonal=a["diagonal"])


@lowering(
    "aten.bernoulli",
    "aten.bernoulli.p",
    "aten.native_dropout",
    "aten.rand",
    "aten.rand_like",
    "aten.randn",
    "aten.randn_like",
    "aten.randint",
    "aten.randint.low",
    "aten.randperm",
    "aten.multinomial",
    "aten.normal_functional",
    "aten.uniform",
    "aten.exponential",
)
def _random(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    raise UnsupportedOperatorError(
        "The model draws random numbers from torch's own generator.",
        "Use torch.nn.functional.dropout, or draw the numbers beforehand into the batch.",
    )


@lowering("aten._local_scalar_dense", "aten.item", "aten.nonzero", "aten.unique_dim")
def _value_dependent(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    raise UnsupportedOperatorError(
        "The model's shape or control flow depends on tensor values.",
        "Use torch.where for a choice by value, or pass the value in the batch.",
    )
