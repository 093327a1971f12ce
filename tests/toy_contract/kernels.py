"""The kernels, for processor and GPU at once: the device's products over 32 terms, and its sums.

A product over at most 128 terms is one chunk under `ordered/1`, so it is one of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallystick.devices.device import Device, Kernel, Run, is_cuda, replaced
from tallystick.numerics.types import Attrs


def in_short_chunks(
    device: Device, ordinary: Mapping[str, Kernel], names: frozenset[str], chunk: int
) -> Mapping[str, Kernel]:
    """`ordinary` kernels of `device`, with those of `names` in chunks of `chunk` terms."""
    if not ordinary:
        return {}  # no kernels for such a device: operators are refused by name
    add = ordinary["aten.add.Tensor"].run
    return replaced(ordinary, names, lambda _, run: _chunked(device, run, add, chunk))


def _chunked(device: Device, product: Run, add: Run, chunk: int) -> Run:
    rooms: dict[Any, Any] = {}

    def room_like(out: Any) -> Any:
        if not is_cuda(device):
            return np.empty_like(out)
        # A recording of the calls holds the address, so the room stays.
        if out.shape not in rooms:
            rooms[out.shape] = device.contiguous("f32", out.shape)
        return rooms[out.shape]

    def run(attrs: Attrs, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        a, b, out = inputs[0], inputs[1], outputs[0]
        length = a.shape[-1]
        product(attrs, [_part(a, -1, 0, chunk), _part(b, -2, 0, chunk)], [out])
        for begin in range(chunk, length, chunk):
            more = room_like(out)
            product(attrs, [_part(a, -1, begin, chunk), _part(b, -2, begin, chunk)], [more])
            add({"alpha": 1.0}, [out, more], [out])

    return run


def _part(x: Any, axis: int, begin: int, size: int) -> Any:
    """x[…, begin:begin + size, …] along `axis`."""
    size = min(size, x.shape[axis] - begin)
    if isinstance(x, np.ndarray):
        return x[..., begin : begin + size] if axis == -1 else x[..., begin : begin + size, :]
    shape = list(x.shape)
    shape[axis] = size
    return x.device.view(x, begin * x.strides[axis], x.dtype, shape, x.strides)
