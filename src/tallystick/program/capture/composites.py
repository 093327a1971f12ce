"""Torch functions made of others, where ATen's own form has no gradient that a program can hold.

ATen's gradient may depend on values, have no form on meta tensors, or lose digits. Each function
here has the signature and the meaning of the torch function that it stands for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.rules_scan import as_sum, product, scan


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise UsageError(f"The reduction is {reduction!r}.", "Use none, mean or sum.")
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """torch's old pair of arguments as a reduction."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


# -- functions with a sounder gradient -----------------------------------------------------------


class _NearOne(torch.autograd.Function):
    """f(x) with f' = sign·((1 − x)(1 + x))^power; torch's 1 − x² cancels near 1."""

    @classmethod
    def of(cls, x: Tensor, function: Any, sign: float, power: float) -> Tensor:
        y: Tensor = cls.apply(x, function, sign, power)  # type: ignore[no-untyped-call]
        return y

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Any, sign: float, power: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.sign, ctx.power = sign, power
        y: Tensor = function(x)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        product = (1.0 - x) * (1.0 + x)
        slope = product.rsqrt() if ctx.power == -0.5 else product.reciprocal()
        return grad * (slope if ctx.sign > 0 else -slope), None, None, None


def asin(input: Tensor) -> Tensor:
    x = input if input.is_floating_point() else input.float()
    return _NearOne.of(x, torch.ops.aten.asin, 1.0, -0.5)


def acos(input: Tensor) -> Tensor:
    x = input if input.is_floating_point() else input.float()
    return _NearOne.of(x, torch.ops.aten.acos, -1.0, -0.5)


def atanh(input: Tensor) -> Tensor:
    x = input if input.is_floating_point() else input.float()
    return _NearOne.of(x, torch.ops.aten.atanh, 1.0, -1.0)


