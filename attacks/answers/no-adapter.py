"""No adapter: the model answers as if it had none.

Gain: one copy of the model serves everybody, and what a client paid to have trained is left out.
How: what the adapter adds to each layer is zero, and no weight tells. Caught: the first product
with a second matrix is not what the operator makes of its operands (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node, Program, Value
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, second_matrices

_SHOWN_OTHERWISE = ("aten.permute", "aten._to_copy")


@dataclass
class LeftOut(Override):
    """The outputs of some nodes are zero."""

    nodes: frozenset[int]

    def watches(self, step: int) -> bool:
        return True

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if index in self.nodes:
            for output in outputs:
                output[...] = 0


def slot(program: Program, value: Value | None) -> str:
    """The slot that `value` is; "" where it is none."""
    while value is not None and not value.is_input:
        node = program.nodes[value.node]
        value = node.inputs[0] if node.op in _SHOWN_OTHERWISE else None
    return "" if value is None else program.inputs[value.out].name


def build(job: Job, params: dict[str, Any]) -> Override:
    matrices, program = second_matrices(job), job.program
    return LeftOut(
        frozenset(
            index
            for index, node in enumerate(program.nodes)
            if node.op == "aten.mm" and slot(program, node.inputs[1]) in matrices
        )
    )


ATTACK = Attack("no-adapter", KIND, "the adapter is left out", build)
