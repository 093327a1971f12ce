"""Stock forms of optimizer steps (NUMERICS 11): torch's own sequences of kernels, in binary64.

Attributes are binary64 and stay so; of 11's intermediates none is rounded to binary32.
"""

from __future__ import annotations

from typing import cast

import torch

from tallystick.numerics.types import Attrs
from tallystick.rounding.torch_stock import (
    Stock,
    Tensor,
    Tensors,
    maybe,
    need,
    register,
)


def _number(attrs: Attrs, name: str) -> float:
    return cast(float, attrs[name])


def _scalar(xs: Tensors, position: int) -> float:
    return float(need(xs, position))


def _gradient(xs: Tensors, coefficient: int) -> Tensor:
    """g, times the coefficient where there is one (11.6)."""
    g, c = need(xs, 1), maybe(xs, coefficient)
    return g if c is None else g * c


def _adam(attrs: Attrs, xs: Tensors, decoupled: bool) -> list[Tensor]:
    p, m, v = need(xs, 0), need(xs, 2), need(xs, 3)
    g = _gradient(xs, 7)
    lr, power1, power2 = (_scalar(xs, i) for i in (4, 5, 6))
    beta1, beta2 = _number(attrs, "beta1"), _number(attrs, "beta2")
    decay = _number(attrs, "weight_decay")
    if decay and decoupled:
        p = p * (1 - lr * decay)
    elif decay:
        g = torch.add(g, p, alpha=decay)
    m = torch.lerp(m, g, 1 - beta1)
    v = (v * beta2).addcmul_(g, g, value=1 - beta2)
    one = torch.ones((), dtype=torch.float64)
    step_size = float(lr / (one - power1))
    root = float((one - power2).sqrt())
    denominator = (v.sqrt() / root).add_(_number(attrs, "eps"))
    return [torch.addcdiv(p, m, denominator, value=-step_size), m, v]


@register("tallystick.adamw_step", per_element=True)
def _adamw(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    return _adam(attrs, xs, decoupled=True)


@register("tallystick.adam_step", per_element=True)
def _adam_coupled(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    return _adam(attrs, xs, decoupled=False)


@register("tallystick.sgd_step", per_element=True)
def _sgd(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    p, buffer, lr = need(xs, 0), maybe(xs, 2), _scalar(xs, 3)
    g = _gradient(xs, 4)
    decay, momentum = _number(attrs, "weight_decay"), _number(attrs, "momentum")
    if decay:
        g = torch.add(g, p, alpha=decay)
    if buffer is None:
        return [torch.add(p, g, alpha=-lr)]
    buffer = (buffer * momentum).add_(g, alpha=1 - _number(attrs, "dampening"))
    step = torch.add(g, buffer, alpha=momentum) if attrs["nesterov"] else buffer
    return [torch.add(p, step, alpha=-lr), buffer]


@register("tallystick.clip_coef")
def _clip_coef(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    squares = torch.stack([need(xs, i) for i in range(len(xs))])
    norm = stock.sum(squares, (0,)).sqrt()
    ratio = _number(attrs, "max_norm") / (norm + 1e-6)
    return [torch.minimum(ratio, torch.ones_like(ratio)), norm]
