"""The sum of a value over micro-batches, held as a few partial sums (COMMITMENTS 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tallystick.commit.streamed import joined
from tallystick.devices.device import Device, Run, Tensor
from tallystick.numerics.types import TensorType
from tallystick.program.layout import new_tensor


@dataclass
class PartialSums:
    """The sum of one value over micro-batches by the split of COMMITMENTS 2.3.

    `held` has (level, sum of 2^level aligned micro-batches) in order; where the first micro-batch
    is number 0, the levels are the binary number of those seen so far. `spare` is memory that is
    free.
    """

    device: Device
    run: Run
    type: TensorType
    spare: list[Tensor]
    held: list[tuple[int, Tensor]] = field(default_factory=list)

    def add(self, part: int, x: Tensor) -> None:
        """Add micro-batch `part`'s value, of any strides; the parts come in order."""
        level, one, own = 0, x, None
        while part >> level & 1 and self.held and self.held[-1][0] == level:
            left = self.held.pop()[1]
            self._add(left, one)
            if own is not None:
                self.spare.append(own)
            one = own = left
            level += 1
        if own is None:
            own = self.spare.pop() if self.spare else new_tensor(self.device, self.type)
            self.device.copy(x, own)
        self.held.append((level, own))

    def total(self) -> Tensor:
        """The sum of all, from number 0 on, in memory that is free again for the next step."""
        found: Tensor | None = None
        while self.held:
            left = self.held.pop()[1]
            if found is not None:
                self._add(left, found)
                self.spare.append(found)
            found = left
        self.spare.append(found)
        return found

    def forget(self) -> None:
        """Free the memory of the sums."""
        self.spare += [tensor for _, tensor in self.held]
        self.held.clear()

    def _add(self, left: Tensor, right: Tensor) -> None:
        self.run({"mean": False}, [left, right], [left])


def merge(
    given: Sequence[tuple[tuple[int, int], Tensor]], add: Callable[[Tensor, Tensor], None]
) -> Tensor:
    """The sum over all micro-batches of sums of subtrees: ((level, first micro-batch), sum) in
    order, from micro-batch 0 on. `add(left, right)` adds `right` to `left`, in place."""

    def join(left: Tensor, right: Tensor) -> Tensor:
        add(left, right)
        return left

    total = joined(given, join)
    assert total is not None
    return total


def share(rank: int, workers: int, parts: int) -> range:
    """The micro-batches of worker `rank` of `workers`: consecutive, and as many as any other's or
    one more."""
    size, more = divmod(parts, workers)
    first = rank * size + min(rank, more)
    return range(first, first + size + (rank < more))
