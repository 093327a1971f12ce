"""What follows the products on the processor (NUMERICS 2.5, 1.5)."""

from __future__ import annotations

import numpy as np

from tallystick.numerics.operators.common import rn32


def canonical(out: np.ndarray) -> None:
    """Give every NaN of a float32 array the canonical pattern (NUMERICS 1.5)."""
    if out.ndim == 0:
        out = out.reshape(1)
    bad = np.isnan(out)
    if bad.any():
        out[bad] = rn32(float("nan"))


def scale_and_add(out: np.ndarray, c: np.ndarray, alpha: float = 1.0, beta: float = 1.0) -> None:
    """out = alpha·out + beta·c, in binary32; c is broadcast. A factor of 1 is no operation, and
    with beta 0 there is no sum (2.5)."""
    with np.errstate(all="ignore"):
        if alpha != 1:
            np.multiply(out, rn32(alpha), out=out)
        if beta != 0:
            np.add(out, c if beta == 1 else c * rn32(beta), out=out)
    canonical(out)
