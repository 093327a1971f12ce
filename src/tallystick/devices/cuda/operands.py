"""The operands of a call of a kernel on a GPU; refusals of indices outside of an axis (NUMERICS
1.13)."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.devices.cuda.launch import launch_over, pointer, space, whole
from tallystick.devices.cuda.tensor import DeviceTensor

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
