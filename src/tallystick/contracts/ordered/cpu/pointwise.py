"""Kernels of every element by itself: the pointwise operators, by the core's loop of a call, else
by numpy (NUMERICS 5, 6, 10); random tensors (8); the optimizers' steps (11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.device import Arrays, Outputs, as_bytes, operand, optional, padded
from tallystick.errors import RefusedOperandsError
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
from tallystick.numerics.operators.common import flag, integer, number, rn32
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs
from tallystick.numerics.values.graph import FUNCTIONS

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


# --- random tensors (8) ---------------------------------------------------------------------------
def _key(op: str, inputs: Arrays) -> tuple[int, int]:
    """(seed, step) from the rng input (NUMERICS 8.3). Raises RefusedOperandsError out of range."""
    seed, step = (int(v) for v in operand(inputs, 0))
    if seed < 0 or not 0 <= step < WORD:
        raise RefusedOperandsError(
            op, f"seed {seed} must not be negative, step {step} must be below 2^32."
        )
    return seed, step


@kernel("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    seed, step = _key(op, inputs)
    # Scaling by a power of two is exact, and round() is to even (NUMERICS 8.4).
    threshold = round(number(attrs, "p") * WORD)
    _core.dropout_mask(seed, step, integer(attrs, "draw"), threshold, as_bytes(outputs[0]))


def _numbers(op: str, function: Callable[..., None], first: str, second: str) -> None:
    @kernel(op)
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        seed_and_step, draw = _key(op, inputs), integer(attrs, "draw")
        function(*seed_and_step, draw, number(attrs, first), number(attrs, second), outputs[0])


_numbers("tallystick.uniform", _core.uniform, "low", "high")
_numbers("tallystick.normal", _core.normal, "mean", "std")


# --- Gumbel noise (NUMERICS 8.8) ------------------------------------------------------------------
def check_places(op: str, place: np.ndarray) -> None:
    """Raises RefusedOperandsError for a place outside of [0, 2^32)."""
    outside = (place < 0) | (place >= WORD)
    if outside.any():
        raise RefusedOperandsError(op, f"place {place[outside][0]} is outside [0, 2^32).")


@kernel("tallystick.gumbel", named=True)
def _gumbel(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    place, out = operand(inputs, 1), outputs[0]
    key, draw = _key(op, inputs), integer(attrs, "draw")
    check_places(op, place)
    _core.gumbel(*key, draw, place, out.shape[1], out)


# --- the optimizers' steps (11) -------------------------------------------------------------------
_OWN = ((0, 0), (2, 1), (3, 2))


def _factor(value: float) -> float:
    """A binary64 factor for the core, which rounds it to binary32 (NUMERICS 1.9); NaN canonical."""
    return float(value) if value == value else float(rn32(value))


def _scalar64(inputs: Arrays, position: int) -> np.float64:
    return cast(np.float64, operand(inputs, position)[()])


# --- adamw_step, adam_step (11.2, 11.3) -----------------------------------------------------------
@kernel("tallystick.adamw_step", "tallystick.adam_step", named=True, inplace=_OWN)
def _adam(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    decoupled = op == "tallystick.adamw_step"
    lr, beta1_power, beta2_power = (_scalar64(inputs, i) for i in (4, 5, 6))
    weight_decay = np.float64(number(attrs, "weight_decay"))
    beta1, beta2 = np.float64(number(attrs, "beta1")), np.float64(number(attrs, "beta2"))
    one = np.float64(1)
    # Binary64, each operation rounded, then RN32 in the core (NUMERICS 11.2).
    with np.errstate(all="ignore"):
        step_size, root_bc2 = lr / (one - beta1_power), np.sqrt(one - beta2_power)
        decay = one - lr * weight_decay if decoupled else weight_decay
    p, g, m, v = (operand(inputs, i) for i in range(4))
    p_out, m_out, v_out = outputs
    _core.adam_step(
        p, g, m, v, optional(inputs, 7), p_out, m_out, v_out, _factor(one - beta1), _factor(beta2),
        _factor(one - beta2), _factor(number(attrs, "eps")), _factor(step_size), _factor(root_bc2),
        _factor(decay), bool(not decoupled and weight_decay != 0), decoupled,
    )  # fmt: skip


# --- sgd_step (11.4) ------------------------------------------------------------------------------
@kernel("tallystick.sgd_step", inplace=((0, 0), (2, 1)))
def _sgd(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    (p, g, buffer, lr, coefficient), (p_out, buffer_out) = padded(inputs, 5), padded(outputs, 2)
    weight_decay = number(attrs, "weight_decay")
    _core.sgd_step(
        p, g, buffer, coefficient, p_out, buffer_out, _factor(lr[()]),
        _factor(number(attrs, "momentum")), _factor(1.0 - number(attrs, "dampening")),
        _factor(weight_decay), weight_decay != 0, flag(attrs, "nesterov"),
    )  # fmt: skip


# --- clip_coef (11.6) -----------------------------------------------------------------------------
@kernel("tallystick.clip_coef")
def _clip_coef(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    squares = np.stack([operand(inputs, i) for i in range(len(inputs))])
    _core.clip_coef(squares, float(rn32(number(attrs, "max_norm"))), *outputs)
