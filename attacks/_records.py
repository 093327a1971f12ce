"""A wrong output, with a false record of that node, so that the node tree holds the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override
from tallystick.run.execute.nodes import NodeDigests

from ._shared import PRODUCTS, falsify, node_of

Change = Callable[[NodeDigests], NodeDigests]


class WrongRecord(Override):
    """Node `index` of step `at`: a false output, and its record changed by `change`."""

    def __init__(self, at: int, index: int, change: Change) -> None:
        self.at, self.index, self.change = at, index, change

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            falsify(outputs[0])

    def record(self, step: int, index: int, record: NodeDigests) -> NodeDigests:
        return self.change(record) if (step, index) == (self.at, self.index) else record


def wrong_record(job: Job, params: dict[str, Any], change: Change) -> Override:
    """The override for parameters `step` and `node`, the last matrix product by default."""
    index = node_of(job, params["node"], *PRODUCTS, step=params["step"])
    return WrongRecord(params["step"], index, change)
