"""What workers exchange between two phases of a tail (program/tail.py): values of rank 0 of the
groups that one worker owns, and the values of the blocks of sums of squares of what is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.types import DTYPES
from tallystick.program.block_sums import BlockSums, block_count
from tallystick.program.cutting import ranges
from tallystick.program.ir import Program, Value
from tallystick.program.pieces import value_name
from tallystick.program.tail import Phase
from tallystick.run.distributed.messages import as_bytes
from tallystick.run.distributed.transport import Bytes


@dataclass
class Norms:
    """The exchanges of `program` among `workers` workers. Called inside of an execution context."""

    program: Program
    workers: int
    rank: int
    device: Device

    def __post_init__(self) -> None:
        self._blocks = BlockSums(self.device)

    def sizes(self, phase: Phase) -> list[int]:
        """The bytes that each worker sends to every other after a phase."""
        found = [0] * self.workers
        for value, owner in phase.exchanged:
            found[owner] += self.program.type_of(value).nbytes
        for _, operand in phase.squares:
            for rank, count in enumerate(self._counts(operand)):
                found[rank] += 4 * count
        return found

    def _counts(self, operand: Value) -> list[int]:
        """The blocks of each worker's range of a value."""
        own = ranges(self.program.type_of(operand).numel, self.workers)
        return [block_count(len(elements)) for elements in own]

    def own(
        self, phase: Phase, outputs: Mapping[str, Any], operand: Callable[[Value], Tensor]
    ) -> list[Bytes]:
        """What this worker sends: `outputs` are the phase's, `operand` its range of a value."""
        whole = [as_bytes(outputs[value_name(v)]) for v, r in phase.exchanged if r == self.rank]
        blocks = [as_bytes(self._blocks.values(operand(x))) for _, x in phase.squares]
        return whole + blocks

    def take(self, phase: Phase, bodies: Sequence[Bytes], given: dict[str, Any]) -> None:
        """Add the values that all workers need to `given`, from what each worker sent."""
        at = [0] * self.workers

        def next_of(rank: int, nbytes: int) -> Bytes:
            at[rank] += nbytes
            return np.array(bodies[rank][at[rank] - nbytes : at[rank]])

        for value, owner in phase.exchanged:
            type_ = self.program.type_of(value)
            data = next_of(owner, type_.nbytes).view(DTYPES[type_.dtype])
            given[value_name(value)] = data.reshape(type_.shape)
        for value, operand in phase.squares:
            counts = enumerate(self._counts(operand))
            blocks = [next_of(rank, 4 * count).view(np.float32) for rank, count in counts]
            given[value_name(value)] = self._blocks.total(np.concatenate(blocks))
