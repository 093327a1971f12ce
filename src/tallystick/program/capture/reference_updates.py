"""The rules of optimizers in torch's tensors of any dtype, for the comparison of the first step.

SGD, Adam, AdamW, RMSprop and Adagrad are torch's own objects. Lion, LAMB, Muon and both Adafactors
are written here as their authors publish them: torch has no Lion and no LAMB, its Muon is bfloat16
inside, and Adafactor's counts of steps come from the job's tables. They are written for whole
tensors, in another form than the program's nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Muon,
    Optimizer,
    RMSprop,
    TransformersAdafactor,
)

EPS = 2.0**-23


@dataclass(frozen=True)
class Moment:
    """What an update reads beside the parameter and its gradient: the slots by their kinds
    (`opt.KIND.NAME`), the step's scalars, its decay, and how many steps were made before."""

    slots: Mapping[str, Tensor]
    scalars: Mapping[str, float]
    decay: float
    done: int


# New parameter, and new slots by kind.
Result = tuple[Tensor, dict[str, Tensor]]


# -- torch's own -----------------------------------------------------------------------------------
_NAMES: dict[type, dict[str, str]] = {
    SGD: {"buf": "momentum_buffer"},
    Adam: {"m": "exp_avg", "v": "exp_avg_sq"},
    AdamW: {"m": "exp_avg", "v": "exp_avg_sq"},
    RMSprop: {"v": "square_avg", "avg": "grad_avg", "buf": "momentum_buffer"},
    Adagrad: {"sum": "sum"},
}


def _torchs(o: Optimizer, parameter: nn.Parameter, lr: float, decay: float) -> Any:
    given: dict[str, Any] = {"lr": lr, "weight_decay": decay, "foreach": False}
    if isinstance(o, SGD):
        given |= {"momentum": o.momentum, "dampening": o.dampening, "nesterov": o.nesterov}
        return torch.optim.SGD([parameter], **given)
    if isinstance(o, RMSprop):
        given |= {"momentum": o.momentum, "alpha": o.alpha, "eps": o.eps, "centered": o.centered}
        return torch.optim.RMSprop([parameter], **given)
    if isinstance(o, Adagrad):  # the job's rate has the decay of rates in it
        return torch.optim.Adagrad([parameter], eps=o.eps, **given)
    assert isinstance(o, Adam)
    kind = torch.optim.AdamW if isinstance(o, AdamW) else torch.optim.Adam
    return kind([parameter], betas=o.betas, eps=o.eps, **given)


def _own(o: Optimizer, p: Tensor, g: Tensor, at: Moment) -> Result:
    parameter = nn.Parameter(p)
    parameter.grad = g
    torchs = _torchs(o, parameter, at.scalars["lr"], at.decay)
    names = {kind: key for kind, key in _NAMES[type(o)].items() if kind in at.slots}
    state: dict[str, Any] = {key: at.slots[kind] for kind, key in names.items()}
    if not isinstance(o, SGD):
        state["step"] = torch.tensor(float(at.done), dtype=torch.float64)
    torchs.state[parameter] = state
    torchs.step()
    return parameter.detach(), {kind: torchs.state[parameter][key] for kind, key in names.items()}


# -- published rules -------------------------------------------------------------------------------
def _lion(o: Lion, p: Tensor, g: Tensor, at: Moment) -> Result:
    m, lr = at.slots["m"], at.scalars["lr"]
    mixed = m * o.betas[0] + g * (1 - o.betas[0])
    p = p * (1 - lr * at.decay) - lr * mixed.sign()
    return p, {"m": m * o.betas[1] + g * (1 - o.betas[1])}


def _lamb(o: LAMB, p: Tensor, g: Tensor, at: Moment) -> Result:
    (first, second), count = o.betas, at.done + 1
    m = at.slots["m"] * first + g * (1 - first)
    v = at.slots["v"] * second + g * g * (1 - second)
    corrected = o.bias_correction
    mean, square = (
        x / (1 - beta**count) if corrected else x for x, beta in ((m, first), (v, second))
    )
    step = mean / (square.sqrt() + o.eps) + at.decay * p
    trust = 1.0
    if at.decay or o.always_adapt:
        own, theirs = float(p.norm()), float(step.norm())
        trust = own / theirs if own and theirs else 1.0
        trust = trust if o.max_trust is None else min(trust, o.max_trust)
    return p - at.scalars["lr"] * trust * step, {"m": m, "v": v}


