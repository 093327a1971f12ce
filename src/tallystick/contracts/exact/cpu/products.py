"""mm, bmm and addmm of `exact/1` (NUMERICS 17.3; 2.4, 2.5)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.exact.contract import BLOCK_LENGTHS
from tallystick.contracts.exact.cpu import exact_kernel
from tallystick.contracts.exact.cpu.integers import Factors, dots, integers_of
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.numerics.types import Attrs
from tallystick.products.following import scale_and_add
from tallystick.products.operators import MATRIX_OPERATORS, matrices


def _batched(a: np.ndarray, b: np.ndarray, width: int) -> np.ndarray:
    """f32[G,M,N]: the DOTs of a f32[G,M,K] and b f32[G,K,N], any strides (17.3)."""
    (batch, m, k), n = a.shape, b.shape[2]
    segment = BLOCK_LENGTHS[width]
    left = integers_of(a.reshape(batch * m, k), segment, width)
    right = integers_of(b.swapaxes(1, 2).reshape(batch * n, k), segment, width)
    am, bm = left.m.reshape(batch, m, k), right.m.reshape(batch, n, k)

    def parts(s: int, begin: int, end: int) -> Factors:
        mu_a, mu_b = left.mu[:, s].reshape(batch, m), right.mu[:, s].reshape(batch, n)
        return am[:, :, begin:end], bm[:, :, begin:end], mu_a, mu_b

    out = dots((batch, m, n), k, segment, width, parts)
    rows, columns = left.unruly.reshape(batch, m), right.unruly.reshape(batch, n)
    if rows.any() or columns.any():
        ordinary = np.empty_like(out)  # 17.7
        _core.bmm(a, b, ordinary)
        np.copyto(out, ordinary, where=rows[:, :, None] | columns[:, None, :])
    return out


@exact_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, width: int, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    batch, m, n, k = product.sizes
    made = _batched(product.a.reshape(batch, m, k), product.b.reshape(batch, k, n), width)
    made = made.reshape(product.out.shape)
    if product.c is not None:
        scale_and_add(made, product.c, product.alpha, product.beta)
    np.copyto(product.out, made)
