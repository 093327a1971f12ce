"""Kernels of elementary functions and powers (NUMERICS 5, 10.6)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.kernels.cpu.common import Arrays, Outputs, operand
from tallystick.kernels.table import kernel
from tallystick.numerics.operators.common import number, rn32
from tallystick.numerics.operators.elementary import FUNCTIONS
from tallystick.numerics.types import Attrs

# Exponents whose power is plain arithmetic (NUMERICS 10.6); exponent 1 is a copy.
_POWER_KERNELS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def _function(name: str) -> None:
    @kernel(f"aten.{name}", inplace=((0, 0),))
    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        _core.elementary(name, operand(inputs, 0), outputs[0])


for _name in FUNCTIONS:
    _function(_name)


@kernel("aten.pow.Tensor_Scalar", strided=True, inplace=((0, 0),))
def _pow(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out, exponent = operand(inputs, 0), outputs[0], number(attrs, "exponent")
    if exponent == 1.0:
        _core.ew2("mul", x, rn32(1.0), out)  # x, but a NaN becomes canonical (NUMERICS 1.5)
    elif exponent in _POWER_KERNELS:
        _core.ew1(_POWER_KERNELS[exponent], x, out)
    else:
        _core.pow(np.ascontiguousarray(x), rn32(exponent).reshape(1), out)
