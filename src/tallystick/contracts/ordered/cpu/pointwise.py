"""Kernels of the pointwise operators: the core's loop of a call, else numpy (NUMERICS 5, 6, 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.arrays import Arrays, Outputs, as_bytes
from tallystick.kernels.elements import element_values
from tallystick.kernels.loops import (
    FUNCTION,
    POWER,
    WHOLE,
    LoopCall,
    call_of,
    deciding,
    pointwise_operators,
    storage_shared,
)
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs
from tallystick.numerics.values.primitives import FUNCTIONS

_LOOPS: dict[int, Any] = {1: _core.ew1, 2: _core.ew2, 3: _core.ew3}
# Fills the output from attributes and operands.
Fill = Callable[[Attrs, Any, np.ndarray], None]


def _fill(spec: OpSpec, call: LoopCall | None) -> Fill:
    """What computes every call that is decided as this one."""
    if call is None or call.family == WHOLE:

        def by_numpy(attrs: Attrs, inputs: Any, out: np.ndarray) -> None:
            out[...] = element_values(spec, attrs, inputs)[0]

        return by_numpy
    name = call.name
    if call.family == FUNCTION:
        return lambda _, inputs, out: _core.elementary(name, np.ascontiguousarray(inputs[0]), out)
    if call.family == POWER:

        def power(attrs: Attrs, inputs: Any, out: np.ndarray) -> None:
            x, exponent = call.gathered(spec.name, attrs, inputs)
            _core.pow(np.ascontiguousarray(x), exponent.reshape(1), out)

        return power
    return _by_loop(spec.name, call)


def _by_loop(op: str, call: LoopCall) -> Fill:
    name, loop = call.name, _LOOPS[len(call.operands)]
    if not call.masks and call.operands == tuple(range(len(call.operands))):  # most, quickly
        if call.parameters:
            return lambda attrs, inputs, out: loop(
                name, *inputs, out, *call.numbers(op, attrs, inputs)
            )
        return lambda _, inputs, out: loop(name, *inputs, out)

    if not call.masks:
        return lambda attrs, inputs, out: loop(
            name, *call.gathered(op, attrs, inputs), out, *call.numbers(op, attrs, inputs)
        )

    def masked(attrs: Attrs, inputs: Any, out: np.ndarray) -> None:
        gathered = call.gathered(op, attrs, inputs)
        operands = [as_bytes(x) if x.dtype == np.bool_ else x for x in gathered]
        to = as_bytes(out) if out.dtype == np.bool_ else out
        loop(name, *operands, to, *call.numbers(op, attrs, inputs))

    return masked


def _attach(spec: OpSpec) -> None:
    name, conditions = spec.name, deciding(spec)
    known: dict[Any, Fill] = {}

    @kernel(name, strided=name[5:] not in FUNCTIONS, inplace=storage_shared(spec))
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        key: Any = inputs[0].dtype.num  # type: ignore[union-attr]  # the declaration refused None
        if conditions:
            key = (key, *[condition.holds(attrs, attrs.keys()) for condition in conditions])
        fill = known.get(key)
        if fill is None:
            dtypes = [DTYPE_NAMES[x.dtype] for x in inputs if x is not None]
            fill = known[key] = _fill(spec, call_of(name, attrs, dtypes))
        fill(attrs, inputs, outputs[0])


for _spec in pointwise_operators():
    _attach(_spec)
