"""A step's bounded rounding log on a GPU (COMMITMENTS 10.2), over native/cuda/replay.cu; and
the probe of a GPU's logs.

While a step runs, its entries are marks: two bits of each element. So the room for them is known
beforehand, and no entry can be one too many. The log's blocks are made of them once, at the end. A
followed log's blocks become marks before the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tallystick.commit.log import BLOCK_ELEMENTS
from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor, Memory
from tallystick.errors import MachineFaultError
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Marks, Rounding

Array = np.ndarray
_WORD = np.dtype("<u2")  # of a log
_MARKED = BLOCK_ELEMENTS // 8  # bytes of one kind of marks of a block
RECORD, FOLLOW, COUNT = range(3)  # Role in replay.cu
_CONTROL = 32  # bytes: Control in replay.cu
_OFFSETS = 1024  # threads


@dataclass(frozen=True)
class LogOutcome:
    """A step's entries and choices (NUMERICS 14.8): `left` and `taken` are a follower's."""

    entries: int
    left: int
    taken: int


def least_room(blocks: int) -> int:
    """The number of a log's words that lie on the device together: for an entry of every 64
    elements. A log of more crosses the bus in several copies."""
    return max(BLOCK_ELEMENTS, blocks * BLOCK_ELEMENTS // 64)


class DeviceLog:
    """The log of the step at hand on `device`, of outputs of `sizes` elements.

    Its addresses stay, because recorded steps hold them. Raises MemoryError.
    """

    def __init__(self, device: Cuda, sizes: Sequence[int]) -> None:
        blocks = [-(-size // BLOCK_ELEMENTS) for size in sizes]
        self._device, self._starts = device, [0, *accumulate(blocks)]
        self.blocks = self._starts[-1]
        self.room = least_room(self.blocks)
        driver = device.driver
        self._marks = Memory(driver, max(1, 2 * _MARKED * self.blocks))
        # The control, then the number of entries of each block: one copy has both.
        self._head = Memory(driver, _CONTROL + 2 * self.blocks)
        self._offsets = Memory(driver, max(1, 8 * self.blocks))
        self._words = Memory(driver, 2 * self.room)

    def marks(self, number: int) -> Marks:
        """Those of output `number`."""
        entries = self._marks.address + _MARKED * self._starts[number]
        return Marks(entries, entries + _MARKED * self.blocks, self._head.address)

    def _launch(self, kernel: str, begin: int = 0, threads: int = THREADS) -> None:
        params = whole(
            self._marks.address, self._marks.address + _MARKED * self.blocks,
            self._head.address + _CONTROL, self._offsets.address, self._words.address,
            self._head.address, self.blocks, begin, self.room,
        )  # fmt: skip
        grid = (1, 1, 1) if threads == _OFFSETS else over(32 * self.blocks)
        self._device.launch(kernel, grid, threads, params)

    # -- before a step ---------------------------------------------------------------------------

    def record(self) -> None:
        """Begin a trainer's step: no entries."""
        self._clear(RECORD)

    def follow(self, counts: Array, words: Array, count: bool) -> None:
        """Begin a follower's step: the entries of a log, as the numbers of entries of all blocks
        u16[blocks] and all words u16[entries], both in order. `count`: every entry's element is
        summed exactly."""
        self._clear(COUNT if count else FOLLOW)
        if not len(words):
            return
        driver = self._device.driver
        driver.to_device(np.ascontiguousarray(counts, _WORD), self._head.address + _CONTROL)
        self._launch("replay_offsets", threads=_OFFSETS)
        for begin in range(0, len(words), self.room):
            part = np.ascontiguousarray(words[begin : begin + self.room], _WORD)
            driver.to_device(part, self._words.address)
            self._launch("replay_spread", begin)

    def _clear(self, role: int) -> None:
        driver = self._device.driver
        driver.fill(self._marks.address, 0, self._marks.nbytes)
        driver.fill(self._head.address, 0, _CONTROL)
        driver.fill(self._head.address, role, 1)

    # -- after a step ----------------------------------------------------------------------------

    def recorded(self) -> tuple[Array, Array]:
        """All entries, as `follow` takes them. Raises MachineFaultError where the device has
        miscounted them."""
        self._count()
        _, counts, total = self._read(_CONTROL + 2 * self.blocks)
        if total != int(counts.sum(dtype=np.int64)):
            raise MachineFaultError(
                f"{self._device.name} miscounted the entries of a rounding log.",
                "Compute with --device cpu; please report the output of `tallystick doctor`.",
            )
        words: Array = np.empty(total, _WORD)
        for begin in range(0, total, self.room):
            self._launch("replay_compact", begin)
            self._device.driver.to_host(self._words.address, words[begin : begin + self.room])
        return counts, words

    def followed(self) -> LogOutcome:
        """What became of the entries; those that are left are `recorded`'s."""
        self._count()
        numbers, _, total = self._read(_CONTROL)
        return LogOutcome(total, int(numbers[1]), int(numbers[2]))

    def _count(self) -> None:
        if self.blocks:
            self._launch("replay_count")
            self._launch("replay_offsets", threads=_OFFSETS)

    def _read(self, nbytes: int) -> tuple[Array, Array, int]:
        head: Array = np.empty(nbytes, np.uint8)
        self._device.driver.to_host(self._head.address, head)
        numbers = head[:_CONTROL].view("<u8")
        return numbers, head[_CONTROL:].view(_WORD), int(numbers[3])


