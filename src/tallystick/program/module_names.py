"""How the names of a module's state_dict differ from the slots of a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.errors import CorruptFileError

TIED, TRANSIENT = "tied names", "buffers outside of state_dict"


@dataclass(frozen=True)
class ModuleNames:
    """`tied` has further names of parameters and buffers, each with the first one, under which the
    state has it. `transient` are buffers that the module does not save (persistent=False), or that
    the code keeps outside of it (PROGRAM 5.20)."""

    tied: Mapping[str, str] = field(default_factory=dict)
    transient: tuple[str, ...] = ()

    def notes(self) -> dict[str, str]:
        """The entries of a job's `about`; no name holds a space or an equals sign (PROGRAM 2.3)."""
        notes = {}
        if self.tied:
            notes[TIED] = " ".join(f"{a}={b}" for a, b in sorted(self.tied.items()))
        if self.transient:
            notes[TRANSIENT] = " ".join(sorted(self.transient))
        return notes


def names_of(about: Mapping[str, str], slots: set[str]) -> ModuleNames:
    """The names in a job's `about`. `slots` are the module's own names in the state.

    Raises CorruptFileError where they do not fit the state.
    """
    tied = dict(pair.partition("=")[::2] for pair in about.get(TIED, "").split())
    transient = tuple(about.get(TRANSIENT, "").split())
    strange = [*(set(tied.values()) | set(transient)) - slots, *set(tied) & slots]
    if strange or "" in tied:
        raise CorruptFileError(
            f"The job's notes about the module's names do not fit its state: {strange[0][:80]!r}."
            if strange
            else "The job's notes about the module's names hold an empty name.",
            "Restore the job from its author.",
        )
    return ModuleNames(tied, transient)
