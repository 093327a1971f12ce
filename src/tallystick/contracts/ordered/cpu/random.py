"""Kernels of random tensors (NUMERICS 8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.arrays import Arrays, Outputs, as_bytes
from tallystick.devices.kernel import operand
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import integer, number
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.types import Attrs


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
