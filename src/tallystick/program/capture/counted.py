"""What an optimizer counts, over programs that are steps of one training (PROGRAM 5.21, 5.25).

Torch counts the updates of each parameter, a program those of a group, and a table of the job the
steps. Where the programs of different steps train different parameters, these may be different
numbers: then the training is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.errors import UsageError
from tallystick.program.capture.updates import Groups, refuse_never_updated
from tallystick.program.optimizers import ParameterGroups
from tallystick.program.tables import Derived, Told
from tallystick.program.update import EMA_PREFIX, family_of, update_scalars

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep
    from tallystick.program.capture.by_step import StepPrograms


def check_trained(found: StepPrograms) -> None:
    """Raises UsageError where a parameter that two programs would train is reached by the loss of
    one of them alone, and the optimizer counts its updates: torch counts those of each parameter, a
    job those of all in its group. So too for the groups of a step function, and for averages."""
    first_step = found.programs[0].first_step
    _check_averages(found)
    if first_step is not None and first_step.request.groups is not None:
        _check_groups(found, first_step.request.groups)
        return
    for number, other in enumerate(found.programs):
        for before, first in enumerate(found.programs[:number]):
            both = _asked(first) & _asked(other)
            apart = both & (set(first.untrained) ^ set(other.untrained))
            if not apart or not any(map(_counts, (first, other))):
                continue
            name = min(apart)
            has, lacks = (before, number) if name in other.untrained else (number, before)
            raise UsageError(
                f"The loss reaches the parameter {name} in step {found.first(has)}, and not in "
                f"step {found.first(lacks)}. The optimizer counts its updates, torch's for each "
                "parameter and a job's for all together.",
                "Let every step reach the same parameters (+ 0.0 * parameter.sum() makes a "
                "gradient of zeros), or train with SGD, which counts none.",
            )


def _asked(step: CapturedStep) -> set[str]:
    """The parameters that require a gradient in the step."""
    assert step.first_step is not None
    return set(step.first_step.request.trained)


def _counts(step: CapturedStep) -> bool:
    return any(name.startswith("opt.beta1_power") for name in step.slot_rules) or any(
        isinstance(scalar, Derived) and scalar.follows_steps and not isinstance(scalar, Told)
        for scalar in step.scalars.values()
    )


def _check_averages(found: StepPrograms) -> None:
    """Raises UsageError where a step leaves out an average that another one moves."""
    averages = [{n for n in p.slot_rules if n.startswith(EMA_PREFIX)} for p in found.programs]
    for number, other in enumerate(averages):
        if missing := averages[0] ^ other:
            name = min(missing)
            has, lacks = (0, number) if name in averages[0] else (number, 0)
            raise UsageError(
                f"Step {found.first(has)} trains the parameter {name.removeprefix(EMA_PREFIX)}, "
                f"but step {found.first(lacks)} does not. Its average would not change there.",
                "Train the same parameters in every step, or leave ema out.",
            )


def _check_groups(found: StepPrograms, groups: Groups) -> None:
    """Raises UsageError where a group is never updated; where its optimizer counts updates, and
    they are of different parameters; and where its rate follows the steps, and not all update
    it alike."""
    updates = [p.first_step.updates for p in found.programs if p.first_step is not None]
    refuse_never_updated(groups, [(u.group, u.names) for each in updates for u in each])
    for group, optimizer in groups.optimizers.items():
        assert not isinstance(optimizer, ParameterGroups)  # `Groups.of` refuses them
        counts = [[set(u.names) for u in each if u.group == group] for each in updates]
        tables = update_scalars(optimizer, group).values()
        by_step = any(isinstance(s, Derived) and s.follows_steps for s in tables)
        for number, other in enumerate(counts):
            if by_step and len(other) != len(counts[0]):
                raise UsageError(
                    f"The step updates {group} {len(counts[0])} times in step 0, and "
                    f"{len(other)} times in step {found.first(number)}. The rate of its optimizer "
                    "follows the number of the step, torch's that of its updates.",
                    "Update it as often in every step, or choose an optimizer whose rate does not "
                    "fall by itself.",
                )
        reached = [names for each in counts for names in each]
        apart = set[str]().union(*(names ^ reached[0] for names in reached))
        if apart and family_of(optimizer).powers(optimizer):
            raise UsageError(
                f"An update of {group} reaches the parameter {min(apart)}, and another one does "
                "not. The optimizer counts its updates, torch's for each parameter and a job's "
                "for all together.",
                "Let every update of a group reach the same parameters (+ 0.0 * parameter.sum() "
                "makes a gradient of zeros), or train with SGD, which counts none.",
            )
