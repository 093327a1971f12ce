"""Batch normalisation: training, its gradient, and by running statistics (NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    check_dtype,
    check_shape,
    describe,
    flag,
    number,
    operand,
    operands,
    optional,
    rn32,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

TRAINING = "aten._native_batch_norm_legit_functional"
BACKWARD = "aten.native_batch_norm_backward"
BY_RUNNING = "aten._native_batch_norm_legit_no_training"


def _channels(op: str, x: TensorType) -> TensorType:
    """f32[C] of an x[N, C, ...]. Raises UsageError."""
    check_dtype(op, x, FLOATS)
    if len(x.shape) < 2:
        raise UsageError(f"{op}: x needs a batch axis and a channel axis, got {x}.")
    return TensorType("f32", x.shape[1:2])


def _padded(op: str, inputs: Types, count: int) -> Types:
    """`inputs` with absent ones written out. Raises UsageError for more than `count`."""
    if len(inputs) > count:
        raise UsageError(f"{op}: takes at most {count} operands, got {describe(inputs)}.")
    return inputs + (None,) * (count - len(inputs))


def _per_channel(op: str, channels: TensorType, given: Types) -> None:
    """Every one of `given` is absent or f32[C]. Raises UsageError."""
    for t in given:
        if t is not None:
            check_dtype(op, t, FLOATS)
            check_shape(op, "what is per channel", t, channels.shape)


def _both(op: str, pair: Types, wanted: bool | None, what: str) -> bool:
    """Whether both of `pair` are there; UsageError unless that is `wanted` (None: either)."""
    here = [t is not None for t in pair]
    if here[0] != here[1] or (wanted is not None and here[0] != wanted):
        needs = "both or neither" if wanted is None else ("present" if wanted else "absent")
        raise UsageError(f"{op}: {what} must be {needs}, got {describe(pair)}.")
    return here[0]


def _eps(attrs: Attrs) -> float:
    return float(rn32(number(attrs, "eps")))


# --- training (6.12) ------------------------------------------------------------------------------
def _infer_training(attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(TRAINING, inputs[:1], 1)
    channels = _channels(TRAINING, x)
    rest = _padded(TRAINING, inputs, 5)[1:]
    _per_channel(TRAINING, channels, rest)
    running = _both(TRAINING, rest[2:], None, "running mean and variance")
    return (x,) + (channels,) * (4 if running else 2)


def _run_training(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    new_mean, new_var = outputs[3:] if len(outputs) > 3 else (None, None)
    _core.batch_norm(
        operand(inputs, 0),
        *(optional(inputs, i) for i in range(1, 5)),
        float(rn32(number(attrs, "momentum"))),
        number(attrs, "eps"),
        *outputs[:3],
        new_mean,
        new_var,
    )


# --- the gradient (6.13) --------------------------------------------------------------------------
def output_mask(attrs: Attrs) -> tuple[bool, bool, bool]:
    """Which of dx, dw, db there are. Raises UsageError."""
    mask = attrs["output_mask"]
    if not isinstance(mask, tuple) or len(mask) != 3:
        raise UsageError(f"{BACKWARD}: output_mask must have three entries, got {mask!r}.")
    return bool(mask[0]), bool(mask[1]), bool(mask[2])


def _infer_backward(attrs: Attrs, inputs: Types) -> Result:
    grad, x = operands(BACKWARD, inputs[:2], 2)
    channels = _channels(BACKWARD, x)
    check_dtype(BACKWARD, grad, FLOATS)
    check_shape(BACKWARD, "the gradient", grad, x.shape)
    rest = _padded(BACKWARD, inputs, 7)[2:]
    _per_channel(BACKWARD, channels, rest)
    train = flag(attrs, "train")
    _both(BACKWARD, rest[1:3], not train, f"running statistics with train={train}")
    _both(BACKWARD, rest[3:5], train, f"mean and rstd with train={train}")
    wanted = zip((x, channels, channels), output_mask(attrs), strict=True)
    return tuple(t for t, on in wanted if on)


def statistics_at(attrs: Attrs) -> tuple[int, int]:
    """Positions of the operands that are read: mean and rstd, or running mean and variance."""
    return (5, 6) if flag(attrs, "train") else (3, 4)


def _run_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    remaining = iter(outputs)
    dx, dw, db = (next(remaining) if on else None for on in output_mask(attrs))
    mean, spread = statistics_at(attrs)
    _core.batch_norm_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        optional(inputs, 2),
        operand(inputs, mean),
        operand(inputs, spread),
        flag(attrs, "train"),
        _eps(attrs),
        dx,
        dw,
        db,
    )


# --- by running statistics (6.14) -----------------------------------------------------------------
def _infer_by_running(attrs: Attrs, inputs: Types) -> Result:
    (x,) = operands(BY_RUNNING, inputs[:1], 1)
    channels = _channels(BY_RUNNING, x)
    rest = _padded(BY_RUNNING, inputs, 5)[1:]
    _per_channel(BY_RUNNING, channels, rest)
    _both(BY_RUNNING, rest[2:], True, "running mean and variance")
    return (x,)


def _run_by_running(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.batch_norm_eval(
        operand(inputs, 0),
        optional(inputs, 1),
        optional(inputs, 2),
        operand(inputs, 3),
        operand(inputs, 4),
        _eps(attrs),
        outputs[0],
    )


register(
    OpSpec(
        name=TRAINING,
        clause="6.12",
        attrs={"momentum": AttrSpec("float"), "eps": AttrSpec("float")},
        infer=_infer_training,
        run=_run_training,
        inplace=((0, 0),),
        op_class="composite",
    )
)
register(
    OpSpec(
        name=BACKWARD,
        clause="6.13",
        attrs={
            "train": AttrSpec("bool"),
            "eps": AttrSpec("float"),
            "output_mask": AttrSpec("bools"),
        },
        infer=_infer_backward,
        run=_run_backward,
        inplace=((0, 0), (1, 0)),
        op_class="composite",
    )
)
register(
    OpSpec(
        name=BY_RUNNING,
        clause="6.14",
        attrs={"eps": AttrSpec("float")},
        infer=_infer_by_running,
        run=_run_by_running,
        inplace=((0, 0),),
        op_class="composite",
    )
)
