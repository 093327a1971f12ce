"""The state after a job's first step, compared with torch's own optimizers in float64 (PROGRAM
5.9).

They get the program's gradients, whose errors the comparison of gradients has judged. With other
gradients an honest step could differ by any amount: Adam's first step is lr·g/(|g| + eps), so a
gradient that is a rounding error decides the sign of a whole step.

The threshold: a slot may differ from float64's by 16 times the error of torch's optimizer in
float32, and 2⁻²⁰ of the norms before and after the step (Euclidean), and 10⁻³⁷ per element's root
for what underflows. Under B < 32 bits of `rounded/1` it is 2³²⁻ᴮ times wider. A parameter that no
update changes has its bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.optimizers import SGD, Adam, AdamW, Optimizer
from tallystick.program.update import beta_slots, rate_name

Array = np.ndarray
_TIMES = 16.0
_NORM, _LEAST = 2.0**-20, 1e-37
_MANY = 1 << 40


@dataclass(frozen=True)
class Update:
    """One update of a step: its group ("" where there is one optimizer) and its parameters."""

    group: str
    optimizer: Optimizer
    names: tuple[str, ...]
    clip_norm: float | None


@dataclass(frozen=True)
class Stepped:
    """The first step of a program: slots before and after, gradients and new parameters by update.

    `gradients` and `updated` have a mapping for each update.
    """

    before: Mapping[str, Array]
    after: Mapping[str, Array]
    gradients: Sequence[Mapping[str, Array]]
    updated: Sequence[Mapping[str, Array]]
    scalars: Mapping[str, float]


def _slots(optimizer: Optimizer, name: str) -> dict[str, str]:
    """The program's slots of a parameter, each with torch's name for it."""
    if isinstance(optimizer, SGD):
        return {f"opt.buf.{name}": "momentum_buffer"} if optimizer.momentum else {}
    return {f"opt.m.{name}": "exp_avg", f"opt.v.{name}": "exp_avg_sq"}


def _torchs(optimizer: Optimizer, parameter: nn.Parameter, name: str, lr: float) -> Any:
    decay = optimizer.decay_of(name, tuple(parameter.shape))
    given: dict[str, Any] = {"lr": lr, "weight_decay": decay, "foreach": False}
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            [parameter],
            momentum=optimizer.momentum,
            dampening=optimizer.dampening,
            nesterov=optimizer.nesterov,
            **given,
        )
    kind = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
    return kind([parameter], betas=optimizer.betas, eps=optimizer.eps, **given)


def _coefficient(gradients: Mapping[str, Array], most: float, dtype: torch.dtype) -> float:
    """The factor by which torch clips gradients of this norm."""
    squares = sum(float(np.square(g, dtype=np.float64).sum()) for g in gradients.values())
    if squares == 0.0:
        return 1.0
    one = nn.Parameter(torch.zeros(1, dtype=dtype))
    one.grad = torch.full((1,), math.sqrt(squares), dtype=dtype)
    torch.nn.utils.clip_grad_norm_([one], most)
    return float(one.grad[0]) / math.sqrt(squares)


class _Side:
    """torch's optimizers in one dtype, from the same parameters and gradients."""

    def __init__(self, dtype: torch.dtype, before: Mapping[str, Array]) -> None:
        self.dtype = dtype
        self.slots: dict[str, Tensor] = {}
        self.before = before

    def _slot(self, name: str) -> Tensor:
        if name in self.slots:
            return self.slots[name]
        return torch.from_numpy(np.array(self.before[name])).to(self.dtype)

    def step(
        self, update: Update, name: str, parameter: Array, gradient: Array, lr: float, done: int,
        clipped: float,
    ) -> Array:  # fmt: skip
        """The new parameter; `slots` then has its slots. `done` steps were made before."""
        p = nn.Parameter(torch.from_numpy(np.array(parameter)).to(self.dtype))
        p.grad = torch.from_numpy(np.array(gradient)).to(self.dtype)
        if clipped != 1.0:
            p.grad.mul_(clipped)
        torchs = _torchs(update.optimizer, p, name, lr)
        state = {key: self._slot(slot) for slot, key in _slots(update.optimizer, name).items()}
        if not isinstance(update.optimizer, SGD):
            state["step"] = torch.tensor(float(done), dtype=torch.float64)
        torchs.state[p] = state
        torchs.step()
        for slot, key in _slots(update.optimizer, name).items():
            self.slots[slot] = torchs.state[p][key]
        return p.detach().to(torch.float64).numpy()

    def slot(self, name: str) -> Array:
        return self.slots[name].to(torch.float64).numpy()


