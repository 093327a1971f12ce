"""Stock forms of optimizer steps (NUMERICS 11) in binary64: torch's own sequences of kernels, and
for Adam on this machine's CPU one pass of the core.

Attributes are binary64 and stay binary64. No intermediate of 11 is rounded to binary32.
"""

from __future__ import annotations

from typing import cast

import torch

from tallystick import _core
from tallystick.contracts.replay.stock.stock import Stock, stock_form
from tallystick.devices.kernel import operand, optional
from tallystick.devices.torch import Tensor, Tensors
from tallystick.numerics.types import Attrs

# Python's, or a tensor without an axis.
Number = float | Tensor


def _number(attrs: Attrs, name: str) -> float:
    return cast(float, attrs[name])


def _scalar(stock: Stock, xs: Tensors, position: int) -> Number:
    """A binary64 operand without an axis: on a device it stays there."""
    x = operand(xs, position)
    return float(x) if stock.on_host else x


def _plus(a: Tensor, b: Tensor, factor: Number) -> Tensor:
    """a + factor·b."""
    if isinstance(factor, Tensor):
        return torch.addcmul(a, b, factor)
    return torch.add(a, b, alpha=factor)


def _gradient(xs: Tensors, coefficient: int) -> Tensor:
    """g, multiplied by the coefficient where there is one (11.6)."""
    g, c = operand(xs, 1), optional(xs, coefficient)
    return g if c is None else g * c


@stock_form(
    "tallystick.adamw_step", "tallystick.adam_step", named=True, per_element=True, narrow=True
)
def _adam(op: str, stock: Stock, attrs: Attrs, *xs: Tensor | None) -> list[Tensor]:
    lr, power1, power2 = (_scalar(stock, xs, i) for i in (4, 5, 6))
    beta1, beta2, eps = (_number(attrs, name) for name in ("beta1", "beta2", "eps"))
    step_size = torch.as_tensor(lr, dtype=torch.float64) / (1 - power1)
    root = torch.as_tensor(1 - power2, dtype=torch.float64).sqrt()
    # Factors of p: `kept` in the result, `decay` in the gradient (11.2, 11.3).
    kept: Number = 1.0
    decay = _number(attrs, "weight_decay")
    if op == "tallystick.adamw_step":
        kept, decay = 1 - lr * decay, 0.0
    if stock.is_plain:
        # One pass of the core: torch's eight passes cost three times as much, mostly in memory.
        p_in, g_in, m_in, v_in = (operand(xs, i).contiguous().numpy() for i in range(4))
        c = optional(xs, 7)
        found = [stock.result(p_in.shape, number) for number in range(3)]
        p_out, m_out, v_out = (x.numpy() for x in found)
        _core.published_adam(
            p_in, g_in, m_in, v_in, 1.0 if c is None else float(c), 1 - beta1, beta2, 1 - beta2,
            eps, float(root), float(step_size), float(kept), decay, p_out, m_out, v_out,
        )  # fmt: skip
        return found
    wide = [stock.widened(x, i) for i, x in enumerate(xs)]  # for torch's own sequence of kernels
    p, g, m, v = operand(wide, 0), _gradient(wide, 7), operand(wide, 2), operand(wide, 3)
    if decay:
        g = torch.add(g, p, alpha=decay)
    m = torch.lerp(m, g, 1 - beta1)
    v = (v * beta2).addcmul_(g, g, value=1 - beta2)
    denominator = (v.sqrt() / root).add_(eps)
    return [torch.addcdiv(p * kept, m * -step_size, denominator), m, v]


@stock_form("tallystick.sgd_step", per_element=True)
def _sgd(stock: Stock, attrs: Attrs, *xs: Tensor | None) -> list[Tensor]:
    p, buffer, lr = operand(xs, 0), optional(xs, 2), _scalar(stock, xs, 3)
    g = _gradient(xs, 4)
    decay, momentum = _number(attrs, "weight_decay"), _number(attrs, "momentum")
    if decay:
        g = torch.add(g, p, alpha=decay)
    if buffer is None:
        return [_plus(p, g, -lr)]
    buffer = (buffer * momentum).add_(g, alpha=1 - _number(attrs, "dampening"))
    step = torch.add(g, buffer, alpha=momentum) if attrs["nesterov"] else buffer
    return [_plus(p, step, -lr), buffer]


@stock_form("tallystick.clip_coef")
def _clip_coef(stock: Stock, attrs: Attrs, *squares: Tensor) -> list[Tensor]:
    norm = stock.sum(torch.stack(squares), (0,)).sqrt()
    ratio = _number(attrs, "max_norm") / (norm + 1e-6)
    return [torch.minimum(ratio, torch.ones_like(ratio)), norm]
