"""Correctly rounded elementary functions and powers (NUMERICS 5, 10.6)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    check_dtype,
    number,
    operand,
    operands,
    rn32,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs

# Exponents whose power is arithmetic (NUMERICS 10.6); 1 is a copy.
_POWER_KERNELS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def _infer_float(op: str, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    return (t,)


def _register_function(function: str) -> None:
    op = f"aten.{function}"

    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        _core.elementary(function, operand(inputs, 0), outputs[0])

    register(
        OpSpec(
            name=op,
            clause="5",
            attrs={},
            infer=lambda _attrs, types: _infer_float(op, types),
            run=run,
            inplace=((0, 0),),
            op_class="elementwise",
        )
    )


for _function in _core.elementary_names():
    _register_function(_function)


def _run_pow(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out, exponent = operand(inputs, 0), outputs[0], number(attrs, "exponent")
    if exponent == 1.0:
        _core.ew2("mul", x, rn32(1.0), out)  # x, but a NaN becomes canonical (NUMERICS 1.5)
    elif exponent in _POWER_KERNELS:
        _core.ew1(_POWER_KERNELS[exponent], x, out)
    else:
        _core.pow(np.ascontiguousarray(x), rn32(exponent).reshape(1), out)


register(
    OpSpec(
        name="aten.pow.Tensor_Scalar",
        clause="10.6",
        attrs={"exponent": AttrSpec("float")},
        infer=lambda _attrs, types: _infer_float("aten.pow.Tensor_Scalar", types),
        run=_run_pow,
        all_inputs_strided=True,
        inplace=((0, 0),),
        op_class="elementwise",
    )
)
