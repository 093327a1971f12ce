"""Rules for embeddings and for bags of them (NUMERICS 9, 4.2, 4.3).

A bag's sum adds its rows in the order of the indices, as `index_add` adds them. Its mean is that
sum over the number of rows, which is at least 1.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import add_at, progression, take
from tallystick.program.ir import Value

_SUM, _MEAN, _MAX = 0, 1, 2


@lowering("aten.embedding")
def _embedding(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    indices = lo.cast(lo.value(a["indices"]), "i64")
    return lo.emit("aten.embedding", lo.value(a["weight"]), indices, padding_idx=a["padding_idx"])


def _onto_weights(lo: Lowerer, grad: Value, indices: Value, a: Arguments, padding: int) -> Value:
    """The gradient of the weights; rows first divided by their index's count, where asked for."""
    count, weights = lo.type(indices).numel, a["num_weights"]
    if a["scale_grad_by_freq"]:
        flat, ones = lo.view(indices, (count,)), lo.full((count,), 1, "f32")
        often = take(lo, add_at(lo, weights, 0, flat, ones), 0, flat)
        often = lo.view(often, (*lo.shape(indices), 1))
        grad = lo.emit("aten.div.Tensor", grad, often)
    return lo.emit(
        "aten.embedding_dense_backward",
        grad,
        indices,
        num_weights=weights,
        padding_idx=padding,
        scale_grad_by_freq=False,
    )


@lowering("aten.embedding_dense_backward")
def _embedding_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    indices = lo.cast(lo.value(a["indices"]), "i64")
    return _onto_weights(lo, lo.value(a["grad_output"]), indices, a, a["padding_idx"])


