"""The three operators of attention (NUMERICS 18) as opaque nodes, for tracing only.

No mask reaches them: which keys a query reads follows from the attributes. They have no derivative,
so no training has them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tallystick.program.capture.custom_ops import no_eager


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
