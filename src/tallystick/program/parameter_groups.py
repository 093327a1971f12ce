"""Parameter groups: one step whose parameters have optimizers, rates and options of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.check import check_name
from tallystick.program.optimizers import KINDS, Optimizer

# Names of parameters or of submodules, or a rule over (name, shape); None: all the others.
Members = tuple[str, ...] | Callable[[str, tuple[int, ...]], bool] | None


@dataclass(frozen=True)
class ParameterGroup:
    """An optimizer and its parameters: names of parameters or submodules, a rule over (name,
    shape), or None for all that no other group has."""

    optimizer: Optimizer
    members: Members = None

    def has(self, name: str, shape: tuple[int, ...]) -> bool:
        if self.members is None:
            return False
        if callable(self.members):
            return bool(self.members(name, shape))
        return any(name == m or name.startswith(f"{m}.") for m in self.members)


class ParameterGroups:
    """Optimizers by the names of their groups, all of which step at once (PROGRAM 5.17).

    The learning rate of a group is the scalar `lr.GROUP`. Each trained parameter is in one group.
    Clipping by norm takes the norm over all groups.
    """

    def __init__(self, groups: Mapping[str, ParameterGroup]) -> None:
        """Raises UsageError for no group, a name that no slot can have, or several rests."""
        self.groups = dict(sorted(groups.items()))
        if not self.groups:
            raise UsageError("ParameterGroups: no group was given.", "Pass at least one.")
        for name, group in self.groups.items():
            check_name(f"lr.{name}")
            if not isinstance(group, ParameterGroup) or not isinstance(group.optimizer, KINDS):
                raise UsageError(
                    f"ParameterGroups: {name!r} is not a ParameterGroup of an optimizer.",
                    "Write ParameterGroup(tallystick.AdamW(...), members).",
                )
            if isinstance(group.members, str):
                raise UsageError(
                    f"ParameterGroups: the members of {name!r} are a single string.",
                    "Write a tuple of names.",
                )
        if sum(group.members is None for group in self.groups.values()) > 1:
            raise UsageError(
                "ParameterGroups: more than one group takes all the other parameters.",
                "Name the members of all groups but one.",
            )

    def assigned(self, types: Mapping[str, TensorType]) -> dict[str, tuple[str, ...]]:
        """The parameters of each group, in bytewise order.

        Raises UsageError for a parameter that is in no group or in several.
        """
        found: dict[str, list[str]] = {name: [] for name in self.groups}
        rest = next((n for n, g in self.groups.items() if g.members is None), None)
        for name in sorted(types):
            owners = [n for n, g in self.groups.items() if g.has(name, types[name].shape)]
            owners = owners or ([] if rest is None else [rest])
            if len(owners) != 1:
                where = f"several groups: {', '.join(owners)}" if owners else "no group"
                raise UsageError(
                    f"The parameter {name} is in {where}.",
                    "Give each trained parameter one group, or freeze it (requires_grad_(False)).",
                )
            found[owners[0]].append(name)
        for name, members in found.items():
            if not members:
                raise UsageError(
                    f"The group {name!r} contains no parameter that the loss trains.",
                    "Name a submodule's path or a parameter of the module, or remove the group.",
                )
        return {name: tuple(members) for name, members in found.items()}
