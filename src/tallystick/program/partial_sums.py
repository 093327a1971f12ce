"""The sum of a value over micro-batches, held as a few partial sums (COMMITMENTS 2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.kernels.device import Device, Tensor
from tallystick.kernels.table import Run
from tallystick.numerics.types import TensorType
from tallystick.program.layout import new_tensor


@dataclass
class PartialSums:
    """The sum of one value over micro-batches by the split of COMMITMENTS 2.3.

    `held` has the sums of 2^level micro-batches each, as the binary number of those seen so far.
    `spare` is memory that is free.
    """

    device: Device
    run: Run
    type: TensorType
    spare: list[Tensor]
    held: dict[int, Tensor] = field(default_factory=dict)

    def add(self, part: int, x: Tensor) -> None:
        """Add micro-batch `part`'s value, of any strides; the parts come in order."""
        level, one, own = 0, x, None
        while part >> level & 1:
            left = self.held.pop(level)
            self._add(left, one)
            if own is not None:
                self.spare.append(own)
            one = own = left
            level += 1
        if own is None:
            own = self.spare.pop() if self.spare else new_tensor(self.device, self.type)
            self.device.copy(x, own)
        self.held[level] = own

    def total(self) -> Tensor:
        """The sum of all, in memory that is free again for the next step."""
        found: Tensor | None = None
        for level in sorted(self.held):
            left = self.held.pop(level)
            if found is not None:
                self._add(left, found)
                self.spare.append(found)
            found = left
        self.spare.append(found)
        return found

    def forget(self) -> None:
        """Drop what a broken step left."""
        self.spare += self.held.values()
        self.held.clear()

    def _add(self, left: Tensor, right: Tensor) -> None:
        self.run({"mean": False}, [left, right], [left])
