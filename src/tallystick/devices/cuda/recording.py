"""A sequence of calls on a GPU: started one by one, then recorded and replayed (ADR 0016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallystick.devices.cuda.nvidia import CudaDriver, RecordedWork
from tallystick.devices.cuda.tensor import Memory
from tallystick.devices.sequence import Call, CallFailedError
from tallystick.errors import RefusedOperandsError

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

_NO_REFUSAL = (1 << 64) - 1


class Refusals:
    """The word in which refusing calls leave their number (device.hpp, Refusal).

    Inside of a sequence the word is read once, at its end. Outside of one every refusing call
    reads it.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._memory = Memory(driver, 8)
        self.collected: list[tuple[int, str, str]] | None = None
        self.position = 0  # of the call under way in its sequence
        self.clear()

    def clear(self) -> None:
        """Forget what was refused, by a call that was broken off too."""
        self._driver.fill(self._memory.address, 0xFF, 8)

    def read(self) -> tuple[int, int] | None:
        """The number of the first call that refused since the last `clear`, and the position of
        its first bad element; None where none has."""
        word: np.ndarray = np.empty(1, np.uint64)
        self._driver.to_host(self._memory.address, word)
        if int(word[0]) == _NO_REFUSAL:
            return None
        return int(word[0]) >> 32, int(word[0]) & 0xFFFFFFFF

    def slots(self, op: str, why: str) -> bytes:
        """The slots Refusal of the next launch. The kernel's caller calls `after` when it has
        started it."""
        number = 0
        if self.collected is not None:
            number = len(self.collected)
            self.collected.append((self.position, op, why))
        return self._memory.address.to_bytes(8, "little") + number.to_bytes(8, "little")

    def after(self, op: str, why: str) -> None:
        """Raises RefusedOperandsError at once, outside of a sequence."""
        if self.collected is None:
            found = self.read()
            if found is not None:
                self.clear()
                raise RefusedOperandsError(op, f"{why} (at position {found[1]}).")


class DeviceSequence:
    """Calls of kernels on `device`.

    The first run that succeeds has started every call by itself, which also loads kernels and gets
    scratch memory. The next run records them. Later runs start the recording. A recording holds
    addresses: it is kept as long as the device keeps its scratch memory. Where the device has no
    memory for a recording, every run starts every call.
    """

    def __init__(self, device: Cuda, calls: Sequence[Call]) -> None:
        self._device, self._calls = device, calls
        self._has_run = self._stays_eager = False
        self._recorded: RecordedWork | None = None
        self._refusing: list[tuple[int, str, str]] = []
        self._forgotten = 0  # how often the device took other scratch memory

    def run(self) -> None:
        """Run all calls (sequence.py). Raises CallFailedError for a call that refuses or cannot be
        started, MachineFaultError and MemoryError where the device fails."""
        if not self._calls:
            return
        if self._has_run and self._recorded is None and not self._stays_eager:
            self._record()
        if self._recorded is not None:
            self._recorded.replay()
        else:
            self._start_all()
            self._has_run = True
        self._look()

    def forget(self) -> None:
        """Let go of the recording: the scratch memory whose address it holds goes."""
        self._recorded = None
        self._forgotten += 1

    def _record(self) -> None:
        before = self._forgotten
        try:
            recorded = self._device.driver.record(self._start_all)
        except MemoryError:
            self._stays_eager = True
            return
        except CallFailedError as failure:
            if not isinstance(failure.__cause__, MemoryError):
                raise
            self._stays_eager = True
            return
        if self._forgotten == before:
            self._recorded = recorded

    def _look(self) -> None:
        """Read the word of refusals, if any call may have left its number there."""
        if not self._refusing:
            return
        found = self._device.refusals.read()
        if found is not None:
            position, op, why = self._refusing[found[0]]
            error = RefusedOperandsError(op, f"{why} (at position {found[1]}).")
            raise CallFailedError(position) from error

    def _start_all(self) -> None:
        refusals = self._device.refusals
        refusals.clear()
        refusals.collected = []
        try:
            for position, (run, attrs, inputs, outputs) in enumerate(self._calls):
                refusals.position = position
                try:
                    run(attrs, inputs, outputs)
                except Exception as error:
                    raise CallFailedError(position) from error
            self._refusing = refusals.collected
        finally:
            refusals.collected = None
