"""Opening rules of operators whose output element needs one element of each operand.

They are elementwise operators, gelu, and the optimizers' updates (NUMERICS 6, 8.5, 10, 11). The
rule executes the operator itself on one element.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.operators.common import number, text
from tallystick.numerics.types import TensorType
from tallystick.opening.approx import Approx, at_most_one
from tallystick.opening.arithmetic import canonical, only, quotient, rn32, root
from tallystick.opening.quantity import (
    Array,
    Index,
    Local,
    Needs,
    Quantity,
    RefusedOperandsError,
    Site,
    Source,
    Terms,
    opening,
)

_PAIRS = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
_ELEMENTARY = (
    "exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt", "expm1", "log1p", "exp2", "log2",
)  # fmt: skip
_PLAIN = (
    "maximum", "minimum", "logical_and", "logical_or", "logical_not", "bitwise_not", "neg", "abs",
    "reciprocal", "sqrt", "square", "relu", "silu", "leaky_relu", "clamp", "silu_backward",
    "tanh_backward", "sigmoid_backward", "threshold_backward", "_to_copy", "gelu", "gelu_backward",
)  # fmt: skip
POINTWISE = (
    *(f"aten.{name}.{form}" for name in _PAIRS for form in ("Tensor", "Scalar")),
    *(f"aten.{name}" for name in (*_ELEMENTARY, *_PLAIN)),
    "aten.bitwise_and.Tensor",
    "aten.bitwise_or.Tensor",
    "aten.floor_divide",
    "aten.pow.Tensor_Scalar",
    "tallystick.mask_scale",
    "tallystick.beta_power",
    "tallystick.adamw_step",
    "tallystick.adam_step",
    "tallystick.sgd_step",
)


def coordinates(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major position `element` as one coordinate per axis."""
    found = []
    for size in reversed(shape):
        element, at = divmod(element, size)
        found.append(at)
    return tuple(reversed(found))


def position(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Row-major position of coordinates `at`."""
    flat = 0
    for size, here in zip(shape, at, strict=True):
        flat = flat * size + here
    return flat


def broadcast_position(element: int, out: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The position of element `element` of shape `out` in an operand broadcast from `shape`."""
    at = coordinates(element, out)[len(out) - len(shape) :]
    return position(tuple(0 if n == 1 else k for k, n in zip(at, shape, strict=True)), shape)


def one(source: Source, operand: int, flat: int) -> Array:
    """One element of an operand as an array of shape (1,)."""
    return source.read(operand, np.array([flat], dtype=np.int64))


def check_inside(op: str, index: Array, size: int) -> None:
    """The indices are in [0, size), as the kernels check (NUMERICS 1.13).

    Raises RefusedOperandsError.
    """
    outside = (index < 0) | (index >= size)
    if outside.any():
        raise RefusedOperandsError(op, f"index {index[outside][0]} is outside [0, {size}).")


def operand_of(site: Site, source: Source, number_: int, type_: TensorType) -> Array:
    """The operand's element that goes into the site's element, broadcast (NUMERICS 10.1)."""
    flat = broadcast_position(site.element, site.outputs[site.out].shape, type_.shape)
    read = one(source, number_, flat)
    return read if type_.shape else read.reshape(())


@opening(*POINTWISE)
def _pointwise(site: Site) -> Quantity:
    def compute(source: Source, _: Needs) -> Any:
        given = [
            None if type_ is None else operand_of(site, source, k, type_)
            for k, type_ in enumerate(site.inputs)
        ]
        attributes = cast(dict[str, Any], dict(site.attrs))
        result = evaluate(site.op, *given, **attributes)  # raises RefusedOperandsError
        chosen = result[site.out] if isinstance(result, tuple) else result
        return np.asarray(chosen).reshape(-1)[0]

    return Local("out", site.outputs[site.out].dtype, compute)


@opening("aten.mse_loss_backward")
def _mse_loss_backward(site: Site) -> Quantity:
    """NUMERICS 7.4: the number of elements is the whole tensor's."""
    types = [t for t in site.inputs if t is not None]
    count = math.prod(types[1].shape)

    @np.errstate(all="ignore")
    def compute(source: Source, _: Needs) -> Any:
        g, x, y = (operand_of(site, source, k, t).reshape(1) for k, t in enumerate(types))
        doubled = (np.float32(2) * (x - y)) * g
        mean = text(site.attrs, "reduction") == "mean"
        return only(quotient(doubled, count) if mean else doubled)

    return Local("out", "f32", compute)


@opening("tallystick.clip_coef")
def _clip_coef(site: Site) -> Quantity:
    """NUMERICS 11.6. The sums of squares are terms, so that the game opens one of them, not all."""
    count = len(site.inputs)

    def square(i: int) -> Quantity:
        return Local(f"s[{i}]", "f32", lambda source, _: one(source, i, 0)[0])

    def squares(source: Source, _: Needs, index: Index) -> Array:
        return np.array([one(source, int(i), 0)[0] for i in index], dtype=np.float32)

    total = Terms("total", "f32", count, square, squares)

    def norm_of(_: Source, needs: Needs) -> Any:
        return canonical(root(needs[0]))

    norm = Local("norm", "f32", norm_of, (total,))
    if site.out == 1:
        return norm
    limit = rn32(number(site.attrs, "max_norm"))

    @np.errstate(all="ignore")
    def coefficient(_: Source, needs: Needs) -> Any:
        if isinstance(needs[0], Approx):  # §11's attributes and constants stay binary64
            ratio_of = number(site.attrs, "max_norm") / (needs[0] + 1e-6)
            return at_most_one(ratio_of)
        ratio = np.asarray(limit / (needs[0] + rn32(1e-6)), dtype=np.float32).reshape(1)
        return evaluate("aten.minimum", canonical(ratio), np.ones(1, np.float32))[0]

    return Local("coefficient", "f32", coefficient, (norm,))
