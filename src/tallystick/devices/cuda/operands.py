"""The operands of a call of a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand as operand
from tallystick.devices.kernel import optional as optional
from tallystick.devices.kernel import padded as padded
from tallystick.devices.kernel import wanted as wanted

Tensors = Sequence[DeviceTensor | None]
Outputs = Sequence[DeviceTensor]
