"""Stock forms of every element by itself: elementwise operators, activations, random values
(NUMERICS 5, 6, 8, 10), and optimizer steps (11).

Attributes are binary64 and stay binary64. No intermediate of 11 is rounded to binary32.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch

from tallystick import _core
from tallystick.contracts.ordered.torch.pointwise import check_key, check_places, of_blocks, words
from tallystick.contracts.replay.stock.stock import Stock, rounded_number, stock_form
from tallystick.devices.device import operand, optional
from tallystick.devices.torch import Tensor, Tensors
from tallystick.numerics.types import Attrs

_ATEN: Any = torch.ops.aten
# torch's kernels of these names take the operands alone.
_PLAIN = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt",
    "reciprocal", "sqrt", "square", "silu", "silu_backward", "tanh_backward", "sigmoid_backward",
)  # fmt: skip
_PAIRS = ("add", "sub", "mul", "div")


@stock_form(*(f"aten.{name}" for name in _PLAIN), named=True, per_element=True)
def _plain(op: str, _stock: Stock, _attrs: Attrs, *xs: Tensor) -> list[Tensor]:
    return [getattr(_ATEN, op.removeprefix("aten."))(*xs)]


@stock_form(
    *(f"aten.{name}.{second}" for name in _PAIRS for second in ("Tensor", "Scalar")),
    named=True,
    per_element=True,
)
def _pair(op: str, _stock: Stock, attrs: Attrs, a: Tensor, b: Tensor | None = None) -> list[Tensor]:
    other = rounded_number(attrs, "other") if b is None else b
    scale = {"alpha": rounded_number(attrs, "alpha")} if "alpha" in attrs else {}
    return [getattr(torch, op.split(".")[1])(a, other, **scale)]


@stock_form("aten.pow.Tensor_Scalar", per_element=True)
def _pow(_stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    exponent = rounded_number(attrs, "exponent")
    if abs(exponent) == 0.5 and exponent != attrs["exponent"]:
        # torch takes a square root, which gives other values for -0 and -inf. NUMERICS 10.6 takes
        # one only where the binary64 attribute is 0.5 or -0.5 itself.
        x = torch.where((x == 0) | (x == -torch.inf), x.abs(), x)
    return [torch.pow(x, exponent)]


@stock_form("aten._to_copy", per_element=True)
def _to_copy(_stock: Stock, _attrs: Attrs, x: Tensor) -> list[Tensor]:
    return [x.to(torch.float64)]


@stock_form("aten.leaky_relu", per_element=True)
def _leaky_relu(_stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    return [_ATEN.leaky_relu(x, rounded_number(attrs, "negative_slope"))]


@stock_form("tallystick.mask_scale", per_element=True)
def _mask_scale(_stock: Stock, attrs: Attrs, x: Tensor, mask: Tensor) -> list[Tensor]:
    # Not x · mask · scale: a dropped element is +0 for every x (8.5).
    return [torch.where(mask, x * rounded_number(attrs, "scale"), 0.0)]


# -- activations and their gradients (6.7 - 6.11) --------------------------------------------------
@stock_form("aten.gelu", "aten.gelu_backward", named=True, per_element=True)
def _gelu(op: str, _stock: Stock, attrs: Attrs, *xs: Tensor) -> list[Tensor]:
    return [getattr(_ATEN, op.removeprefix("aten."))(*xs, approximate=attrs["approximate"])]


# -- random values (8.6 to 8.8): Philox's words are ours and exact ---------------------------------
def _words(op: str, stock: Stock, attrs: Attrs, key: Tensor, count: int) -> Tensor:
    """The upper 24 bits of a draw's first words: numbers of the stock's dtype, on its device."""
    draw = cast(int, attrs["draw"])
    check_key(op, key)
    if not stock.on_host:
        return (words(key, draw, count) >> 8).to(stock.dtype)
    seed, step = (int(v) for v in key.tolist())
    drawn = np.empty(count, np.uint32)
    _core.philox_words(seed, step, draw, 0, drawn)
    return torch.from_numpy((drawn >> np.uint32(8)).astype(np.float64)).to(stock.dtype)


def _shaped(attrs: Attrs, values: Tensor) -> Tensor:
    return values.reshape(cast("tuple[int, ...]", attrs["shape"]))


def _count(attrs: Attrs) -> int:
    return math.prod(cast("tuple[int, ...]", attrs["shape"]))


@stock_form("tallystick.uniform")
def _uniform(stock: Stock, attrs: Attrs, key: Tensor) -> list[Tensor]:
    u = _shaped(attrs, _words("tallystick.uniform", stock, attrs, key, _count(attrs))) * 2.0**-24
    low, high = rounded_number(attrs, "low"), rounded_number(attrs, "high")
    return [u * (high - low) + low]


@stock_form("tallystick.normal")
def _normal(stock: Stock, attrs: Attrs, key: Tensor) -> list[Tensor]:
    n = _count(attrs)
    # Element e: words 2e and 2e + 1 (8.7).
    words = _words("tallystick.normal", stock, attrs, key, 2 * n + 2)
    u1 = (_shaped(attrs, words[0 : 2 * n : 2]) + 1) * 2.0**-24
    u2 = _shaped(attrs, words[1 : 2 * n : 2]) * 2.0**-24
    z = torch.sqrt(-2 * torch.log(u1)) * torch.cos(u2 * (2 * math.pi))
    return [z * rounded_number(attrs, "std") + rounded_number(attrs, "mean")]


@stock_form("tallystick.gumbel", named=True)
def _gumbel(op: str, stock: Stock, attrs: Attrs, key: Tensor, place: Tensor) -> list[Tensor]:
    check_places(op, place)
    check_key(op, key)
    classes = cast(int, attrs["classes"])
    each = -(-classes // 4)
    block = place.unsqueeze(1) * each + torch.arange(each, device=place.device)
    words = of_blocks(key, cast(int, attrs["draw"]), block.reshape(-1))
    odd = (2 * words + 1).clamp(max=2**33 - 2**9).reshape(len(place), 4 * each)[:, :classes]
    return [-torch.log(-torch.log1p(-(odd.to(stock.dtype) * 2.0**-33)))]


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
