"""Single nodes over a large vocabulary, executed by the contract's kernels, checked in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tallystick.contracts.ordered.cpu import run_of
from tallystick.numerics.types import DTYPES, Attrs, TensorType

Array = np.ndarray
_ROWS = 4096
_EPS = 2.0**-24


def _near(found: Array, wanted: Array, scale: Array | float, terms: int) -> None:
    """Within the error of a sum of `terms` float32 products whose sizes add up to `scale`."""
    worst = float((np.abs(found - wanted) / (np.asarray(scale) * terms * _EPS + 1e-30)).max())
    assert worst <= 1, worst


def _mm(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    a, b = ins
    for start in range(0, a.shape[0], _ROWS):
        rows = a[start : start + _ROWS].astype(np.float64)
        for first in range(0, b.shape[1], _ROWS):
            columns = b[:, first : first + _ROWS].astype(np.float64)
            found = outs[0][start : start + _ROWS, first : first + _ROWS]
            _near(found, rows @ columns, np.abs(rows) @ np.abs(columns), a.shape[1])


def _embedding(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    assert (outs[0] == ins[0][ins[1]]).all()


def _embedding_backward(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    gradient, ids = ins
    rows = gradient.reshape(ids.size, -1).astype(np.float64)
    wanted: dict[int, Array] = {}
    for row, place in zip(rows, ids.reshape(-1).tolist(), strict=True):
        wanted[place] = wanted.get(place, 0) + row
    for place, value in wanted.items():
        _near(outs[0][place], value, np.abs(rows).max(), ids.size)
    assert np.count_nonzero(outs[0].any(axis=1)) == len(wanted)


def _add(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    assert (outs[0] == ins[0] + ins[1]).all()


def _sum_squares(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    wanted = sum(
        float(np.square(block.astype(np.float64)).sum())
        for block in np.array_split(ins[0].reshape(-1), 256)
    )
    assert abs(float(outs[0]) - wanted) <= 1e-5 * wanted


def _losses(ins: Sequence[Array]) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.from_numpy(ins[0].astype(np.float64)).requires_grad_()
    return logits, torch.nn.functional.cross_entropy(logits, torch.from_numpy(ins[1]))


def _cross_entropy(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    assert abs(float(outs[0]) - float(_losses(ins)[1].detach())) <= 1e-6 * abs(float(outs[0]))


def _cross_entropy_backward(attrs: Attrs, ins: Sequence[Array], outs: Sequence[Array]) -> None:
    logits, loss = _losses(ins[1:3])
    (gradient,) = torch.autograd.grad(loss, logits)
    wanted = gradient.numpy() * float(ins[0])
    assert float(np.abs(outs[0] - wanted).max()) <= 1e-6 * float(np.abs(wanted).max())


CHECKS: dict[str, Callable[[Attrs, Sequence[Array], Sequence[Array]], None]] = {
    "aten.add.Tensor": _add,
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": _embedding_backward,
    "aten.mm": _mm,
    "tallystick.cross_entropy": _cross_entropy,
    "tallystick.cross_entropy_backward": _cross_entropy_backward,
    "tallystick.sum_squares": _sum_squares,
}


def _operand(generator: np.random.Generator, type_: TensorType | None) -> Array | None:
    if type_ is None:
        return None
    if type_.dtype == "i64":
        return generator.integers(0, 1000, type_.shape)
    return generator.standard_normal(type_.shape, dtype=np.float32)


def check(
    op: str,
    attrs: Attrs,
    types: Sequence[TensorType | None],
    out_types: Sequence[TensorType],
) -> None:
    """Execute `op` on random operands of these types; AssertionError beyond float32's error."""
    generator = np.random.default_rng(1)
    ins = [_operand(generator, type_) for type_ in types]
    if op == "tallystick.cross_entropy_backward":  # the forward pass's own row results
        saved = [np.empty(t.shape, DTYPES[t.dtype]) for t in (TensorType("f32", ()), *types[3:])]  # type: ignore[union-attr]
        _run("tallystick.cross_entropy", attrs, ins[1:3], saved)
        ins[3:] = saved[1:]
    outs = [np.empty(type_.shape, DTYPES[type_.dtype]) for type_ in out_types]
    _run(op, attrs, ins, outs)
    CHECKS[op](attrs, ins, outs)  # type: ignore[arg-type]


def _run(op: str, attrs: Attrs, ins: Sequence[Any], outs: Sequence[Array]) -> None:
    run_of(op)(attrs, list(ins), list(outs))
