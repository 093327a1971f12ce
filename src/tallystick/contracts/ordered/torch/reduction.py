"""Exact torch kernels of extremes, places, occurrences, integer sums, max pooling, and the fold
over micro-batches (NUMERICS 3, 6.15, 10.12)."""

from __future__ import annotations

import torch

from tallystick.contracts.ordered.torch import bits, exact, keys, of_keys, write
from tallystick.devices.device import operand
from tallystick.devices.torch import Tensor, Tensors, type_of
from tallystick.numerics.operators.common import axis_of, flag, integer
from tallystick.numerics.operators.pool import Axis, axes
from tallystick.numerics.operators.reduction import FOLD, fold_count, folded, reduced_axes
from tallystick.numerics.types import Attrs

Outputs = list[Tensor]
# Below the key of every number, for what lies outside of a plane.
_NONE = -(1 << 31)


# --- sums of integers (3.4) -----------------------------------------------------------------------
@exact("aten.sum", "aten.sum.dim_IntList", named=True)
def _sum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    over = reduced_axes(op, attrs, x.dim())
    write(x.sum(over, dtype=torch.int64) if over else x.to(torch.int64), outputs[0])


# --- extremes (3.5) -------------------------------------------------------------------------------
@exact("aten.amax", "aten.amin", "aten.max", "aten.min", named=True)
def _extreme(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out, least = operand(inputs, 0), outputs[0], op.endswith("min")
    over = reduced_axes(op, attrs, x.dim())
    if not out.numel():
        return
    if x.dtype == torch.float32:
        found = keys(x, least)
        write(of_keys(found.amax(over) if over else found, least), out)
    elif over:
        write(x.amin(over) if least else x.amax(over), out)
    else:
        write(x, out)


@exact("aten.argmax", named=True)
def _argmax(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if not out.numel():
        return
    if x.dim() == 0:
        out.zero_()
        return
    (axis,) = reduced_axes(op, attrs, x.dim())
    if x.dtype == torch.float32:
        x = keys(x + 0.0)  # one zero: -0 equals +0 here
    n = x.shape[axis]
    places = torch.arange(n, device=x.device).reshape(-1, *(1,) * (x.dim() - 1 - axis))
    highest = x == x.amax(axis, keepdim=True)
    write(torch.where(highest, places, n).amin(axis), out)


# --- places (3.9) ---------------------------------------------------------------------------------
@exact("tallystick.rank", named=True)
def _rank(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if x.dim() == 0:
        out.zero_()
        return
    axis = axis_of(op, integer(attrs, "dim"), x.dim())
    found = keys(x + 0.0) if x.dtype == torch.float32 else x  # one zero
    # A stable sort of integers is one permutation, whatever the order of execution.
    found = ~found if flag(attrs, "descending") else found
    order = torch.sort(found, dim=axis, stable=True)[1]
    along = torch.arange(x.shape[axis], device=x.device)
    along = along.reshape(-1, *(1,) * (x.dim() - 1 - axis)).expand(x.shape)
    write(torch.empty_like(order).scatter_(axis, order, along), out)


# --- occurrences (3.10) ---------------------------------------------------------------------------
@exact("tallystick.occurrences")
def _occurrences(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    tokens, first, last = (operand(inputs, i) for i in range(3))
    out, classes = outputs[0], integer(attrs, "classes")
    if not out.numel():
        return
    place = torch.arange(tokens.shape[0], device=tokens.device)
    inside = (place >= first.unsqueeze(1)) & (place <= last.unsqueeze(1))
    is_class = (tokens >= 0) & (tokens < classes)
    # Sums of integers are the same in every order.
    token = torch.where(is_class, tokens, 0).expand(inside.shape)
    write(torch.zeros_like(out).scatter_add_(1, token, (inside & is_class).long()), out)


# --- max pooling (6.15) ---------------------------------------------------------------------------
def _along(axis: Axis, count: int, found: Tensor, place: Tensor, at: int) -> tuple[Tensor, Tensor]:
    """The greatest of `found` (keys) among the taps of `count` outputs along axis `at`, the first
    of equals, and what `place` holds there."""
    starts = torch.arange(count, device=found.device) * axis.stride - axis.padding
    reach = (count - 1) * axis.stride - axis.padding
    best = at_best = None
    for tap in range(axis.kernel):
        shift = tap * axis.dilation
        if shift + reach < 0 or shift - axis.padding >= axis.size:
            continue  # outside for every output
        to = starts + shift
        inside = ((to >= 0) & (to < axis.size)).reshape(-1, *(1,) * (-at - 1))
        to = to.clamp(0, axis.size - 1)
        key = torch.where(inside, found.index_select(at, to), _NONE)
        where = place.index_select(at, to)
        if best is None or at_best is None:
            best, at_best = key, where
            continue
        better = key > best
        best, at_best = torch.where(better, key, best), torch.where(better, where, at_best)
    assert best is not None and at_best is not None, "the type rule refuses outputs without a tap"
    return best, at_best


@exact("aten.max_pool2d_with_indices", named=True)
def _max_pool(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    """Rows first, then columns: so the first of equals is the one with the lowest index."""
    x, (y, index) = operand(inputs, 0), outputs
    if not y.numel():
        return
    high, wide = axes(op, attrs, type_of(x))
    places = torch.arange(high.size * wide.size, device=x.device).reshape(high.size, wide.size)
    found, place = _along(wide, y.shape[-1], keys(x + 0.0), places, -1)
    _, place = _along(high, y.shape[-2], found, place, -2)
    place = place.expand(y.shape)
    index.copy_(place)
    taken = bits(x).flatten(-2).gather(-1, place.flatten(-2))
    write(taken.view(torch.float32), y)


# --- the fold over micro-batches (10.12) ----------------------------------------------------------
@exact(FOLD)
def _fold(attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
    """Each operation is one of binary64, then a conversion to binary32.

    Of a sum or quotient of two binary32 numbers that is RN32 of the true one, since 53 digits are
    at least 2·24 + 2. No kernel of torch's for binary32, which may flush, has a part in it.
    """
    found = folded([operand(inputs, i) for i in range(len(inputs))], _plus)
    if flag(attrs, "mean"):
        found = (found.double() / float(fold_count(attrs, len(inputs)))).float()
    write(found, outputs[0])


def _plus(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() + b.double()).to(torch.float32)
