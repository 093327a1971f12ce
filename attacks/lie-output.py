"""A lie in an operator's output: one number of one node is wrong, and the rest follows from it.

Gain: the cheat steers the training, and no statistic of losses shows it. How: in step `step` the
cheat doubles the largest element of output `output` of node `node` (the last matrix product by
default), or flips bit `bit` of element `element`. The step goes on with the false number. Caught:
both runs agree on the node's inputs, and the referee executes the terms of that one element
(case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, PRODUCTS, Attack, bits_of, falsify, node_of


class WrongOutput(Override):
    def __init__(self, index: int, params: dict[str, Any]) -> None:
        self.at, self.index, self.output = params["step"], index, params["output"]
        self.element, self.bit = params["element"], params["bit"]

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            falsify(outputs[self.output], self.element, self.bit)


def build(job: Job, params: dict[str, Any]) -> Override:
    index = node_of(job, params["node"], *PRODUCTS, step=params["step"])
    types, output = job.terms.program_at(params["step"]).nodes[index].out_types, params["output"]
    if not 0 <= output < len(types):
        raise UsageError(f"Node {index} has no output {output}.")
    size, bits = types[output].numel, bits_of(types[output].dtype)
    if not -1 <= params["element"] < size or size == 0:
        raise UsageError(f"The output has {size} elements.", "Choose one of them.")
    if not -1 <= params["bit"] < bits:
        raise UsageError(f"An element of the output has {bits} bits.", f"Choose 0 to {bits - 1}.")
    return WrongOutput(index, params)


ATTACK = Attack(
    "lie-output",
    "numbers",
    "one number of one operator's output is wrong",
    build,
    {"step": MIDDLE, "node": -1, "output": 0, "element": -1, "bit": -1},
)
