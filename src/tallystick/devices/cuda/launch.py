"""The operands of a call on a GPU, refusals of indices outside of an axis (NUMERICS 1.13), and the
parameters of a launch: slots of 8 bytes, as native/cuda/device.hpp reads them; those of the
pointwise kernels as native/cuda/point.hpp does."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.limits import LIMITS

AXES = LIMITS.tensor_rank  # kAxes
THREADS = 256
# Blocks of a launch in which every thread takes several items: enough for any device there is.
MOST_BLOCKS = 8192


def whole(*numbers: int) -> bytes:
    """Slots of int64_t."""
    return struct.pack(f"<{len(numbers)}q", *numbers)


def pointer(*tensors: DeviceTensor | None) -> bytes:
    """Slots of pointers; a null pointer for None."""
    return struct.pack(f"<{len(tensors)}Q", *(0 if x is None else x.address for x in tensors))


def f32(*values: float | np.floating) -> bytes:
    """Slots F32. A binary64 value is rounded once to binary32 (NUMERICS 1.9)."""
    with np.errstate(all="ignore"):
        return b"".join(np.float32(v).tobytes() + bytes(4) for v in values)


def f64(*values: float | np.floating) -> bytes:
    """Slots F64."""
    return b"".join(np.float64(v).tobytes() for v in values)


def padded(numbers: Sequence[int]) -> bytes:
    """Slots int64_t[kAxes], or Strides."""
    return whole(*numbers, *[0] * (AXES - len(numbers)))


def layout(sizes: Sequence[int], steps: Sequence[Sequence[int]]) -> bytes:
    """A Space of `sizes`, then the Strides of each operand."""
    return whole(math.prod(sizes), len(sizes)) + padded(sizes) + b"".join(map(padded, steps))


def merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The sizes and strides of the same iteration over fewer axes.

    Axes of one element are left out. Two axes become one where all operands step through both as
    through one. There is at least one axis.
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [of[axis] for of in strides]
        if sizes and all(of[-1] == own * size for of, own in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for of, own in zip(steps, here, strict=True):
                of[-1] = own
        else:
            sizes.append(size)
            for of, own in zip(steps, here, strict=True):
                of.append(own)
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, steps


def spread(x: DeviceTensor, shape: Sequence[int]) -> list[int]:
    """The strides of x in elements, broadcast to `shape` (NUMERICS 10.1)."""
    missing = len(shape) - x.ndim
    pairs = zip(x.shape, x.steps, strict=True)
    return [0] * missing + [0 if size == 1 else step for size, step in pairs]


def space(shape: Sequence[int], *tensors: DeviceTensor) -> bytes:
    """A Space of `shape`, then the Strides of each tensor, which is broadcast to that shape."""
    sizes, steps = merged(shape, [spread(x, shape) for x in tensors])
    return layout(sizes, steps)


def over(count: int, threads: int = THREADS) -> tuple[int, int, int]:
    """A grid whose threads take all of `count` items, in steps of the whole grid."""
    return (max(1, min(-(-count // threads), MOST_BLOCKS)), 1, 1)


def launch_over(
    out: DeviceTensor, kernel: str, count: int, params: bytes, threads: int = THREADS, each: int = 1
) -> None:
    """Start `kernel` over `count` items, `each` of them for a thread at a time, on the device of
    `out`; nothing where there are none."""
    if count:
        out.device.launch(kernel, over(-(-count // each), threads), threads, params)


Tensors = Sequence[DeviceTensor | None]
Outputs = Sequence[DeviceTensor]


def outside(size: int) -> str:
    """The reason of a refusal."""
    return f"an index is outside [0, {size})"


def check_indices(op: str, index: DeviceTensor, size: int) -> bytes:
    """Refuse every index outside of [0, size), before anything is written.

    Returns the slots Refusal of the check: a later kernel of the call that gets them can ask if the
    indices were refused.
    """
    refusals, why = index.device.refusals, outside(size)
    slots = refusals.slots(op, why)
    params = space(index.shape, index) + pointer(index) + whole(size) + slots
    launch_over(index, "movement_check", index.size, params)
    refusals.after(op, why)
    return slots


# --- pointwise kernels ----------------------------------------------------------------------------
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