@lowering("aten.embedding_renorm")
def _renorm(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    raise UnsupportedOperatorError(
        "An embedding with max_norm changes its weights while the model runs.",
        "Leave max_norm out, or normalise the rows that embedding returns.",
    )


# -- bags -------------------------------------------------------------------------------------


class _Bags:
    """One bag per offset: the bag of every index, and the size of every bag."""

    def __init__(self, lo: Lowerer, indices: Value, offsets: Value, padding: int) -> None:
        self.lo, self.indices = lo, indices
        self.rows, self.bags = lo.shape(indices)[0], lo.shape(offsets)[0]
        at = lo.view(progression(lo, 0, self.rows, 1), (self.rows, 1))
        begun = lo.emit("aten.ge.Tensor", at, lo.view(offsets, (1, self.bags)))
        begun = lo.emit("aten.sum.dim_IntList", begun, dim=(1,), keepdim=False)
        self.of = lo.emit("aten.sub.Scalar", begun, other=1, alpha=1)
        self.counted: Value | None = None
        ones = lo.full((self.rows,), 1, "f32")
        if padding >= 0:
            self.counted = lo.emit("aten.ne.Scalar", indices, other=padding)
            ones = lo.cast(self.counted, "f32")
        self.size = lo.cast(add_at(lo, self.bags, 0, self.of, ones), "i64")

    def without_padding(self, rows: Value, instead: float) -> Value:
        if self.counted is None:
            return rows
        skipped = self.lo.view(self.lo.emit("aten.logical_not", self.counted), (self.rows, 1))
        return self.lo.emit("aten.masked_fill", rows, skipped, value=instead)


def _at_least_one(lo: Lowerer, size: Value) -> Value:
    some = lo.emit("aten.clamp", lo.cast(size, "f32"), min=1.0)
    return lo.view(some, (lo.shape(size)[0], 1))


def _largest(lo: Lowerer, bags: _Bags, rows: Value) -> tuple[Value, Value]:
    """The largest element per bag and column, and the index that it has; zeros in empty bags."""
    width = lo.shape(rows)[1]
    rows = bags.without_padding(rows, float("-inf"))
    here = lo.emit(
        "aten.eq.Tensor",
        lo.view(progression(lo, 0, bags.bags, 1), (bags.bags, 1, 1)),
        lo.view(bags.of, (1, bags.rows, 1)),
    )
    if bags.counted is not None:
        counted = lo.view(bags.counted, (1, bags.rows, 1))
        here = lo.emit("aten.logical_and", here, counted)
    low = lo.full((), float("-inf"), "f32")
    spread = lo.emit("aten.where", here, lo.view(rows, (1, bags.rows, width)), low)
    top = lo.emit("aten.amax", spread, dim=(1,), keepdim=False)
    at = lo.emit("aten.argmax", spread, dim=1, keepdim=False)
    index = lo.view(take(lo, bags.indices, 0, lo.view(at, (bags.bags * width,))), lo.shape(at))
    empty = lo.view(lo.emit("aten.eq.Scalar", bags.size, other=0), (bags.bags, 1))
    top = lo.emit("aten.masked_fill", top, empty, value=0.0)
    return top, lo.emit("aten.masked_fill", index, empty, value=0.0)


@lowering("aten._embedding_bag", "aten._embedding_bag_forward_only")
def _embedding_bag(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    weight, padding = lo.value(a["weight"]), a["padding_idx"]
    indices = lo.cast(lo.value(a["indices"]), "i64")
    bags = _Bags(lo, indices, lo.cast(lo.value(a["offsets"]), "i64"), padding)
    rows = lo.emit("aten.embedding", weight, indices, padding_idx=-1)
    count = int(node.meta["val"][0].shape[0])
    none = lo.full(tuple(node.meta["val"][3].shape), 0, "i64")
    if a["mode"] == _MAX:
        top, index = _largest(lo, bags, rows)
        return [lo.slice(top, 0, 0, count), bags.of, bags.size, lo.slice(index, 0, 0, count)]
    if a["per_sample_weights"] is not None:
        factors = lo.view(lo.value(a["per_sample_weights"]), (bags.rows, 1))
        rows = lo.emit("aten.mul.Tensor", rows, factors)
    added = add_at(lo, bags.bags, 0, bags.of, bags.without_padding(rows, 0.0))
    if a["mode"] == _MEAN:
        added = lo.emit("aten.div.Tensor", added, _at_least_one(lo, bags.size))
    return [lo.slice(added, 0, 0, count), bags.of, bags.size, none]


@lowering("aten._embedding_bag_backward", "aten._embedding_bag_dense_backward")
def _embedding_bag_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if a.get("sparse"):
        raise UnsupportedOperatorError(
            "embedding_bag with sparse=True has a sparse gradient.", "Leave sparse out."
        )
    grad, indices = lo.value(a["grad"]), lo.cast(lo.value(a["indices"]), "i64")
    if a["mode"] == _MAX:
        return _max_backward(lo, a, grad)
    size, of = lo.value(a["bag_size"]), lo.value(a["offset2bag"])
    if a["mode"] == _MEAN:
        size = lo.slice(size, 0, 0, lo.shape(grad)[0])
        grad = lo.emit("aten.div.Tensor", grad, _at_least_one(lo, size))
    rows = take(lo, grad, 0, of)
    if a["per_sample_weights"] is not None:
        factors = lo.view(lo.value(a["per_sample_weights"]), (lo.shape(indices)[0], 1))
        rows = lo.emit("aten.mul.Tensor", rows, factors)
    return _onto_weights(lo, rows, indices, a, a["padding_idx"])


def _max_backward(lo: Lowerer, a: Arguments, grad: Value) -> Value:
    """Every gradient added to the weight that its bag and column took."""
    bags, width = lo.shape(grad)
    index = lo.value(a["maximum_indices"])
    empty = lo.emit("aten.eq.Scalar", lo.slice(lo.value(a["bag_size"]), 0, 0, bags), other=0)
    grad = lo.emit("aten.masked_fill", grad, lo.view(empty, (bags, 1)), value=0.0)
    row = lo.emit("aten.mul.Scalar", index, other=width)
    column = lo.view(progression(lo, 0, width, 1), (1, width))
    place = lo.view(lo.emit("aten.add.Tensor", row, column, alpha=1), (bags * width,))
    weights = a["num_weights"]
    added = add_at(lo, weights * width, 0, place, lo.view(grad, (bags * width,)))
    return lo.view(added, (weights, width))


@lowering("aten._embedding_bag_per_sample_weights_backward")
def _factors_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    indices: Any = lo.cast(lo.value(a["indices"]), "i64")
    rows = lo.emit("aten.embedding", lo.value(a["weight"]), indices, padding_idx=-1)
    grad = take(lo, lo.value(a["grad"]), 0, lo.value(a["offset2bag"]))
    product = lo.emit("aten.mul.Tensor", grad, rows)
    if a["padding_idx"] >= 0:
        skipped = lo.emit("aten.eq.Scalar", indices, other=a["padding_idx"])
        skipped = lo.view(skipped, (lo.shape(indices)[0], 1))
        product = lo.emit("aten.masked_fill", product, skipped, value=0.0)
    return lo.emit("aten.sum.dim_IntList", product, dim=(1,), keepdim=False)