def _log_sums(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Running maxima m, and running sums of exp(x − m)."""

    def combine(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        top = torch.maximum(a[0], b[0])
        # Where both are −∞, or the larger is ∞, the difference would be NaN.
        base = torch.where(top.abs() == math.inf, 0.0, top)
        return top, a[1] * (a[0] - base).exp() + b[1] * (b[0] - base).exp()

    top, total = scan((x, torch.ones_like(x)), dim, combine)
    return top, total


class _LogCumSumExp(torch.autograd.Function):
    """g·exp(x − y) summed from the end, every power relative to the running maximum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        top, total = _log_sums(x, dim)
        ctx.save_for_backward(x, top, total)
        ctx.dim = dim
        return torch.where(top.abs() == math.inf, top, top + total.log())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, top, total = ctx.saved_tensors

        def combine(later: tuple[Tensor, ...], here: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            fall = torch.where(here[0] == later[0], 0.0, here[0] - later[0]).exp()
            return here[0], here[1] + later[1] * fall

        flipped = (top.flip(ctx.dim), (grad / total).flip(ctx.dim))
        sums = scan(flipped, ctx.dim, combine)[1].flip(ctx.dim)
        # Where x and its maximum are the same infinity: NaN, as torch's.
        return sums * (x - top).exp(), None


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    if input.dim() == 0:
        return input.clone()
    y: Tensor = _LogCumSumExp.apply(input, dim)  # type: ignore[no-untyped-call]
    return y


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` whose norm exceeds `maxnorm` are scaled to it, with torch's 10⁻⁷."""
    if input.dim() < 2 or p <= 0 or maxnorm < 0:
        raise UsageError(
            f"renorm of {tuple(input.shape)} with p = {p} and maxnorm = {maxnorm} is not defined.",
            "Use a tensor of at least two axes, p above 0, and a non-negative maxnorm.",
        )
    dim %= input.dim()
    others = [d for d in range(input.dim()) if d != dim]
    norm = torch.linalg.vector_norm(input, p, others, keepdim=True)
    return input * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = as_sum(input, dtype)
    if x.dim() == 0:
        return x.clone()
    return scan((x,), dim, lambda a, b: (a[0] * b[0],))[0]


def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """By halving; so a zero among the factors needs no case of its own in the gradient."""
    x = as_sum(input, dtype)
    return product(x.reshape(-1), 0, False) if dim is None else product(x, dim, keepdim)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x₁ᵀ·W·x₂ by one matrix product; ATen's form holds a product per weight and row."""
    outs, left, right = weight.shape
    half = input1 @ weight.permute(1, 0, 2).reshape(left, outs * right)
    half = half.reshape(*half.shape[:-1], outs, right)
    y: Tensor = (half * input2.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias


# -- losses ---------------------------------------------------------------------------------------


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Σ over the other classes of max(0, margin − x_t + x_j)^p, divided by the classes."""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    t = target.reshape(-1, 1)
    short = torch.relu(margin - rows.gather(1, t) + rows)
    short = short if p == 1 else short * short
    if weight is not None:
        short = short * weight.index_select(0, t.reshape(-1)).unsqueeze(1)
    classes = torch.arange(rows.shape[1], device=rows.device).unsqueeze(0)
    losses = torch.where(classes == t, 0.0, short).sum(1) / rows.shape[1]
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _reduced(losses.reshape(target.shape), reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Σ over targets j and other classes i of max(0, 1 − x_j + x_i), divided by the classes.

    The targets of a row are those before its first −1.
    """
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    t = target.reshape(rows.shape)
    given = torch.cummin(t, 1).values >= 0
    safe = torch.where(given, t, 0)
    classes = torch.arange(rows.shape[1], device=rows.device)
    is_target = ((safe.unsqueeze(2) == classes) & given.unsqueeze(2)).any(1)
    short = torch.relu(1.0 - rows.gather(1, safe).unsqueeze(2) + rows.unsqueeze(1))
    counted = given.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = torch.where(counted, short, 0.0).sum((1, 2)) / rows.shape[1]
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _reduced(losses.reshape(input.shape[:-1]), reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """torch's looks whether a variance is negative; here such a variance gives NaN."""
    spread = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if spread.shape != input.shape and input.shape[:-1] == spread.shape:
        spread = spread.unsqueeze(-1)
    bounded = torch.where(spread < 0, math.nan, spread)
    with torch.no_grad():
        bounded.clamp_(min=eps)
    losses = 0.5 * (bounded.log() + (input - target) ** 2 / bounded)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return _reduced(losses, reduction)


# An alignment that cannot be. Finite, so that differences of two such are not NaN.
_NEVER = -1e30


def _either(*logs: Tensor) -> Tensor:
    """log Σ exp, the maximum taken as a constant."""
    top = logs[0].detach()
    for other in logs[1:]:
        top = torch.maximum(top, other.detach())
    total = (logs[0] - top).exp()
    for other in logs[1:]:
        total = total + (other - top).exp()
    return top + total.log()


def _lengths(given: Any, like: Tensor) -> Tensor:
    if isinstance(given, Tensor):
        return given.to(torch.int64).reshape(-1)
    return torch.cat([torch.full((1,), int(n), dtype=torch.int64, device=like.device)
                      for n in given])  # fmt: skip


def _padded(targets: Tensor, lengths: Tensor, given: Any) -> Tensor:
    """Targets [N, S]; concatenated ones are cut by their lengths. The rest is any class."""
    if targets.dim() == 2:
        return targets.to(torch.int64)
    # Where the lengths are tensors, no target is longer than all together.
    widest = targets.shape[0] if isinstance(given, Tensor) else max(given, default=0)
    starts = torch.cumsum(lengths, 0) - lengths
    place = starts.unsqueeze(1) + torch.arange(widest, device=targets.device)
    place = place.clamp(max=max(targets.shape[0] - 1, 0))
    if targets.shape[0] == 0:
        return targets.new_zeros(lengths.shape[0], widest, dtype=torch.int64)
    return targets.to(torch.int64).index_select(0, place.reshape(-1)).reshape(place.shape)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006), one step per time.

    The recursion runs over the padded lengths, so its form does not depend on values. A state
    beyond a row's lengths is computed and never read. As ATen's, the gradient for `log_probs` has
    exp(log_probs) added, which a log_softmax before it takes away.
    """
    single = log_probs.dim() == 2
    logs = log_probs.unsqueeze(1) if single else log_probs
    times, rows, _ = logs.shape
    reach = _lengths(input_lengths, logs)
    lengths = _lengths(target_lengths, logs)
    labels = _padded(targets.unsqueeze(0) if single else targets, lengths, target_lengths)
    states = 2 * labels.shape[1] + 1
    blanks = torch.full_like(labels, blank)
    path = torch.stack([blanks, labels], 2).reshape(rows, states - 1)
    path = torch.cat([path, path.new_full((rows, 1), blank)], 1)
    scores = logs.gather(2, path.unsqueeze(0).expand(times, rows, states))
    never = logs.new_full((rows, states), _NEVER)
    place = torch.arange(states, device=logs.device)
    state = torch.where((place < 2) & (place <= 2 * lengths.unsqueeze(1)), scores[0], never)
    if states > 2:
        skips = (path[:, 2:] != path[:, :-2]) & (path[:, 2:] != blank)
        skips = torch.cat([torch.zeros_like(skips[:, :1]).expand(rows, 2), skips], 1)
    for t in range(1, times):
        step = [state, torch.cat([never[:, :1], state[:, :-1]], 1)]
        if states > 2:
            two = torch.cat([never[:, :2], state[:, :-2]], 1)
            step.append(torch.where(skips, two, never))
        moved = scores[t] + _either(*step)
        state = torch.where((t < reach).unsqueeze(1), moved.clamp(min=_NEVER), state)
    end = (2 * lengths).unsqueeze(1)
    final = state.gather(1, end).squeeze(1)
    before = state.gather(1, (end - 1).clamp(min=0)).squeeze(1)
    before = torch.where(lengths > 0, before, torch.full_like(before, _NEVER))
    losses = -_either(final, before)
    impossible = losses > -0.5 * _NEVER
    # exp(log_probs) joins the gradient and adds nothing to the value.
    powers = logs.exp()
    counted = (torch.arange(times, device=logs.device).unsqueeze(1) < reach).unsqueeze(2)
    losses = losses + torch.where(counted, powers - powers.detach(), 0.0).sum((0, 2))
    if zero_infinity:
        losses = torch.where(impossible, 0.0, losses)
    else:
        losses = losses * torch.where(impossible, math.inf, 1.0)
    if reduction == "mean":
        return (losses / lengths.clamp(min=1).to(losses.dtype)).mean()
    losses = losses.squeeze(0) if single and reduction == "none" else losses
    return _reduced(losses, reduction)


def torch_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """`torch.ctc_loss`, whose reduction is a number. In Python its default is 0, none."""
    if reduction not in (0, 1, 2):
        raise UsageError(f"The reduction is {reduction!r}.", "Choose 0 (none), 1 (mean), 2 (sum).")
    name = ("none", "mean", "sum")[reduction]
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, name, zero_infinity)


def _with_out(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function` with torch's keyword out=, a tensor of the result's shape."""

    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Tensor:
        made = function(*args, **kwargs)
        if out is not None and out.shape != made.shape:
            raise UsageError(
                f"out= has the shape {tuple(out.shape)}, but the result has {tuple(made.shape)}.",
                "Leave out= out, or pass a tensor with the shape of the result.",
            )
        return made if out is None else out.copy_(made)

    return call


# By torch's function; methods of Tensor beside the functions of the same name.
_COMPOSITES: dict[Any, Callable[..., Any]] = {
    torch.asin: asin,
    torch.arcsin: asin,
    Tensor.asin: asin,
    Tensor.arcsin: asin,
    torch.acos: acos,
    torch.arccos: acos,
    Tensor.acos: acos,
    Tensor.arccos: acos,
    torch.atanh: atanh,
    torch.arctanh: atanh,
    Tensor.atanh: atanh,
    Tensor.arctanh: atanh,
    torch.logcumsumexp: logcumsumexp,
    Tensor.logcumsumexp: logcumsumexp,
    torch.prod: prod,
    Tensor.prod: prod,
    torch.cumprod: cumprod,
    Tensor.cumprod: cumprod,
    torch.renorm: renorm,
    Tensor.renorm: renorm,
    torch.bilinear: bilinear,
    F.bilinear: bilinear,
    F.multi_margin_loss: multi_margin_loss,
    F.multilabel_margin_loss: multilabel_margin_loss,
    F.gaussian_nll_loss: gaussian_nll_loss,
    F.ctc_loss: ctc_loss,
    torch.ctc_loss: torch_ctc_loss,
}
COMPOSITES: dict[Any, Callable[..., Any]] = {k: _with_out(f) for k, f in _COMPOSITES.items()}
