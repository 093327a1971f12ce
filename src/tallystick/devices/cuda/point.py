"""Launches of the pointwise kernels: the parameters of native/cuda/point.hpp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick.devices.cuda.launch import f32, launch_over, layout, merged, pointer, spread, whole
from tallystick.devices.cuda.tensor import DeviceTensor

_ACCESS = 16  # bytes of the widest access
FOUR = 4


def constant_bits(value: np.ndarray | np.generic) -> int:
    """The bits of a number, an operand that is the same for every element."""
    return int.from_bytes(value.tobytes(), "little")


def aligned(*tensors: DeviceTensor | None) -> bool:
    """True if four neighbouring elements of each can be taken at once, from its first one."""
    return all(x is None or x.address % min(_ACCESS, FOUR * x.itemsize) == 0 for x in tensors)


def takes_fours(
    out: DeviceTensor,
    operands: Sequence[DeviceTensor | int],
    sizes: Sequence[int],
    steps: Sequence[Sequence[int]],
) -> bool:
    """The condition of Point::fours (point.hpp), for the merged sizes and strides of a launch."""
    if not aligned(out) or (len(sizes) > 1 and sizes[-1] % FOUR):
        return False
    for x, own in zip(operands, steps, strict=True):
        if isinstance(x, int) or own[-1] == 0:
            continue
        if own[-1] != 1 or not aligned(x) or any(step % FOUR for step in own[:-1]):
            return False
    return True


def point(
    kernel: str,
    out: DeviceTensor,
    operands: Sequence[DeviceTensor | int],
    p0: float = 0,
    p1: float = 0,
    more: bytes = b"",
) -> None:
    """Start `kernel` over the elements of `out`.

    Operands are tensors of any strides, broadcast to the shape of `out`, or the bits of a constant.
    `p0` and `p1` are binary64 numbers that are rounded once to binary32. `more`: the slots that
    follow.
    """
    shape = out.shape
    strides = [[0] * len(shape) if isinstance(x, int) else spread(x, shape) for x in operands]
    sizes, steps = merged(shape, strides)
    params = layout(sizes, steps)
    for x in operands:
        params += (
            bytes(8) + x.to_bytes(8, "little") if isinstance(x, int) else pointer(x) + bytes(8)
        )
    params += pointer(out) + whole(takes_fours(out, operands, sizes, steps)) + f32(p0, p1) + more
    launch_over(out, kernel, out.size, params, each=FOUR)
