"""Workers that lie about their shares of a step: an honest worker's code over one change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.program.ir import Value
from tallystick.program.share import Tree, parts_of, sum_slot
from tallystick.run.cheats.attacks import hooks_of
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.override import Override
from tallystick.run.distributed.checks import Hand, ShareChecks
from tallystick.run.store.unsigned import Declaration


def _tree_of(checks: ShareChecks, part: int) -> tuple[int, Tree] | None:
    """The share of this worker with micro-batch `part`, and its place among its shares."""
    for place, tree in enumerate(checks.own[checks.rank]):
        if part in parts_of(tree):
            return place, tree
    return None


@dataclass
class FalseGradient(Hand):
    """In `step` the output of one node of micro-batch `part` is false, and the share follows from
    it. `node` is a node of the text; -1 is the one that makes the last folded value."""

    step: int
    part: int
    node: int = -1
    override: Override | None = field(default=None, init=False)  # of the share job

    def before_claim(self, checks: ShareChecks) -> None:
        found = _tree_of(checks, self.part) if checks.step == self.step else None
        if found is None:
            return
        place, tree = found
        task, section = checks.task(tree), checks.section
        assert section is not None
        node = section.values[-1].node if self.node < 0 else self.node
        index = task.share.nodes[self.part, node]
        state = {n: checks.context.device.host(checks.state[n]) for n in task.share.reads}
        with TemporaryDirectory() as directory:
            job = task.write(Path(directory) / "job", state)
            declared = Declaration("lie-output", {"step": 0, "node": index, "element": 0})
            self.override = hooks_of(declared, job)
            engine = CheatingEngine(
                job,
                job.genesis(),
                context=ExecutionContext(checks.context.threads),
                override=self.override,
            )
            engine.run()
            for k, value in enumerate(section.values):
                lied = np.array(engine.state.slots[sum_slot(k)])
                checks.context.device.write(lied, section.sums[value][place])


def _flip(checks: ShareChecks, part: int) -> None:
    found = _tree_of(checks, part)
    if found is None or checks.section is None:
        return
    _flip_bit(checks, checks.section.sums[checks.section.values[-1]][found[0]])


def _flip_bit(checks: ShareChecks, tensor: Tensor) -> None:
    array = np.array(checks.context.device.host(tensor), order="C")
    array.reshape(-1).view(np.uint32)[-1] ^= 1
    checks.context.device.write(array, tensor)


@dataclass
class FalseBytes(Hand):
    """In `step` one bit of a sum with micro-batch `part` is flipped, and signed as it is then."""

    step: int
    part: int

    def before_claim(self, checks: ShareChecks) -> None:
        if checks.step == self.step:
            _flip(checks, self.part)


@dataclass
class FalseCheck(Hand):
    """In `step` this worker accuses others: one bit of what it computes again is flipped."""

    step: int

    def before_check(self, checks: ShareChecks, sums: Mapping[Value, Tensor]) -> None:
        if checks.step == self.step:
            _flip_bit(checks, sums[max(sums)])


@dataclass
class OtherBytes(Hand):
    """In `step` the bytes of all sums with micro-batch `part` are sent otherwise than signed, so
    many times. The sums that this worker folds itself it sends to nobody."""

    step: int
    part: int
    times: int = 1 << 30

    def after_claim(self, checks: ShareChecks) -> None:
        if checks.step == self.step and self.times > 0:
            self.times -= 1
            found = _tree_of(checks, self.part)
            if found is not None and checks.section is not None:
                for sums in checks.section.sums.values():
                    _flip_bit(checks, sums[found[0]])
