"""The fold over micro-batches (NUMERICS 10.12): calls of native/cuda/pointwise.cu, an addition
each."""

from __future__ import annotations

import numpy as np

from tallystick.contracts.ordered.cuda.pointwise import point2
from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.point import constant_bits
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import flag, rn32
from tallystick.numerics.operators.fold import FOLD, fold_count, split
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Room

_NOTHING = constant_bits(np.float32(-0.0))


@cuda_kernel(FOLD, strided=True, inplace=((0, 0),))
def _fold(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out, xs = outputs[0], [operand(inputs, i) for i in range(len(inputs))]
    if not out.size:
        return
    if len(xs) <= 2:
        _sum(xs, out, [])
    else:
        room = Room(out.device)
        # Each level of the sum needs at most one partial sum beside the result.
        places = [room.take(out.nbytes) for _ in range((len(xs) - 1).bit_length())]
        _sum(xs, out, [out.dense(room.at(place)) for place in places])
    count = fold_count(attrs, len(xs))
    if flag(attrs, "mean") and count != 1:
        point2("div", out, constant_bits(rn32(float(count))), out)


def _sum(xs: list[DeviceTensor], out: DeviceTensor, spare: list[DeviceTensor]) -> None:
    """The sum of `xs` by the split of COMMITMENTS 2.3; `out` may be the first one's memory."""
    if len(xs) == 1:
        point2("add", xs[0], _NOTHING, out)
        return
    half = split(len(xs))
    left, right = xs[0], xs[half]
    if half > 1:
        _sum(xs[:half], out, spare)
        left = out
    if len(xs) - half > 1:
        right = spare[-1]
        _sum(xs[half:], right, spare[:-1])
    point2("add", left, right, out)
