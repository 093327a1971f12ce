"""The state after a job's first step, compared with torch's own optimizers, or the published rules
of others, in float64 (PROGRAM 5.9).

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

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.capture.reference_updates import (
    Moment,
    named,
    reference_step,
    undecided,
)
from tallystick.program.optimizers import Optimizer
from tallystick.program.update import (
    EMA_PREFIX,
    WEIGHT,
    Clip,
    Optimizers,
    beta_slots,
    family_of,
    parts_of,
    scalar_name,
)

Array = np.ndarray
_TIMES = 16.0
_NORM, _LEAST = 2.0**-20, 1e-37
_MANY = 1 << 40


@dataclass(frozen=True)
class Update:
    """One update of a step: its group ("" where there is one optimizer) and its parameters."""

    group: str
    optimizer: Optimizers
    names: tuple[str, ...]
    clip: Clip


@dataclass(frozen=True)
class Stepped:
    """The first step of a program: slots before and after, gradients and new parameters by update.

    `gradients` and `updated` have a mapping for each update. `changed` are the parameters that a
    step function changes in place between updates; `begun` has what each update gets of them.
    """

    before: Mapping[str, Array]
    after: Mapping[str, Array]
    gradients: Sequence[Mapping[str, Array]]
    updated: Sequence[Mapping[str, Array]]
    scalars: Mapping[str, float]
    begun: Sequence[Mapping[str, Array]] = ()
    changed: frozenset[str] = frozenset()


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
    """The optimizers' rules in one dtype, from the same parameters and gradients."""

    def __init__(self, dtype: torch.dtype, before: Mapping[str, Array]) -> None:
        self.dtype = dtype
        self.slots: dict[str, Tensor] = {}
        self.before = before

    def tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.dtype)

    def moment(
        self, optimizer: Optimizer, name: str, scalars: Mapping[str, float], done: int
    ) -> Moment:
        """What the step of parameter `name` reads; `done` steps were made before."""
        kinds = {slot.split(".")[1]: slot for slot in self.before if _belongs(slot, name)}
        slots = {
            kind: self.slots[slot].clone() if slot in self.slots else self.tensor(self.before[slot])
            for kind, slot in kinds.items()
        }
        shape = tuple(self.before[f"param.{name}"].shape)
        return Moment(slots, scalars, optimizer.decay_of(name, shape), done)

    def step(
        self, optimizer: Optimizer, name: str, parameter: Array, gradient: Array, at: Moment,
        clipped: float,
    ) -> Array:  # fmt: skip
        """The new parameter; `slots` then has its slots."""
        g = self.tensor(gradient)
        if clipped != 1.0:
            g.mul_(clipped)
        new, slots = reference_step(optimizer, self.tensor(parameter), g, at)
        self.slots |= {f"opt.{kind}.{name}": value for kind, value in slots.items()}
        return new.to(torch.float64).numpy()

    def slot(self, name: str) -> Array:
        return self.slots[name].to(torch.float64).numpy()


def _belongs(slot: str, name: str) -> bool:
    kind, _, rest = slot.removeprefix("opt.").partition(".")
    return slot.startswith("opt.") and rest == name and not kind.startswith("beta")


def _steps_before(group: str, optimizer: Optimizer, before: Mapping[str, Array]) -> int | None:
    """How many steps the powers of the betas stand for; None where they stand for none."""
    if not family_of(optimizer).powers(optimizer):
        return 0
    found: int | None = None
    powers = [float(before[slot]) for slot in beta_slots(group)]
    betas = optimizer.betas  # type: ignore[union-attr]
    for power, beta in zip(powers, betas, strict=True):
        if not 0.0 < beta < 1.0:
            continue
        count = round(math.log(power) / math.log(beta)) if power > 0.0 else _MANY
        if found is None or found == _MANY:
            found = count
        if power > 0.0 and not math.isclose(beta**found, power, rel_tol=1e-6):
            return None
    return found or 0


Parts = list[tuple[str, Optimizer, tuple[str, ...]]]


def _parts(update: Update, before: Mapping[str, Array]) -> Parts:
    types = {n: TensorType("f32", tuple(before[f"param.{n}"].shape)) for n in update.names}
    return parts_of(update.optimizer, types, update.group)


def _scalars(optimizer: Optimizer, group: str, all_: Mapping[str, float]) -> dict[str, float]:
    names = family_of(optimizer).scalars(optimizer)
    return {name: float(all_[scalar_name(name, group)]) for name in names}


