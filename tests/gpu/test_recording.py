"""A sequence of calls on a GPU that fails on the way (devices/cuda/recording.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_gpu import EmulatedDriver

from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.sequence import Call, CallFailedError


class Short(EmulatedDriver):
    """A driver that can be out of memory: for allocations after the next `left`, for recordings."""

    left: int | None = None
    records = True

    def allocate(self, nbytes: int) -> int:
        if self.left is not None:
            if not self.left:
                raise MemoryError("The GPU has no memory left.")
            self.left -= 1
        return super().allocate(nbytes)

    def record(self, work: Callable[[], None]) -> Any:
        if not self.records:
            raise MemoryError("The GPU has no memory left for a recording.")
        return super().record(work)


class Counting(EmulatedDriver):
    """A driver of `most` bytes that counts bytes in use and recordings."""

    live = recordings = 0
    most: int | None = None

    def allocate(self, nbytes: int) -> int:
        if self.most is not None and self.live + nbytes > self.most:
            raise MemoryError("The GPU has no memory left.")
        self.live += nbytes
        return super().allocate(nbytes)

    def free(self, address: int) -> None:
        self.live -= self._memory[address][1]
        super().free(address)

    def record(self, work: Callable[[], None]) -> Any:
        self.recordings += 1
        return super().record(work)


def through_scratch(device: Cuda, sizes: tuple[int, ...]) -> tuple[list[Call], list[DeviceTensor]]:
    """Calls that each fill scratch memory of a size and copy it to a tensor of their own."""
    outputs = [device.contiguous("u8", (size,)) for size in sizes]

    def run(_attrs: Any, number: list[int], out: list[DeviceTensor]) -> None:
        address = device.scratch(out[0].nbytes)
        device.driver.fill(address, number[0], out[0].nbytes)
        device.driver.move(address, out[0].address, out[0].nbytes)

    return [(run, {}, [i + 1], [out]) for i, out in enumerate(outputs)], outputs


def right(device: Cuda, outputs: list[DeviceTensor]) -> bool:
    """True if the calls have run; their tensors are cleared for the next run."""
    found = all((device.host(out) == i + 1).all() for i, out in enumerate(outputs))
    for out in outputs:
        device.write(np.zeros(out.shape, np.uint8), out)
    return found


def test_a_first_run_that_failed_is_not_recorded_over() -> None:
    """A recording holds addresses: none of memory that was freed while it was made."""
    driver = Short()
    device = Cuda(driver)
    calls, outputs = through_scratch(device, (100, 5000, 300, 90_000))
    sequence = device.sequence(calls)
    driver.left = 1
    with pytest.raises(CallFailedError) as failure:
        sequence.run()
    assert failure.value.position == 1 and isinstance(failure.value.__cause__, MemoryError)
    driver.left = None
    for _ in range(4):
        sequence.run()
        assert right(device, outputs)
    driver.check()


def test_scratch_that_grew_meanwhile_is_recorded_the_next_time() -> None:
    device = Cuda(Short())
    calls, outputs = through_scratch(device, (100, 5000))
    sequence = device.sequence(calls)
    sequence.run()
    device.scratch_memory = None  # as if another sequence had let it go
    for _ in range(3):
        assert right(device, outputs)
        sequence.run()


def test_scratch_of_two_sizes_never_stands_side_by_side() -> None:
    """Growth frees the former memory first, which a recording held; the recording is made again."""
    driver = Counting()
    device = Cuda(driver)
    small, large = (through_scratch(device, (size,)) for size in (100, 90_000))
    first, second = device.sequence(small[0]), device.sequence(large[0])
    for _ in range(3):
        first.run()
        assert right(device, small[1])
    assert driver.recordings == 1
    driver.most = driver.live - 100 + 90_000
    second.run()  # one byte more would be refused
    assert right(device, large[1])
    for _ in range(3):
        first.run()
        second.run()
        assert right(device, small[1]) and right(device, large[1])
    assert driver.recordings == 3
    driver.check()


def test_a_gpu_without_memory_for_a_recording_starts_every_call() -> None:
    driver = Short()
    driver.records = False
    device = Cuda(driver)
    calls, outputs = through_scratch(device, (100, 50))
    sequence = device.sequence(calls)
    for _ in range(3):
        sequence.run()
        assert right(device, outputs)


def test_a_refusal_of_a_run_that_was_broken_off_is_forgotten() -> None:
    """Else the next sequence would name a call of its own that refused nothing."""
    device = Cuda(Short())
    weight, index = device.contiguous("f32", (5, 4)), device.contiguous("i64", (3,))
    out = device.contiguous("f32", (3, 4))
    device.write(np.ones((5, 4), np.float32), weight)
    device.write(np.array([1, 9, 2]), index)
    from tallystick.numerics.contracts import find_contract

    look_up = device.kernels(find_contract("ordered/1"))["aten.embedding"].run

    def interrupted(*_: Any) -> None:
        raise MemoryError

    attrs = {"padding_idx": -1}
    broken = device.sequence([(look_up, attrs, [weight, index], [out]), (interrupted, {}, [], [])])
    with pytest.raises(CallFailedError):
        broken.run()
    device.write(np.array([1, 0, 2]), index)
    sequence = device.sequence([(look_up, attrs, [weight, index], [out])])
    for _ in range(3):
        sequence.run()
    device.write(np.array([1, 0, -2]), index)
    with pytest.raises(CallFailedError) as failure:
        sequence.run()
    assert "position 2" in str(failure.value.__cause__)
