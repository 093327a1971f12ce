"""Opening rules of the losses and their gradients (NUMERICS 7.1 - 7.3).

A row's loss has one term for each class. So the loss of many rows is a sum of quantities (`Terms`),
not of terms that a referee could execute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.operators.common import integer, text
from tallystick.opening.approx import Approx
from tallystick.opening.arithmetic import canonical, fma, function, only, quotient
from tallystick.opening.quantity import (
    Array,
    Extremum,
    Index,
    Local,
    Needs,
    Quantity,
    RefusedOperandsError,
    Site,
    Source,
    Terms,
    Tree,
    opening,
)

# The logits that a prover holds twice at once while it makes many rows' losses.
_BATCH = 1 << 20


@dataclass(frozen=True)
class Row:
    """`count` elements of a tensor, `stride` apart from row-major position `base` on."""

    base: int
    stride: int
    count: int

    def read(self, source: Source, operand: int, index: Index) -> Array:
        """Elements number `index` of the row, of an operand laid out as the tensor is."""
        return source.read(operand, self.base + index * self.stride)


def row_maximum(row: Row, operand: int) -> Extremum:
    """The intermediate *m* of a row (NUMERICS 6.1, 7.1)."""
    return Extremum("m", "f32", row.count, "max", lambda s, _, i: row.read(s, operand, i))


def exponential_sum(row: Row, operand: int, maximum: Extremum) -> Tree:
    """The intermediate *s* of a row: SUM(exp(x_i - m)) (NUMERICS 6.1, 7.1)."""

    @np.errstate(all="ignore")
    def terms(source: Source, needs: Needs, index: Index) -> Array:
        return function("aten.exp", row.read(source, operand, index) - needs[0])

    return Tree("s", "f32", row.count, terms, (maximum,))


def _at(position: int) -> Index:
    return np.array([position], dtype=np.int64)


def _reduction(site: Site) -> str:
    return text(site.attrs, "reduction")


class _Targets:
    """Targets t[R] of logits [R, V]: operands number `operand` and `operand` - 1."""

    def __init__(self, site: Site, operand: int) -> None:
        self._operand = operand
        self._op = site.op
        self.rows, self.classes = site.type_of(operand - 1).shape
        self.ignore = integer(site.attrs, "ignore_index")

    def read(self, source: Source, rows: Index) -> tuple[Array, Array]:
        """Targets of `rows`, and which of the rows count. Raises RefusedOperandsError (7.1)."""
        target = source.read(self._operand, rows)
        kept = target != self.ignore
        if np.any(kept & ((target < 0) | (target >= self.classes))):
            raise RefusedOperandsError(self._op, f"a target is not one of {self.classes} classes.")
        return target, kept

    def count(self) -> Tree:
        """The intermediate *count*: rows that are not ignored."""

        def terms(source: Source, _: Needs, index: Index) -> Array:
            return cast(Array, (source.read(self._operand, index) != self.ignore).astype(np.int64))

        return Tree("count", "i64", self.rows, terms)


def _mean(total: Quantity, count: Tree) -> Local:
    """`total` / RN32(count)."""

    @np.errstate(all="ignore")
    def compute(_: Source, needs: Needs) -> Array:
        return quotient(needs[0], int(needs[1]))

    return Local("loss", "f32", compute, (total, count))


# --- cross_entropy (7.1, 7.2) ---------------------------------------------------------------------
@opening("tallystick.cross_entropy")
def _cross_entropy(site: Site) -> Quantity:
    targets = _Targets(site, 1)

    def row(r: int) -> Row:
        return Row(r * targets.classes, 1, targets.classes)

    if site.out > 0:
        m = row_maximum(row(site.element), 0)
        return m if site.out == 1 else exponential_sum(row(site.element), 0, m)

    def row_loss(r: int) -> Local:
        m = row_maximum(row(r), 0)

        @np.errstate(all="ignore")
        def compute(source: Source, needs: Needs) -> Array:
            target, kept = targets.read(source, _at(r))
            if not kept[0]:
                return canonical(np.float32(0))
            log_s = function("aten.log", needs[1])[0]
            return only(log_s - (row(r).read(source, 0, target) - needs[0]))

        return Local("l_r", "f32", compute, (m, exponential_sum(row(r), 0, m)))

    reduction = _reduction(site)
    if reduction == "none":
        return row_loss(site.element)
    total = Terms("SUM(l)", "f32", targets.rows, row_loss, _row_losses(targets))
    return total if reduction == "sum" else _mean(total, targets.count())


def _row_losses(targets: _Targets) -> Callable[[Source, Needs, Index], Array]:
    """A prover's answer: the losses of many rows by the operator itself, some rows at a time."""
    at_once = max(1, _BATCH // targets.classes)
    classes = np.arange(targets.classes, dtype=np.int64)

    def terms(source: Source, _: Needs, index: Index) -> Array:
        losses = np.empty(len(index), np.float32)
        for first in range(0, len(index), at_once):
            rows = index[first : first + at_once]
            losses[first : first + at_once] = evaluate(
                "tallystick.cross_entropy",
                source.read(0, rows[:, None] * targets.classes + classes),
                source.read(1, rows),
                ignore_index=targets.ignore,
                reduction="none",
            )[0]
        return losses

    return terms


@opening("tallystick.cross_entropy_backward")
def _cross_entropy_backward(site: Site) -> Quantity:
    targets, reduction = _Targets(site, 2), _reduction(site)
    r, i = divmod(site.element, targets.classes)
    g_at = _at(r if reduction == "none" else 0)

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        target, kept = targets.read(source, _at(r))
        if not kept[0]:
            return canonical(np.float32(0))
        c = source.read(0, g_at)
        if needs:
            c = quotient(c, int(needs[0]))
        x, m, s = source.read(1, _at(site.element)), source.read(3, _at(r)), source.read(4, _at(r))
        p = function("aten.exp", x - m) / s
        return only(fma(p, c, -c) if target[0] == i else p * c)

    needs = (targets.count(),) if reduction == "mean" else ()
    return Local("out", "f32", compute, needs)


# --- nll_loss (7.3) -------------------------------------------------------------------------------
@opening("aten.nll_loss_forward")
def _nll_loss(site: Site) -> Quantity:
    targets, reduction = _Targets(site, 1), _reduction(site)
    if site.out == 1:
        count = (targets.count(),)
        return Local("total_weight", "f32", lambda _, needs: np.float64(needs[0]), count)

    def losses(source: Source, _: Needs, rows: Index) -> Array:
        target, kept = targets.read(source, rows)
        values = np.zeros(len(rows), np.float32)
        chosen = -source.read(0, rows[kept] * targets.classes + target[kept])
        values[kept] = chosen.exactly() if isinstance(chosen, Approx) else chosen
        return canonical(values)

    if reduction == "none":
        return Local("l_r", "f32", lambda s, needs: losses(s, needs, _at(site.element))[0])
    total = Tree("SUM(l)", "f32", targets.rows, losses)
    return total if reduction == "sum" else _mean(total, targets.count())


@opening("aten.nll_loss_backward")
def _nll_loss_backward(site: Site) -> Quantity:
    targets, reduction = _Targets(site, 2), _reduction(site)
    r, i = divmod(site.element, targets.classes)
    g_at = _at(r if reduction == "none" else 0)

    @np.errstate(all="ignore")
    def compute(source: Source, _: Needs) -> Array:
        target, kept = targets.read(source, _at(r))
        if not kept[0] or target[0] != i:
            return canonical(np.float32(0))
        c = source.read(0, g_at)
        if reduction == "mean":
            c = c / source.read(3, _at(0))
        return only(-c)

    return Local("out", "f32", compute)
