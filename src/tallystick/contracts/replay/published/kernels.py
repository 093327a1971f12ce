"""The kernel of a node under the published form: the recorder's, or the follower's.

Both compute every logged output by stock kernels in binary64 and round it. A recorder writes down
the side on which each value lay (`record`); a follower takes the recorder's side (`follow`). The
kernels are torch's: `load_stock` loads torch, and nothing before it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.contracts.replay.published import check_sections, load_stock
from tallystick.contracts.replay.published.follow import (
    LoggedCall,
    PublishedFollow,
    PublishedRecord,
)
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep, NodeCall, NodeKernels
from tallystick.numerics.registry import OpSpec

if TYPE_CHECKING:
    from tallystick.contracts.replay.stock.stock import Stock

Array = np.ndarray


# Elements of a per-element operator that are computed at once: their binary64 stays in cache.
ELEMENTS_AT_ONCE = ENTRIES_PER_BYTE << 15


class PublishedKernels(NodeKernels):
    """The kernels of the nodes that have published sections, over the log of the step that runs.

    `record` and `follow` give their outputs values. Raises CannotCheckError without
    torch, UnsupportedOperatorError for an operator without a stock form.
    """

    def __init__(self, logged: LoggedProgram, stock: Stock | None = None) -> None:
        super().__init__(logged)
        check_sections(logged)
        self._stock = stock or load_stock()
        self.record = PublishedRecord(logged.contract)
        self.follow = PublishedFollow(logged, self.record)

    def begin(self, step: LoggedStep) -> None:
        super().begin(step)
        if step.follows:
            self.follow.begin()
        self._stock.prepare()

    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        decide = self.follow if step.follows else self.record
        spec, attrs, sections = call.spec, call.attrs, call.sections
        packed = {out: decide.section(step, number) for out, number in sections.items()}
        for part in self._parts(spec, call.inputs, call.outputs):
            kept = _as_read(part) if step.follows else part.inputs
            found = self._stock.compute(spec, attrs, part.inputs, part.outputs)
            for out, x in enumerate(found):
                if x is not None:
                    entries = packed[out][part.first : part.last]
                    offset = part.first * ENTRIES_PER_BYTE
                    made = LoggedCall(spec, out, sections[out], attrs, kept, part.outputs, offset)
                    decide.settle(step, made, x, part.outputs[out], entries)
        for out, entries in packed.items():
            step.sink.published(sections[out], entries.tobytes())

    def _parts(
        self, spec: OpSpec, inputs: Sequence[Array | None], given: Sequence[Array]
    ) -> list[_EntryPart]:
        """The call, cut into stretches of its elements where that saves memory."""
        count = given[0].size
        if not self._stock.is_per_element(spec) or count <= ELEMENTS_AT_ONCE:
            return [_EntryPart(0, None, inputs, given)]
        if not all(_can_be_cut(x, count) for x in (*inputs, *given)):
            return [_EntryPart(0, None, inputs, given)]
        parts = []
        flat_inputs = [None if x is None else _flat(x) for x in inputs]
        flat = [out.reshape(-1) for out in given]
        for at in range(0, count, ELEMENTS_AT_ONCE):
            here = slice(at, min(at + ELEMENTS_AT_ONCE, count))
            cut = [x if x is None or x.size != count else x[here] for x in flat_inputs]
            first = at // ENTRIES_PER_BYTE
            last = first + -(-(here.stop - at) // ENTRIES_PER_BYTE)
            parts.append(_EntryPart(first, last, cut, [out[here] for out in flat]))
        return parts


@dataclass(frozen=True)
class _EntryPart:
    """A stretch of a call's elements: bytes first..last-1 of the packed entries of its outputs."""

    first: int
    last: int | None
    inputs: Sequence[Array | None]
    outputs: Sequence[Array]


def _can_be_cut(x: Array | None, count: int) -> bool:
    """True if a stretch of a call's elements needs only the same stretch of x, not all of x."""
    return x is None or x.size == 1 or (x.size == count and x.flags.c_contiguous)


def _flat(x: Array) -> Array:
    """x with at most one axis. A 0-d x stays 0-d, because torch treats it differently."""
    return x.reshape(-1) if x.ndim else x


def _as_read(part: _EntryPart) -> Sequence[Array | None]:
    """Copy operands that an output will overwrite: entries are judged by them afterwards."""
    return [
        x.copy() if x is not None and any(np.may_share_memory(x, o) for o in part.outputs) else x
        for x in part.inputs
    ]
