"""Shared by the cheats of answers: the slots of an answer, and the weights that a model has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.answers.encoding_programs import VALUES
from tallystick.answers.job import TOKENS
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.program.state import State
from tallystick.run.cheats.override import Override

from .._shared import nothing_to_do

KIND = "model"


def require_answer(job: Job) -> None:
    """Raise UsageError for a job that is none of an answer or an encoding."""
    if not {TOKENS, VALUES} & job.program.state_types.keys():
        raise nothing_to_do("the job is none of an answer")


def slot_node(job: Job, slot: str) -> int:
    """The node that makes a slot of the answer: `TOKENS`, `LOGPROBS` or `VALUES`."""
    if slot not in job.program.state_types:
        raise nothing_to_do(f"the job has no {slot}")
    return job.program.next_state[slot].node


def floats(job: Job) -> list[str]:
    """The parameters that have numbers to change, the largest first."""
    require_answer(job)
    types = {
        name: type_
        for name, type_ in job.program.state_types.items()
        if name.startswith("param.") and type_.dtype == "f32"
    }
    return sorted(types, key=lambda name: (-types[name].numel, name))


@dataclass
class OtherWeights(Override):
    """Computes with weights that `change` has made of the model's, and commits to the model's."""

    slots: Sequence[str]
    change: Callable[[Array], Array]
    _true: dict[str, Array] = field(default_factory=dict)

    def before(self, step: int, state: State) -> None:
        for name in self.slots:
            array: Any = state.slots[name]
            self._true.setdefault(name, np.array(array, copy=True))
            array[...] = self.change(self._true[name])

    def after(self, step: int, state: State) -> None:
        for name, true in self._true.items():
            state.slots[name][...] = true  # type: ignore[index]


@dataclass
class AtNode(Override):
    """Changes what one node has made by `change`, which gets its outputs."""

    index: int
    change: Callable[[Sequence[Array]], None]

    def watches(self, step: int) -> bool:
        return True

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if index == self.index:
            self.change(outputs)
