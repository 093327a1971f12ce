"""The bounded form's kernels on a GPU: elements are decided and entries made there (NUMERICS 14).

`BoundedKernels` does the same on host arrays. A step's entries cross the bus once: a trainer's when
the step has ended, a followed log's before it begins. Kernels get the place of the entries and not
the step, so that a recorded step serves any other one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick.contracts.replay.bounded.cuda_log import DeviceLog
from tallystick.contracts.replay.bounded.kernels import FORGED, followed_entries
from tallystick.contracts.replay.entries import Blocks, Entries, decode, encode
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep, NodeCall, NodeKernels
from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.device import Cuda
from tallystick.products.cuda.dots import Rounding

Array = np.ndarray


class BoundedResident(NodeKernels):
    """The kernels of the nodes that have bounded sections, for tensors of `device`.

    With `count_taken` a follower sums every entry's element exactly. Raises MemoryError.
    """

    def __init__(self, logged: LoggedProgram, device: Cuda, count_taken: bool) -> None:
        super().__init__(logged)
        self._count_taken = count_taken
        self._log = DeviceLog(device, [section.elements for section in logged.sections])
        self._given: list[Entries] = []  # of the followed log

    def begin(self, step: LoggedStep) -> None:
        super().begin(step)
        if not step.follows:
            self._log.record()
            return
        sections = self._logged.sections
        self._given = [followed_entries(step, number) for number in range(len(sections))]
        made = [encode(*pair) for pair in zip(sections, self._given, strict=True)]
        self._log.follow(*_joined(made), self._count_taken)

    def end(self) -> None:
        super().end()
        self._given = []

    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        marks = {out: self._log.marks(number) for out, number in call.sections.items()}
        how = Rounding(self._logged.contract.bits, marks)
        rounded_kernel[call.spec.name](how, call.attrs, call.inputs, call.outputs)

    def complete(self) -> None:
        """Write the step's sections."""
        step = self._step
        assert step is not None
        if not step.follows:
            for number, found in enumerate(self._cut(*self._log.recorded())):
                step.sink.bounded(number, found)
            return
        outcome = self._log.followed()
        step.choices.left += outcome.left
        step.choices.taken += outcome.taken
        kept = self._given
        if outcome.entries != sum(map(len, kept)):
            kept = self._without_forged(step)
        for number, entries in enumerate(kept):
            step.sink.bounded(number, encode(self._logged.sections[number], entries))

    def _without_forged(self, step: LoggedStep) -> list[Entries]:
        """The entries that are left of the followed log; the others become findings (14.7)."""
        kept = []
        for number, found in enumerate(self._cut(*self._log.recorded())):
            entries, _ = decode(self._logged.sections[number], found)
            given = self._given[number]
            forged = given.select(~np.isin(given.positions, entries.positions))
            step.found_entries("forged entry", number, forged.positions, forged.directions, FORGED)
            kept.append(entries)
        return kept

    def _cut(self, counts: Array, words: Array) -> list[Blocks]:
        """The blocks of each section, of those of the whole log."""
        found, block, at = [], 0, 0
        for section in self._logged.sections:
            own = counts[block : block + section.blocks]
            end = at + int(own.sum(dtype=np.int64))
            found.append(Blocks(own, words[at:end]))
            block, at = block + section.blocks, end
        return found


def _joined(sections: Sequence[Blocks]) -> tuple[Array, Array]:
    """The counts and the words of all sections, one after the other."""
    if not sections:
        return np.empty(0, "<u2"), np.empty(0, "<u2")
    counts = np.concatenate([blocks.counts for blocks in sections])
    return counts, np.concatenate([blocks.words for blocks in sections])
