"""The operands of a call of a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.devices.arrays import operand as operand
from tallystick.devices.arrays import optional as optional
from tallystick.devices.cuda.tensor import DeviceTensor

Tensors = Sequence[DeviceTensor | None]
Outputs = Sequence[DeviceTensor]
