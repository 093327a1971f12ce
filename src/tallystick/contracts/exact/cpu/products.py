"""mm, bmm and addmm of `exact/1` (NUMERICS 17.3; 2.4, 2.5)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.exact.contract import BLOCK_LENGTHS
from tallystick.contracts.exact.cpu.integers import dots, integers_of
from tallystick.contracts.exact.cpu.operators import exact_kernel
from tallystick.contracts.rounded.cpu.products import canonical
from tallystick.devices.arrays import Arrays, Outputs, operand
from tallystick.numerics.operators.common import number, rn32
from tallystick.numerics.types import Attrs


def _rows(x: np.ndarray) -> np.ndarray:
    """f32[G,R,K] as f32[G·R,K], a view where the strides allow it."""
    flat: np.ndarray = x.reshape(x.shape[0] * x.shape[1], x.shape[2])
    return flat


def batched(a: np.ndarray, b: np.ndarray, width: int) -> np.ndarray:
    """f32[G,M,N]: the DOTs of a f32[G,M,K] and b f32[G,N,K], any strides (17.3)."""
    (batch, m, k), n = a.shape, b.shape[1]
    segment = BLOCK_LENGTHS[width]
    left, right = integers_of(_rows(a), segment, width), integers_of(_rows(b), segment, width)
    am, bm = left.m.reshape(batch, m, k), right.m.reshape(batch, n, k)
    segments = left.mu.shape[1]
    amu, bmu = left.mu.reshape(batch, m, segments), right.mu.reshape(batch, n, segments)

    def parts(
        s: int, begin: int, end: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return am[:, :, begin:end], bm[:, :, begin:end], amu[:, :, s], bmu[:, :, s]

    out = dots((batch, m, n), k, segment, width, parts)
    rows, columns = left.unruly.reshape(batch, m), right.unruly.reshape(batch, n)
    if rows.any() or columns.any():
        ordinary = np.empty_like(out)  # 17.7
        _core.bmm(a, b.swapaxes(1, 2), ordinary)
        np.copyto(out, ordinary, where=rows[:, :, None] | columns[:, None, :])
    return out


@exact_kernel("aten.mm")
def _mm(width: int, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    np.copyto(outputs[0], batched(a[None], b.T[None], width)[0])


@exact_kernel("aten.bmm")
def _bmm(width: int, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    np.copyto(outputs[0], batched(a, b.swapaxes(1, 2), width))


@exact_kernel("aten.addmm")
def _addmm(width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    c, a, b = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    alpha, beta = number(attrs, "alpha"), number(attrs, "beta")
    d = batched(a[None], b.T[None], width)[0]
    with np.errstate(all="ignore"):
        if alpha != 1:
            np.multiply(d, rn32(alpha), out=d)
        if beta != 0:
            np.add(d, c if beta == 1 else c * rn32(beta), out=d)
    canonical(d)
    np.copyto(outputs[0], d)
