"""Operators torch lacks, as opaque nodes with derivatives, for tracing only.

They exist so that a trace carries our own random numbers (NUMERICS 8.4 to 8.7), cross-entropy
(7.1), constants, and the updates of a step with several optimizers as single nodes. Their eager
bodies never run: capture traces on meta tensors, and the contract's kernels compute a program.

No mask reaches the three operators of attention (NUMERICS 18): which keys a query reads follows
from the attributes. They have no derivative, so no training has them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tallystick.errors import UsageError


def no_eager(name: str) -> UsageError:
    return UsageError(
        f"tallystick::{name} only exists in captured programs, and in the thread that entered a "
        "reproducible() block.",
        "Compute in the thread that entered the block, or use tallystick.evaluate.",
    )


@torch.library.custom_op("tallystick::dropout_mask", mutates_args=())
def dropout_mask(rng: Tensor, draw: int, p: float, shape: list[int]) -> Tensor:
    raise no_eager("dropout_mask")


@dropout_mask.register_fake
def _(rng: Tensor, draw: int, p: float, shape: list[int]) -> Tensor:
    return torch.empty(shape, dtype=torch.bool, device=rng.device)


@torch.library.custom_op("tallystick::uniform", mutates_args=())
def uniform(rng: Tensor, draw: int, shape: list[int], low: float, high: float) -> Tensor:
    raise no_eager("uniform")


@uniform.register_fake
def _(rng: Tensor, draw: int, shape: list[int], low: float, high: float) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=rng.device)


@torch.library.custom_op("tallystick::normal", mutates_args=())
def normal(rng: Tensor, draw: int, shape: list[int], mean: float, std: float) -> Tensor:
    raise no_eager("normal")


@normal.register_fake
def _(rng: Tensor, draw: int, shape: list[int], mean: float, std: float) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=rng.device)


@torch.library.custom_op("tallystick::constant", mutates_args=())
def constant(rng: Tensor, bits: list[int], shape: list[int], dtype: torch.dtype) -> Tensor:
    """`rng` only says where the result is; `bits` are the elements, f32 as 32-bit patterns."""
    raise no_eager("constant")


@constant.register_fake
def _(rng: Tensor, bits: list[int], shape: list[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=rng.device)


@torch.library.custom_op("tallystick::number", mutates_args=())
def number(rng: Tensor, name: str) -> Tensor:
    """The number of the step `scalar.NAME`; `rng` only says where the result is."""
    raise no_eager("number")


@number.register_fake
def _(rng: Tensor, name: str) -> Tensor:
    return torch.empty([], dtype=torch.float32, device=rng.device)


@torch.library.custom_op("tallystick::mask_scale", mutates_args=())
def mask_scale(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    raise no_eager("mask_scale")


@mask_scale.register_fake
def _(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _mask_scale_setup(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.scale = inputs[2]


def _mask_scale_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (mask,) = ctx.saved_tensors
    return mask_scale(grad, mask, ctx.scale), None, None


mask_scale.register_autograd(_mask_scale_backward, setup_context=_mask_scale_setup)


@torch.library.custom_op("tallystick::cross_entropy", mutates_args=())
def cross_entropy(
    x: Tensor, target: Tensor, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    raise no_eager("cross_entropy")


@cross_entropy.register_fake
def _(
    x: Tensor, target: Tensor, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    rows = [x.shape[0]]
    loss = torch.empty(rows if reduction == "none" else [], dtype=x.dtype, device=x.device)
    return loss, x.new_empty(rows), x.new_empty(rows)


@torch.library.custom_op("tallystick::cross_entropy_backward", mutates_args=())
def cross_entropy_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    row_max: Tensor,
    lse: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    raise no_eager("cross_entropy_backward")


@cross_entropy_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    row_max: Tensor,
    lse: Tensor,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _cross_entropy_setup(
    ctx: Any, inputs: tuple[Tensor, Tensor, int, str], output: tuple[Tensor, Tensor, Tensor]
) -> None:
    x, target, ctx.ignore_index, ctx.reduction = inputs
    ctx.save_for_backward(x, target, output[1], output[2])


def _cross_entropy_backward(
    ctx: Any, grad: Tensor, _row_max: Tensor | None, _lse: Tensor | None
) -> tuple[Tensor, None, None, None]:
    x, target, row_max, lse = ctx.saved_tensors
    out = cross_entropy_backward(grad, x, target, row_max, lse, ctx.ignore_index, ctx.reduction)
    return out, None, None, None


cross_entropy.register_autograd(_cross_entropy_backward, setup_context=_cross_entropy_setup)


@torch.library.custom_op("tallystick::update", mutates_args=())
def update(parameters: list[Tensor], gradients: list[Tensor], number: int) -> list[Tensor]:
    """The parameters after update `number` of the step, by their gradients."""
    raise no_eager("update")


@update.register_fake
def _(parameters: list[Tensor], gradients: list[Tensor], number: int) -> list[Tensor]:
    return [torch.empty_like(p) for p in parameters]


@torch.library.custom_op("tallystick::attention_scores", mutates_args=())
def attention_scores(
    q: Tensor,
    k: Tensor,
    slopes: Tensor | None,
    causal: bool,
    first: int,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    raise no_eager("attention_scores")


@attention_scores.register_fake
def _(
    q: Tensor,
    k: Tensor,
    slopes: Tensor | None,
    causal: bool,
    first: int,
    scale: float,
    softcap: float,
    window: int,
) -> Tensor:
    return q.new_empty([*q.shape[:3], k.shape[2]])


@torch.library.custom_op("tallystick::attention_weights", mutates_args=())
def attention_weights(
    s: Tensor, sinks: Tensor | None, causal: bool, first: int, window: int
) -> Tensor:
    raise no_eager("attention_weights")


@attention_weights.register_fake
def _(s: Tensor, sinks: Tensor | None, causal: bool, first: int, window: int) -> Tensor:
    return s.new_empty(s.shape)


@torch.library.custom_op("tallystick::attention_values", mutates_args=())
def attention_values(p: Tensor, v: Tensor, causal: bool, first: int, window: int) -> Tensor:
    raise no_eager("attention_values")


@attention_values.register_fake
def _(p: Tensor, v: Tensor, causal: bool, first: int, window: int) -> Tensor:
    return p.new_empty([*p.shape[:3], v.shape[3]])
