"""The kernel of quantised weights (NUMERICS 19). Products read them in their place: see dot.py."""

from __future__ import annotations

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import text
from tallystick.numerics.types import Attrs


@kernel("tallystick.dequantize")
def _dequantize(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.dequantize(text(attrs, "format"), operand(inputs, 0), outputs[0])
