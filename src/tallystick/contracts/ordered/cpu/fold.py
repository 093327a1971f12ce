"""The kernel of the fold over micro-batches (NUMERICS 10.12)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import flag
from tallystick.numerics.operators.fold import FOLD, fold_count, split
from tallystick.numerics.types import Attrs

# Elements that are added up at a time: the partial sums of all levels stay in cache.
_STRETCH = 1 << 16
# x + −0 is x for every x that is no NaN (NUMERICS 3.2), and the canonical NaN for a NaN.
_NOTHING = np.float32(-0.0).reshape(())


@kernel(FOLD, strided=True, inplace=((0, 0),))
def _fold(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    out, xs = outputs[0], [operand(inputs, i) for i in range(len(inputs))]
    if len(xs) <= 2:
        _sum(xs, out)
    else:
        rows, flat = [x.reshape(-1) for x in xs], out.reshape(-1)
        for first in range(0, flat.size, _STRETCH):
            here = slice(first, first + _STRETCH)
            _sum([x[here] for x in rows], flat[here])
    count = fold_count(attrs, len(xs))
    if flag(attrs, "mean") and count != 1:
        _core.ew2("div", out, np.float32(count).reshape(()), out)


def _sum(xs: list[np.ndarray], out: np.ndarray) -> None:
    """The sum of `xs` by the split of COMMITMENTS 2.3; `out` may be the first one's memory."""
    if len(xs) == 1:
        _core.ew2("add", xs[0], _NOTHING, out)
        return
    half = split(len(xs))
    left, right = xs[0], xs[half]
    if half > 1:
        _sum(xs[:half], out)
        left = out
    if len(xs) - half > 1:
        right = np.empty_like(out)
        _sum(xs[half:], right)
    _core.ew2("add", left, right, out)