def _muon(o: Muon, p: Tensor, g: Tensor, at: Moment) -> Result:
    a, b, c = o.ns_coefficients
    buffer = o.momentum * at.slots["buf"] + (1 - o.momentum) * g
    x = o.momentum * buffer + (1 - o.momentum) * g if o.nesterov else buffer
    rows, columns = x.shape
    x = x.T if rows > columns else x
    x = x / max(float(x.norm()), o.eps)
    for _ in range(o.ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.T if rows > columns else x
    if o.adjust_lr == "original":
        ratio = math.sqrt(max(1, rows / columns))
    else:
        ratio = 0.2 * math.sqrt(max(rows, columns))
    lr = at.scalars["lr"]
    return p * (1 - lr * at.decay) - lr * ratio * x, {"buf": buffer}


def _second(squares: Tensor, at: Moment) -> tuple[dict[str, Tensor], Tensor | None]:
    """Adafactor's averages of squares; of one axis or none also the estimate itself."""
    part = at.scalars["part"]
    if squares.ndim < 2:
        v = at.slots["v"] * (1 - part) + part * squares
        return {"v": v}, v
    row = at.slots["row"] * (1 - part) + part * squares.mean(-1, keepdim=True)
    col = at.slots["col"] * (1 - part) + part * squares.mean(-2, keepdim=True)
    return {"row": row, "col": col}, None


def _rms(x: Tensor) -> float:
    return float(x.norm()) / math.sqrt(x.numel())


def _adafactor(o: Adafactor, p: Tensor, g: Tensor, at: Moment) -> Result:
    eps = EPS if o.eps[0] is None else o.eps[0]
    slots, estimate = _second(g * g, at)
    if estimate is None:
        estimate = slots["row"] * slots["col"] / slots["row"].mean(-2, keepdim=True).clamp(min=eps)
    update = g / estimate.clamp(min=eps * eps).sqrt()
    alpha = max(o.eps[1], _rms(p)) * at.scalars["rate"] / max(1.0, _rms(update) / o.d)
    if at.decay:
        p = p * (1 - at.scalars["lr"] * at.decay)
    return p - alpha * update, slots


def _transformers(o: TransformersAdafactor, p: Tensor, g: Tensor, at: Moment) -> Result:
    slots, estimate = _second(g * g + o.eps[0], at)
    if estimate is None:
        estimate = slots["row"] * slots["col"] / slots["row"].mean(-2, keepdim=True)
    update = g / estimate.sqrt()
    lr = at.scalars["lr"] * (max(o.eps[1], _rms(p)) if o.scale_parameter else 1.0)
    update = update * (lr / max(1.0, _rms(update) / o.clip_threshold))
    if o.beta1 is not None:
        update = slots["m"] = o.beta1 * at.slots["m"] + (1 - o.beta1) * update
    return p * (1 - lr * at.decay) - update, slots


_PUBLISHED: dict[type, Callable[..., Result]] = {
    Lion: _lion,
    LAMB: _lamb,
    Muon: _muon,
    Adafactor: _adafactor,
    TransformersAdafactor: _transformers,
}


def reference_step(o: Optimizer, p: Tensor, g: Tensor, at: Moment) -> Result:
    """The step of one parameter in its own dtype. Raises RuntimeError where torch refuses it."""
    return _PUBLISHED.get(type(o), _own)(o, p, g, at)


def named(o: Optimizer) -> str:
    """What the reference is, for a person."""
    kind = type(o).__name__
    return f"torch's {kind}" if type(o) in _NAMES else f"the published rule of {kind}"


def undecided(o: Optimizer, g: Tensor, at: Moment) -> float:
    """How far an honest step may differ by rounding alone: Lion's signs of what is nearly 0."""
    if not isinstance(o, Lion):
        return 0.0
    first, second = at.slots["m"] * o.betas[0], g * (1 - o.betas[0])
    close = (first + second).abs() <= 2.0**-20 * (first.abs() + second.abs())
    return 2.0 * at.scalars["lr"] * math.sqrt(float((close & (first != 0)).sum()))
