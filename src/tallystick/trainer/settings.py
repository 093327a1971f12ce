"""What each training step is made with, where a loop changes that on its way (PROGRAM 5.22).

A *setting* is a set of trained parameters, options of the optimizer's groups, and a bound for the
norm. Each distinct one is a form of the step; the learning rates of all steps are tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture.stock_instances import one_group
from tallystick.program.optimizers import ParameterGroup, ParameterGroups
from tallystick.program.tables import Derived, Told
from tallystick.program.update import family_of

RATE = "lr"


def _fixed(value: Any) -> Any:
    """A value that can be compared, as it is now."""
    if isinstance(value, Tensor):
        return float(value)
    return tuple(map(_fixed, value)) if isinstance(value, (list, tuple)) else value


def options_of(optimizer: Any) -> tuple[Mapping[str, Any], ...]:
    """By group, the options of the optimizer's kind."""
    names = [name for name in optimizer.defaults if name != RATE]
    return tuple({n: _fixed(g[n]) for n in names if n in g} for g in optimizer.param_groups)


def rates_of(optimizer: Any) -> tuple[float | None, ...]:
    """By group, the learning rate; None for an optimizer that makes its own."""
    found = [group[RATE] for group in optimizer.param_groups]
    return tuple(None if rate is None else float(rate) for rate in found)


def flags_of(module: nn.Module) -> dict[str, bool]:
    """By parameter, whether it requires a gradient."""
    return {name: parameter.requires_grad for name, parameter in module.named_parameters()}


def set_flags(module: nn.Module, flags: Mapping[str, bool]) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad != flags[name]:
            parameter.requires_grad_(flags[name])


def without_values(model: nn.Module) -> dict[int, Any]:
    """For a deep copy: by identity, the tensor in the place of each parameter and buffer."""
    found: dict[int, Any] = {}
    for parameter in model.parameters():
        empty = torch.empty_like(parameter, device="meta", requires_grad=False)
        found[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        found[id(buffer)] = torch.empty_like(buffer, device="meta")
    return found


@dataclass(frozen=True)
class Setting:
    """The parameters that require a gradient, the options of each group, and the bound for the
    norm of the gradients."""

    trained: frozenset[str]
    options: tuple[Mapping[str, Any], ...]
    clip_norm: float | None

    @classmethod
    def now(cls, module: nn.Module, optimizer: Any, clip_norm: float | None) -> Setting:
        trained = frozenset(name for name, flag in flags_of(module).items() if flag)
        return cls(trained, options_of(optimizer), clip_norm)


@dataclass(frozen=True)
class CourseSettings:
    """The settings of a job, which one each step has, and by step the rate of each group."""

    kinds: tuple[Setting, ...]
    of_steps: tuple[int, ...]
    rates: tuple[tuple[float | None, ...], ...]

    @classmethod
    def of(cls, steps: Sequence[tuple[Setting, tuple[float | None, ...]]]) -> CourseSettings:
        kinds: list[Setting] = []
        numbers = []
        for setting, _ in steps:
            if setting not in kinds:
                kinds.append(setting)
            numbers.append(kinds.index(setting))
        return cls(tuple(kinds), tuple(numbers), tuple(rates for _, rates in steps))

    @contextmanager
    def applied(self, module: nn.Module, number: int) -> Iterator[None]:
        """The module's flags are those of the setting within the block."""
        before, trained = flags_of(module), self.kinds[number].trained
        set_flags(module, {name: name in trained for name in before})
        try:
            yield
        finally:
            set_flags(module, before)

    # -- the optimizer -----------------------------------------------------------------------------
    def described(self, module: nn.Module, optimizer: Any, number: int) -> ParameterGroups:
        """The optimizer as a step of the setting has it. Raises as `prepare`, and UsageError where
        torch counts a parameter's own updates and a job those of all."""
        kind = self.kinds[number]
        found: dict[str, ParameterGroup] = {}
        owned: set[str] = set()
        for name, group, members, pattern in self._cohorts(module, optimizer):
            if pattern[number]:
                one = one_group(optimizer, {**kind.options[group], RATE: self._rate(group)}, name)
                self._check(one, group, members[0], pattern)
                found[name] = ParameterGroup(one, members)
                owned |= set(members)
        if strange := sorted(kind.trained - owned):
            raise UsageError(
                f"The parameter {strange[0]} requires a gradient, but no group of the optimizer "
                "contains it.",
                "Freeze it (requires_grad_(False)), or add it to the optimizer.",
            )
        if not found:
            raise UsageError(
                f"Step {self.of_steps.index(number)} trains no parameter.", "Unfreeze at least one."
            )
        return ParameterGroups(found)

    def schedules(self, module: nn.Module, optimizer: Any) -> dict[str, list[float]]:
        """The tables of the rates, by their names."""
        found: dict[str, list[float]] = {}
        for name, group, _, _ in self._cohorts(module, optimizer):
            table = [rates[group] for rates in self.rates]
            if self._rate(group) is not None:
                found[f"{RATE}.{name}"] = [float(rate) for rate in table if rate is not None]
        return found

    def _rate(self, group: int) -> float | None:
        return self.rates[0][group]

    def _cohorts(
        self, module: nn.Module, optimizer: Any
    ) -> list[tuple[str, int, tuple[str, ...], tuple[bool, ...]]]:
        """The parameters of a group that are trained in the same steps: a name, the group's number,
        their names, and whether each setting trains them."""
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        width = len(str(len(optimizer.param_groups) - 1))
        found = []
        for number, group in enumerate(optimizer.param_groups):
            by_pattern: dict[tuple[bool, ...], list[str]] = {}
            for parameter in group["params"]:
                name = names.get(id(parameter), "")
                pattern = tuple(name in kind.trained for kind in self.kinds)
                if any(pattern):
                    by_pattern.setdefault(pattern, []).append(name)
            parts = sorted((tuple(sorted(n)), p) for p, n in by_pattern.items())
            inner = len(str(len(parts) - 1))
            for i, (members, pattern) in enumerate(parts):
                own = f"{number:0{width}d}" + (f".{i:0{inner}d}" if len(parts) > 1 else "")
                found.append((own, number, members, pattern))
        return found

    def _check(self, optimizer: Any, group: int, name: str, pattern: tuple[bool, ...]) -> None:
        """Raises UsageError for a rule that counts steps which this cohort does not all make, and
        for powers of numbers that change."""
        counts = [
            scalar
            for scalar in family_of(optimizer).scalars(optimizer).values()
            if isinstance(scalar, Derived) and scalar.follows_steps and not isinstance(scalar, Told)
        ]
        if counts and not all(pattern[number] for number in self.of_steps):
            raise UsageError(
                f"{name} is not trained in every step. torch's {type(optimizer).__name__} counts "
                "updates for each parameter, but a job counts them for all together.",
                "Train it in every step, or use AdamW, Adam or SGD.",
            )
        betas = {repr(kind.options[group].get("betas")) for kind in self.kinds}
        if family_of(optimizer).powers(optimizer) and len(betas) > 1:
            raise UsageError(
                f"The betas of the optimizer's group {group} change during training. torch would "
                "use the new ones for earlier updates too.",
                "Keep the betas constant.",
            )