# --- the start-up probe: entries made and followed, as known ones ---------------------------------
_DOWN, _UP = 0, 1


def differing_logs(device: Cuda, bits: int) -> Iterator[str]:
    """ "a rounding log", if logs differ."""
    if logs_differ(device, bits):
        yield "a rounding log"


def logs_differ(device: Cuda, bits: int) -> bool:
    """True if the entries or the values that `device` makes on the grid of `bits` bits are not
    those of NUMERICS 14.5 to 14.8.

    Three elements: two sums halfway between neighbours of the grid, and one near no boundary."""
    step = 2.0 ** (9 - bits)  # between neighbours above 1
    a = np.array([[1, step / 2], [1 + step, step / 2], [1, step / 4]], np.float32)
    ones = np.ones((2, 1), np.float32)
    left, right = (device.from_host(array) for array in (a, ones))
    dims: Attrs = {"dim": (1,), "keepdim": True}
    calls: tuple[tuple[str, Attrs, list[DeviceTensor]], ...] = (
        ("aten.mm", {}, [left, right]),
        ("aten.sum.dim_IntList", dims, [left]),
    )
    log, out = DeviceLog(device, [3] * len(calls)), device.from_host(np.zeros((3, 1), np.float32))

    def values() -> list[list[float]]:
        found = []
        for number, (op, attrs, inputs) in enumerate(calls):
            rounded_kernel[op](Rounding(bits, {0: log.marks(number)}), attrs, inputs, [out])
            found.append(device.host(out).reshape(-1).tolist())
        return found

    # Ties go to the even neighbour: down from the first boundary, up from the second.
    counts, recorded = [2] * len(calls), [_DOWN, 2 + _UP] * len(calls)
    log.record()
    well = values() == [[1, 1 + 2 * step, 1]] * len(calls)
    well &= [found.tolist() for found in log.recorded()] == [counts, recorded]
    # The other directions; and an entry to which no kernel leads, which changes nothing.
    followed = [_UP, 2 + _DOWN, 4 + _UP] * len(calls)
    log.follow(np.array([3] * len(calls)), np.array(followed), False)
    well &= values() == [[1 + step, 1 + step, 1]] * len(calls)
    well &= log.followed() == LogOutcome(4, 4, 4)
    well &= log.recorded()[1].tolist() == [_UP, 2 + _DOWN] * len(calls)
    return not well
