"""Batch normalisation: training, its gradient, and by running statistics (NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    Result,
    Types,
    check_dtype,
    check_shape,
    describe,
    flag,
    operands,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

_BACKWARD = "aten.native_batch_norm_backward"
_EPS = AttrSpec("float", 1e-5)


def _channels(op: str, x: TensorType) -> TensorType:
    """f32[C] of an x[N, C, ...]. Raises UsageError."""
    check_dtype(op, x, FLOATS)
    if len(x.shape) < 2:
        raise UsageError(f"{op}: x needs a batch axis and a channel axis, got {x}.")
    return TensorType("f32", x.shape[1:2])


def _padded(inputs: Types, count: int) -> Types:
    """`inputs` with absent ones written out."""
    return inputs + (None,) * (count - len(inputs))


def _per_channel(op: str, channels: TensorType, given: Types) -> None:
    """Every one of `given` is absent or f32[C]. Raises UsageError."""
    for t in given:
        if t is not None:
            check_dtype(op, t, FLOATS)
            check_shape(op, "what is per channel", t, channels.shape)


def _both(op: str, pair: Types, wanted: bool | None, what: str) -> bool:
    """True if both of `pair` are present. Raises UsageError unless that is `wanted` (None: any)."""
    here = [t is not None for t in pair]
    if here[0] != here[1] or (wanted is not None and here[0] != wanted):
        needs = "both or neither" if wanted is None else ("present" if wanted else "absent")
        raise UsageError(f"{op}: {what} must be {needs}, got {describe(pair)}.")
    return here[0]


# --- training (6.12) ------------------------------------------------------------------------------
@operator(
    "aten._native_batch_norm_legit_functional",
    clause="6.12",
    operands=("x", "weight?", "bias?", "running_mean?", "running_var?"),
    attrs={"momentum": AttrSpec("float", 0.1), "eps": _EPS},
    op_class="composite",
)
def _training(op: str, attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(op, inputs[:1], 1)
    channels = _channels(op, x)
    rest = _padded(inputs, 5)[1:]
    _per_channel(op, channels, rest)
    running = _both(op, rest[2:], None, "running mean and variance")
    return (x,) + (channels,) * (4 if running else 2)


# --- the gradient (6.13) --------------------------------------------------------------------------
def output_mask(attrs: Attrs) -> tuple[bool, bool, bool]:
    """True for each of dx, dw, db that is an output. Raises UsageError."""
    mask = attrs["output_mask"]
    if not isinstance(mask, tuple) or len(mask) != 3:
        raise UsageError(f"{_BACKWARD}: output_mask must have three entries, got {mask!r}.")
    return bool(mask[0]), bool(mask[1]), bool(mask[2])


@operator(
    _BACKWARD,
    clause="6.13",
    operands=("grad", "x", "weight?", "running_mean?", "running_var?", "mean?", "rstd?"),
    attrs={
        "train": AttrSpec("bool", True),
        "eps": _EPS,
        "output_mask": AttrSpec("bools", (True, True, True)),
    },
    op_class="composite",
)
def _backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    grad, x = operands(op, inputs[:2], 2)
    channels = _channels(op, x)
    check_dtype(op, grad, FLOATS)
    check_shape(op, "the gradient", grad, x.shape)
    rest = _padded(inputs, 7)[2:]
    _per_channel(op, channels, rest)
    train = flag(attrs, "train")
    _both(op, rest[1:3], not train, f"running statistics with train={train}")
    _both(op, rest[3:5], train, f"mean and rstd with train={train}")
    wanted = zip((x, channels, channels), output_mask(attrs), strict=True)
    return tuple(t for t, on in wanted if on)


def statistics_at(attrs: Attrs) -> tuple[int, int]:
    """Positions of the statistics: mean and rstd, or running mean and variance."""
    return (5, 6) if flag(attrs, "train") else (3, 4)


# --- by running statistics (6.14) -----------------------------------------------------------------
@operator(
    "aten._native_batch_norm_legit_no_training",
    clause="6.14",
    operands=("x", "weight?", "bias?", "running_mean", "running_var"),
    attrs={"eps": _EPS},
    op_class="composite",
)
def _by_running(op: str, attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(op, inputs[:1], 1)
    channels = _channels(op, x)
    rest = _padded(inputs, 5)[1:]
    _per_channel(op, channels, rest)
    _both(op, rest[2:], True, "running mean and variance")
    return (x,)
