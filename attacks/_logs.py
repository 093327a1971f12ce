"""Shared by the attacks on rounding logs: the choice of an output, changes to its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.commit.log import Section
from tallystick.commit.tensor import Array
from tallystick.contracts.replay.entries import Entries
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.grid import Grid
from tallystick.numerics.registry import rounded_operators
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import node_of, nothing_to_do

UP = 1  # an entry's direction


def bits_of_log(job: Job) -> int:
    """B of a job with bounded logs. Raises UsageError for any other job: it has no log to forge."""
    contract = parse_contract(job.commitment.contract)
    if contract.form != "bounded":
        raise nothing_to_do("its contract keeps no bounded log")
    return contract.bits


def logged_node(job: Job, wanted: int) -> int:
    """The node to lie about: the last product of gradients by default."""
    index = node_of(job, wanted, "aten.mm", "aten.convolution_backward", "aten.addmm")
    if job.program.nodes[index].op not in rounded_operators():
        raise UsageError(f"Node {index} has no entries.", "Choose a product, convolution or sum.")
    return index


class LogLie(Override):
    """Entries of the first `count` elements of an output, and values moved along the grid."""

    def __init__(self, params: dict[str, Any], index: int, bits: int, count: int) -> None:
        self.at, self.index, self.count = params["step"], index, count
        self.grid = Grid(bits)
        self.logs = self.moves = False

    def watches(self, step: int) -> bool:
        return self.moves and step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        """Move every element of the lie to its upper neighbour on the grid."""
        if not self.moves or (step, index) != (self.at, self.index):
            return
        output: Any = outputs[0]
        for element in range(min(self.count, output.size)):
            place = np.unravel_index(element, output.shape)
            at = self.grid.index(output[place])
            if at is not None and abs(at) < self.grid.infinity:
                output[place] = self.grid.value(at + 1)

    def log(self, step: int, section: Section, entries: Entries) -> Entries:
        """Give every element of the lie an entry that says "up"."""
        there = (step, section.node, section.output) == (self.at, self.index, 0)
        if not self.logs or not there:
            return entries
        forged = np.arange(min(self.count, section.elements), dtype=np.int64)
        kept = entries.select(entries.positions >= len(forged))
        ups = np.full(len(forged), UP, np.uint8)
        return Entries(
            np.concatenate([forged, kept.positions]), np.concatenate([ups, kept.directions])
        )
