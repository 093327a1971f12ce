"""Rules for batch normalisation and max pooling (NUMERICS 6.12 - 6.16)."""

from __future__ import annotations

from typing import Any

from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.ir import Value

_TRAINING = "aten._native_batch_norm_legit_functional"
_BY_RUNNING = "aten._native_batch_norm_legit_no_training"


def _operands(lo: Lowerer, a: Arguments) -> list[Value | None]:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return [lo.optional(a.get(name)) for name in names]


def _by_running(lo: Lowerer, a: Arguments) -> Value:
    return lo.emit(_BY_RUNNING, *_operands(lo, a), eps=a["eps"])


@lowering(_TRAINING)
def _functional(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    operands = _operands(lo, a)
    if not a["training"]:
        return [_by_running(lo, a), None, None, *operands[3:]]
    return lo.emit_all(_TRAINING, *operands, momentum=a["momentum"], eps=a["eps"])


@lowering("aten.native_batch_norm", "aten._native_batch_norm_legit.no_stats")
def _in_place(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The in-place forms of batch norm, for calls without running statistics to change."""
    if not a["training"]:
        # On the CPU torch's statistics are empty then; its meta kernel gives them a shape.
        none = [t.new_empty(0) for t in node.meta["val"][1:]]
        node.meta["val"] = (node.meta["val"][0], *none)
        return [_by_running(lo, a), *(lo.full((0,), 0, "f32") for _ in none)]
    if a.get("running_mean") is not None:
        raise UnsupportedOperatorError(
            "A normalisation that changes running statistics in place is not defined.",
            "Call torch.nn.functional.batch_norm, or normalise without running statistics.",
        )
    return lo.emit_all(_TRAINING, *_operands(lo, a), momentum=a["momentum"], eps=a["eps"])


@lowering(_BY_RUNNING)
def _no_training(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return [_by_running(lo, a), None, None]


@lowering("aten.native_batch_norm_backward")
def _batch_norm_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Only statistics that the clause reads are operands: the batch's, or the running ones."""
    unread = ("running_mean", "running_var") if a["train"] else ("save_mean", "save_invstd")
    names = ("grad_out", "input", "weight", "running_mean", "running_var", "save_mean",
             "save_invstd")  # fmt: skip
    operands = [None if name in unread else lo.optional(a[name]) for name in names]
    mask = a["output_mask"]
    values = iter(
        lo.emit_all(
            "aten.native_batch_norm_backward",
            *operands,
            train=a["train"],
            eps=a["eps"],
            output_mask=mask,
        )
    )
    return [next(values) if wanted else None for wanted in mask]


def _pair(given: Any) -> tuple[int, ...]:
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return values * 2 if len(values) == 1 else values


@lowering("aten.max_pool2d_with_indices", "aten.max_pool2d_with_indices_backward")
def _max_pool(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    attrs = {k: _pair(a[k]) for k in ("kernel_size", "stride", "padding", "dilation")}
    attrs["stride"] = attrs["stride"] or attrs["kernel_size"]  # ATen: none given
    if "indices" not in a:
        x = lo.value(a["self"])
        return lo.emit_all(
            "aten.max_pool2d_with_indices", x, **attrs, ceil_mode=bool(a["ceil_mode"])
        )
    operands = [lo.value(a[k]) for k in ("grad_output", "self", "indices")]
    return lo.emit(
        "aten.max_pool2d_with_indices_backward",
        *operands,
        **attrs,
        ceil_mode=bool(a["ceil_mode"]),
    )
