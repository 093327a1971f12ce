"""Learning-rate schedulers of torch and transformers as tables: stepped once, on a dummy optimizer.

A table holds the numbers themselves. So the job needs no rule of the scheduler, and no scheduler.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from tallystick.errors import UsageError


def is_scheduler(value: object) -> bool:
    """True for a scheduler of torch, or what is one by its methods."""
    return isinstance(value, (LRScheduler, ReduceLROnPlateau)) or (
        hasattr(value, "optimizer") and hasattr(value, "step")
    )


def _dummy(optimizer: Optimizer) -> Optimizer:
    """An optimizer with the same groups and options, and one small parameter in each."""
    groups = [{**g, "params": [torch.zeros(1, requires_grad=True)]} for g in optimizer.param_groups]
    for group in groups:
        group.pop("param_names", None)
    dummy = torch.optim.SGD(groups, lr=0.0)
    dummy.defaults = dict(optimizer.defaults)
    return dummy


def _options(optimizer: Optimizer, options: set[str]) -> list[dict[str, Any]]:
    return [{k: v for k, v in g.items() if k in options} for g in optimizer.param_groups]


def _check(scheduler: Any) -> None:
    name = type(scheduler).__name__
    if isinstance(scheduler, ReduceLROnPlateau):
        raise UsageError(
            f"The scheduler {name} depends on a validation loss, so its rates cannot be listed in "
            "a job.",
            "Choose a scheduler whose rates depend on the step alone.",
        )
    if name == "AdafactorSchedule":
        raise UsageError(
            "AdafactorSchedule only reports rates that Adafactor computes itself.",
            "Leave it out: the job derives them.",
        )
    if not isinstance(scheduler, LRScheduler):
        raise UsageError(
            f"The scheduler {type(scheduler).__module__}.{name} is not supported.",
            "Use a torch.optim.lr_scheduler, a list of numbers, or a function of the step.",
        )


def rates_of(scheduler: Any, steps: int, every: int = 1) -> list[list[float]]:
    """A table of `steps` rates for each parameter group, from the scheduler's present position on.

    The scheduler itself is not stepped. It is taken to step after every `every` steps. Raises
    UsageError for one that depends on a loss, changes another option than the rate, or stops.
    """
    _check(scheduler)
    if steps < 1 or every < 1:
        raise UsageError("A table needs at least one step.", "Pass positive steps and every.")
    optimizer = scheduler.optimizer
    dummy = _dummy(optimizer)
    options = set(optimizer.defaults) - {"lr"}
    before = _options(dummy, options)
    tables: list[list[float]] = [[] for _ in dummy.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = copy.deepcopy(scheduler, {id(optimizer): dummy})
        for step in range(steps):
            if step and step % every == 0:
                try:
                    own.step()
                except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
                    raise UsageError(
                        f"The scheduler {type(scheduler).__name__} stops before step {step}: "
                        f"{error}",
                        "Use one that has as many steps as the job.",
                    ) from None
            for table, group in zip(tables, dummy.param_groups, strict=True):
                table.append(float(group["lr"]))
            if _options(dummy, options) != before:
                changed = next(
                    k
                    for old, new in zip(before, _options(dummy, options), strict=True)
                    for k in old
                    if old[k] != new[k]
                )
                raise UsageError(
                    f"The scheduler {type(scheduler).__name__} changes {changed} at step {step}; a "
                    "job has tables of learning rates only.",
                    "Turn that off (cycle_momentum=False, for example).",
                )
    if not all(math.isfinite(rate) for table in tables for rate in table):
        raise UsageError(
            f"The scheduler {type(scheduler).__name__} gives a rate that is not finite.",
            "Check its arguments.",
        )
    return tables