def _steps_before(update: Update, before: Mapping[str, Array]) -> int | None:
    """How many steps Adam's powers stand for; None where they stand for none."""
    if isinstance(update.optimizer, SGD):
        return 0
    found: int | None = None
    powers = [float(before[slot]) for slot in beta_slots(update.group)]
    for power, beta in zip(powers, update.optimizer.betas, strict=True):
        if not 0.0 < beta < 1.0:
            continue
        count = round(math.log(power) / math.log(beta)) if power > 0.0 else _MANY
        if found is None or found == _MANY:
            found = count
        if power > 0.0 and not math.isclose(beta**found, power, rel_tol=1e-6):
            return None
    return found or 0


def compare_updates(updates: Sequence[Update], step: Stepped, wide: float) -> str | None:
    """None where the state is torch's; a reason where it could not be compared.

    Raises UsageError, naming the first slot beyond the threshold, its module and its optimizer.
    """
    begun = {u.group: _steps_before(u, step.before) for u in updates}
    if None in begun.values():
        return "the powers of Adam's betas in the initial state are those of no number of steps"
    sides = [_Side(dtype, step.before) for dtype in (torch.float64, torch.float32)]
    latest = {name: step.before[f"param.{name}"] for u in updates for name in u.names}
    last = {name: number for number, u in enumerate(updates) for name in u.names}
    done = dict.fromkeys(begun, 0)
    for number, update in enumerate(updates):
        lr, gradients = float(step.scalars[rate_name(update.group)]), step.gradients[number]
        factors = [1.0, 1.0]
        if update.clip_norm is not None:
            factors = [_coefficient(gradients, update.clip_norm, s.dtype) for s in sides]
        count = (begun[update.group] or 0) + done[update.group]
        for name in update.names:
            try:
                made = [
                    side.step(update, name, latest[name], gradients[name], lr, count, factor)
                    for side, factor in zip(sides, factors, strict=True)
                ]
            except RuntimeError as error:  # a number beyond float32, say, which the contract takes
                return f"torch's optimizer stops at {name}: {str(error).splitlines()[0]}"
            if last[name] == number:
                for slot in _slots(update.optimizer, name):
                    torchs = [side.slot(slot) for side in sides]
                    _check(slot, step.before[slot], step.after[slot], torchs, wide, update, name)
                    for side in sides:
                        del side.slots[slot]
            new = step.updated[number][name]
            _check(f"param.{name}", latest[name], new, made, wide, update, name)
            latest[name] = new
        done[update.group] += 1
    _check_powers(updates, step, done)
    _check_kept(step, latest)
    return None


def _check(
    slot: str, before: Array, ours: Array, torchs: Sequence[Array], wide: float, update: Update,
    name: str,
) -> None:  # fmt: skip
    exact, single = torchs
    own = float(np.linalg.norm((single - exact).reshape(-1)))
    size = float(np.linalg.norm(exact.reshape(-1)))
    norms = size + float(np.linalg.norm(before.reshape(-1).astype(np.float64)))
    allowed = wide * (_TIMES * own + _NORM * norms + _LEAST * math.sqrt(exact.size))
    found = float(np.linalg.norm((ours - exact).reshape(-1)))
    if math.isfinite(allowed) and not found <= allowed:
        kind = type(update.optimizer).__name__
        raise _refusal(slot, name, f"torch's {kind} in float64 differs by {found:.3g} of "
                       f"{size:.6g}; float32's own error is {own:.3g}")  # fmt: skip


def _check_powers(updates: Sequence[Update], step: Stepped, done: Mapping[str, int]) -> None:
    for update in updates:
        if not isinstance(update.optimizer, Adam):
            continue
        for slot, beta in zip(beta_slots(update.group), update.optimizer.betas, strict=True):
            wanted = float(step.before[slot]) * beta ** done[update.group]
            if not math.isclose(float(step.after[slot]), wanted, rel_tol=1e-12, abs_tol=1e-300):
                raise _refusal(slot, slot, f"it is {float(step.after[slot])!r}, not {wanted!r}")


def _check_kept(step: Stepped, updated: Mapping[str, Array]) -> None:
    for slot, before in step.before.items():
        name = slot.removeprefix("param.")
        if name == slot or name in updated:
            continue
        if np.asarray(before).tobytes() != np.asarray(step.after[slot]).tobytes():
            raise _refusal(slot, name, "no update changes it, and its bits change")


def _refusal(slot: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"The state after the first step under the contract is not torch's: {slot}: {why}. Where "
        f"it begins: the update of {name}, module {name.rpartition('.')[0] or 'itself'}.",
        "The gradients agree, so it is the optimizer's rule: report it, with the optimizer's "
        "arguments.",
    )
