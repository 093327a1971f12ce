"""Exact torch kernels that move, shape or make data (NUMERICS 9)."""

from __future__ import annotations

import torch

from tallystick.contracts.ordered.torch import bits, exact
from tallystick.devices.device import operand
from tallystick.devices.torch import Tensor, Tensors, check_indices, type_of
from tallystick.numerics.operators.common import axis_of, constant, integer, number
from tallystick.numerics.operators.movement import slice_of
from tallystick.numerics.types import Attrs

Outputs = list[Tensor]


# --- joining and scattering -----------------------------------------------------------------------
@exact("aten.slice_scatter", named=True, inplace=((0, 0),))
def _slice_scatter(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axis, taken, _ = slice_of(op, attrs, type_of(x))
    if out.data_ptr() != x.data_ptr():
        bits(out).copy_(bits(x))
    bits(out)[(slice(None),) * axis + (taken,)] = bits(operand(inputs, 1))


@exact("aten.cat", named=True)
def _cat(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = bits(outputs[0])
    axis, at = axis_of(op, integer(attrs, "dim"), out.dim()), 0
    for part in range(len(inputs)):
        x = bits(operand(inputs, part))
        out.narrow(axis, at, x.shape[axis]).copy_(x)
        at += x.shape[axis]


# --- reading by index -----------------------------------------------------------------------------
@exact("aten.gather", named=True)
def _gather(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    axis = axis_of(op, integer(attrs, "dim"), x.dim())
    check_indices(op, index, x.shape[axis] if x.dim() else 1)
    if index.numel():
        torch.gather(bits(x), axis, index, out=bits(out))


def _rows(op: str, x: Tensor, axis: int, index: Tensor, out: Tensor) -> None:
    check_indices(op, index, x.shape[axis])
    if index.numel():
        torch.index_select(bits(x), axis, index.reshape(-1), out=bits(out))


@exact("aten.index_select", named=True)
def _index_select(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    axis = axis_of(op, integer(attrs, "dim"), x.dim())
    _rows(op, x, axis, operand(inputs, 1), outputs[0])


@exact("aten.embedding", named=True)
def _embedding(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    weight, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    _rows(op, weight, 0, index, out.view(index.numel(), weight.shape[1]))


# --- writing by index (9.3) -----------------------------------------------------------------------
@exact("aten.scatter.src", named=True, inplace=((0, 0),))
def _scatter(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    """The last source of each element by the greatest position, which needs no order."""
    x, index, source, out = (*(operand(inputs, i) for i in range(3)), outputs[0])
    axis = axis_of(op, integer(attrs, "dim"), x.dim())
    check_indices(op, index, x.shape[axis] if x.dim() else 1)
    if out.data_ptr() != x.data_ptr():
        bits(out).copy_(bits(x))
    if not index.numel():
        return
    if x.dim() == 0:
        bits(out).copy_(bits(source))
        return
    reached = bits(out)[tuple(slice(n if i != axis else None) for i, n in enumerate(index.shape))]
    along = torch.arange(index.shape[axis], device=x.device)
    along = along.reshape(-1, *(1,) * (x.dim() - 1 - axis)).expand(index.shape)
    last = torch.full(reached.shape, -1, dtype=torch.int64, device=x.device)
    last.scatter_reduce_(axis, index, along, "amax")
    taken = torch.gather(bits(source), axis, last.clamp(min=0))
    reached.copy_(torch.where(last < 0, reached, taken))


# --- choosing -------------------------------------------------------------------------------------
@exact("aten.where", inplace=((1, 0), (2, 0)))
def _where(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    condition, a, b = (operand(inputs, i) for i in range(3))
    torch.where(condition, bits(a), bits(b), out=bits(outputs[0]))


def _constant(op: str, attrs: Attrs, out: Tensor) -> int:
    """The attribute `value` as `out` has it (10.1), floats as their bits."""
    made = constant(op, "value", number(attrs, "value"), type_of(out).dtype)
    if made.dtype.kind == "f":
        made = made.view(f"i{made.itemsize}")
    return int(made)


@exact("aten.masked_fill", named=True, inplace=((0, 0),))
def _masked_fill(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, mask, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    value = _constant(op, attrs, out)
    if out.data_ptr() != x.data_ptr():
        bits(out).copy_(bits(x))
    bits(out).masked_fill_(mask, value)


# --- making ---------------------------------------------------------------------------------------
@exact("aten.full", named=True)
def _full(op: str, attrs: Attrs, _inputs: Tensors, outputs: Outputs) -> None:
    bits(outputs[0]).fill_(_constant(op, attrs, outputs[0]))


@exact("aten.arange")
def _arange(attrs: Attrs, _inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    start, step = number(attrs, "start"), number(attrs, "step")
    each = torch.arange(out.numel(), dtype=torch.int64, device=out.device)
    if out.dtype == torch.int64:
        torch.add(each * int(step), int(start), out=out)
        return
    # Two kernels, so that neither RN64 of 9.1 is left out; the conversion is RN32.
    out.copy_(each.to(torch.float64) * step + start)


@exact("aten.tril", "aten.triu", named=True)
def _triangle(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    rows, columns = x.shape[-2:]
    # Beyond its corners a matrix has nothing; torch's own sums of it must not overflow.
    diagonal = max(-rows - 1, min(integer(attrs, "diagonal"), columns + 1))
    keep = torch.tril if op == "aten.tril" else torch.triu
    bits(out).copy_(keep(bits(x), diagonal))