def compare_updates(updates: Sequence[Update], step: Stepped, wide: float) -> str | None:
    """None where the state is that of the optimizers' rules; a reason where it could not be
    compared.

    Raises UsageError, naming the first slot beyond the threshold, its module and its optimizer.
    """
    parts = [_parts(update, step.before) for update in updates]
    begun = {group: _steps_before(group, o, step.before) for p in parts for group, o, _ in p}
    if None in begun.values():
        return "the powers of Adam's betas in the initial state are those of no number of steps"
    sides = [_Side(dtype, step.before) for dtype in (torch.float64, torch.float32)]
    latest = {name: step.before[f"param.{name}"] for u in updates for name in u.names}
    last = {name: number for number, u in enumerate(updates) for name in u.names}
    done = dict.fromkeys(begun, 0)
    for number, update in enumerate(updates):
        latest |= step.begun[number] if step.begun else {}
        gradients, factors = _clipped(update.clip, step.gradients[number], sides)
        for group, optimizer, names in parts[number]:
            scalars = _scalars(optimizer, group, step.scalars)
            count = (begun[group] or 0) + done[group]
            for name in names:
                moments = [side.moment(optimizer, name, scalars, count) for side in sides]
                slack = undecided(optimizer, sides[0].tensor(gradients[name]), moments[0])
                try:
                    made = [
                        side.step(optimizer, name, latest[name], gradients[name], at, factor)
                        for side, at, factor in zip(sides, moments, factors, strict=True)
                    ]
                except RuntimeError as error:  # a number beyond float32, say, which we take
                    return f"torch's optimizer stops at {name}: {str(error).splitlines()[0]}"
                if last[name] == number:
                    for slot in sorted(s for s in step.before if _belongs(s, name)):
                        both = [side.slot(slot) for side in sides]
                        _check(slot, step.before[slot], step.after[slot], both, wide, optimizer,
                               name)  # fmt: skip
                        for side in sides:
                            del side.slots[slot]
                new = step.updated[number][name]
                _check(f"param.{name}", latest[name], new, made, wide, optimizer, name, slack)
                latest[name] = new
            done[group] += 1
    _check_powers(parts, step, done)
    # What the function made of them is compared with the module, as the buffers are.
    latest |= {name: step.after[f"param.{name}"] for name in step.changed}
    _check_kept(step, latest)
    _check_averages(step, latest, wide)
    return None


def _clipped(
    clip: Clip, gradients: Mapping[str, Array], sides: Sequence[_Side]
) -> tuple[Mapping[str, Array], list[float]]:
    """The gradients clipped by value, and the factors by which each side clips them by norm."""
    if clip.value is not None:
        limit = np.float32(clip.value)
        gradients = {name: np.clip(g, -limit, limit) for name, g in gradients.items()}
    if clip.norm is None:
        return gradients, [1.0 for _ in sides]
    return gradients, [_coefficient(gradients, clip.norm, side.dtype) for side in sides]


def _check(
    slot: str, before: Array, ours: Array, torchs: Sequence[Array], wide: float,
    optimizer: Optimizer, name: str, slack: float = 0.0,
) -> None:  # fmt: skip
    exact, single = torchs
    own = float(np.linalg.norm((single - exact).reshape(-1)))
    size = float(np.linalg.norm(exact.reshape(-1)))
    norms = size + float(np.linalg.norm(before.reshape(-1).astype(np.float64)))
    allowed = wide * (_TIMES * own + _NORM * norms + _LEAST * math.sqrt(exact.size)) + slack
    found = float(np.linalg.norm((ours - exact).reshape(-1)))
    if math.isfinite(allowed) and not found <= allowed:
        raise _refusal(slot, name, f"{named(optimizer)} in float64 differs by {found:.3g} of "
                       f"{size:.6g}; float32's own error is {own:.3g}")  # fmt: skip


def _check_powers(parts: Sequence[Parts], step: Stepped, done: Mapping[str, int]) -> None:
    for group, optimizer, _ in (part for update in parts for part in update):
        if not family_of(optimizer).powers(optimizer):
            continue
        betas = optimizer.betas  # type: ignore[union-attr]
        for slot, beta in zip(beta_slots(group), betas, strict=True):
            wanted = float(step.before[slot]) * beta ** done[group]
            if not math.isclose(float(step.after[slot]), wanted, rel_tol=1e-12, abs_tol=1e-300):
                raise _refusal(slot, slot, f"it is {float(step.after[slot])!r}, not {wanted!r}")


def _check_kept(step: Stepped, updated: Mapping[str, Array]) -> None:
    for slot, before in step.before.items():
        name = slot.removeprefix("param.")
        if name == slot or name in updated:
            continue
        if np.asarray(before).tobytes() != np.asarray(step.after[slot]).tobytes():
            raise _refusal(slot, name, "no update changes it, and its bits change")


def _check_averages(step: Stepped, updated: Mapping[str, Array], wide: float) -> None:
    """PROGRAM 8.10, in float64 beside the program's new parameters."""
    for slot, before in step.before.items():
        name = slot.removeprefix(EMA_PREFIX)
        if name == slot:
            continue
        weight, new = float(step.scalars[WEIGHT]), updated[name].astype(np.float64)
        old = before.astype(np.float64)
        exact = (1.0 - weight) * old + weight * new
        size = float(np.linalg.norm(old.reshape(-1)) + np.linalg.norm(new.reshape(-1)))
        found = float(np.linalg.norm((step.after[slot] - exact).reshape(-1)))
        allowed = wide * (_NORM * size + _LEAST * math.sqrt(exact.size))
        if math.isfinite(allowed) and not found <= allowed:
            raise _refusal(
                slot, name, f"the average in float64 differs by {found:.3g} of {size:.6g}"
            )


def _refusal(slot: str, name: str, why: str) -> UsageError:
    return UsageError(
        f"The state after the first step under the contract is not torch's: {slot}: {why}. Where "
        f"it begins: the update of {name}, module {name.rpartition('.')[0] or 'itself'}.",
        "The gradients agree, so it is the optimizer's rule: report it, with the optimizer's "
        "arguments.",
    )
